"""What every stage gave, kept as text while a kernel is compiled, with the time that each took.

A stage is recorded as a function that makes its text, called only when somebody reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.lazy_dataclass import dataclass

STAGES = ("source", "tile", "optimized", "scheduled", "mlir", "ptx", "sass", "resources")


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of a compilation and the time it took; `is_cached` if a cache answered."""

    name: str
    seconds: float
    is_cached: bool = False


class Snapshots:
    """Collects the stages and phases of one compilation."""

    def __init__(self) -> None:
        """Start empty."""
        self._texts: dict[str, Callable[[], str]] = {}
        self._phases: list[Phase] = []

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases so far, in order."""
        return tuple(self._phases)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that have a text, in the order of the compiler."""
        return tuple(stage for stage in STAGES if stage in self._texts)

    def record(self, stage: str, text: Callable[[], str]) -> None:
        """Keep what `stage` gave."""
        assert stage in STAGES, f"{stage} is one of {STAGES}"
        self._texts[stage] = text

    def text(self, stage: str) -> str:
        """Return the text of a recorded stage."""
        return self._texts[stage]()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside."""
        start = time.perf_counter()
        yield
        self._phases.append(Phase(name, time.perf_counter() - start))

    def cached(self, name: str) -> None:
        """Note that a cache answered for this phase."""
        self._phases.append(Phase(name, 0.0, is_cached=True))
