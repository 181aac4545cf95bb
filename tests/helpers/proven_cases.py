"""Operations of the library whose schedules are proven, and that the bundle must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.recorded_launches import RecordedLaunch, recorded
from tilewright_compiler.interpret.proof import Store
from tilewright_compiler.interpret.traffic import shared_traffic
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signatures

CHECKOUT = Checkout(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True)
class Case:
    """An operation to launch; `patches` replaces functions of `tilewright.tensor` that choose.

    With `runs` later launches read what earlier ones wrote.
    """

    name: str
    call: Callable[[], object]
    by_default: bool = True
    patches: tuple[tuple[str, object], ...] = ()
    runs: bool = False

    def launches(
        self, monkeypatch: pytest.MonkeyPatch, *, runs: bool = False
    ) -> list[RecordedLaunch]:
        """Return what the operation launches; with `runs` each is recorded before it runs."""
        with monkeypatch.context() as patch:
            for function, replacement in self.patches:
                patch.setattr(f"tilewright.tensor.{function}", replacement)
            return recorded(patch, self.call, runs=runs or self.runs)


def prove(launches: list[RecordedLaunch], store: Store) -> None:
    """Prove each launch, and that loops have no bank conflicts."""
    assert launches
    for launch in launches:
        conflicts = [
            f"{traffic.operation.name} {traffic.access}"
            for traffic in shared_traffic(launch.prove(store=store))
            if traffic.loops and traffic.access.ways > 1
        ]
        assert not conflicts, "bank conflicts in a loop"


def not_bundled(cases: Iterable[Case], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name what the cases launch and the signature files do not declare."""
    bundled = {
        (entry.kernel.qualified_name, str(entry.signature)) for entry in read_signatures(CHECKOUT)
    }
    for case in cases:
        for launch in case.launches(monkeypatch):
            if (launch.kernel.qualified_name, str(launch.signature)) not in bundled:
                yield f"{case.name}: {launch.kernel.name} {launch.signature}"
