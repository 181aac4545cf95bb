"""Samples are run by the binaries of a bundle, and each binary gets what became of it.

A binary is right when every launch that it served was part of an operation whose result is within
the family's tolerance of the definition. Of an entry with two binaries for a GPU, that of the
target's own schedule and the common one, every sample runs once with each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewright.abi.signature import KernelSignature
from tilewright.errors import LaunchError, ReleaseError, TilewrightError
from tilewright.language.kernel import Kernel
from tilewright_release.progress import Progress
from tilewright_release.samples import Sample
from tilewright_release.tolerances import Tolerances

NOT_SAMPLED = "no sample launches it"
_CONDITION = "may only be launched when"
"""What the launcher says of arguments that do not fulfil the condition of a binary."""

NOT_SUITED = "no sample fulfils its condition"


@dataclass(frozen=True, slots=True)
class Binary:
    """One binary of the bundle that this GPU may run, in its rank among those of its entry."""

    source_key: str
    rank: int
    name: str
    sha256: str


class RunBinary(Protocol):
    """Makes one launch on host arrays with one binary."""

    def __call__(
        self,
        binary: Binary,
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
    ) -> None:
        """Make the launch."""


class FindKey(Protocol):
    """Returns the source key of a launch."""

    def __call__(self, kernel: Kernel, signature: KernelSignature, /) -> str:
        """Return the key."""


@dataclass(slots=True)
class Outcome:
    """What became of binaries: which ran, and what was wrong with those that were wrong.

    `unbundled` are signatures that an operation launches and the bundle has not.
    """

    driven: set[Binary] = field(default_factory=set)
    failures: dict[Binary, str] = field(default_factory=dict)
    unsuited: set[Binary] = field(default_factory=set)
    unbundled: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> set[Binary]:
        """The binaries that ran and were right each time."""
        return self.driven - set(self.failures)

    def skipped(self, binaries: Iterable[Binary]) -> Counter[str]:
        """Return how many of the binaries did not run, by reason."""
        return Counter(
            NOT_SUITED if binary in self.unsuited else NOT_SAMPLED
            for binary in binaries
            if binary not in self.driven and binary not in self.failures
        )


def validate_samples(
    samples: Sequence[Sample],
    binaries: Mapping[str, Sequence[Binary]],
    *,
    tolerances: Tolerances,
    run: RunBinary,
    find_key: FindKey,
    progress: Progress,
) -> Outcome:
    """Run every sample with the binaries of each source key, and return what became of them."""
    outcome = Outcome()
    for sample in samples:
        rank = 0
        while True:
            attempt = _Attempt(rank, binaries, run, find_key)
            problem = _problem(sample, attempt, tolerances, outcome)
            _record(attempt, problem, sample, outcome)
            rank += 1
            if rank >= attempt.most:
                break
        progress.advance(sample.name)
    return outcome


class _UnbundledError(ReleaseError):
    """A launch of a signature that the bundle has not."""


class _NoBinaryError(ReleaseError):
    """A launch that no binary of the bundle serves on this GPU, for want of shared memory say."""


class _Attempt:
    """One run of a sample, with the binary of a rank for each launch that has so many."""

    def __init__(
        self,
        rank: int,
        binaries: Mapping[str, Sequence[Binary]],
        run: RunBinary,
        find_key: FindKey,
    ) -> None:
        self._rank = rank
        self._binaries = binaries
        self._run = run
        self._find_key = find_key
        self.used: list[Binary] = []
        self.most = 1

    def __call__(
        self,
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
        stepwise: bool = False,  # noqa: ARG002  # of the interpreter
    ) -> None:
        known = self._binaries.get(self._find_key(kernel, signature))
        if known is None:
            msg = f"{kernel.qualified_name} {signature}"
            raise _UnbundledError(msg)
        if not known:
            raise _NoBinaryError(kernel.qualified_name)
        self.most = max(self.most, len(known))
        binary = known[min(self._rank, len(known) - 1)]
        self.used.append(binary)
        self._run(binary, kernel, signature, grid=grid, arguments=arguments)


def _problem(
    sample: Sample, attempt: _Attempt, tolerances: Tolerances, outcome: Outcome
) -> str | None:
    """Run a sample once; return what is wrong with its result, empty if it could not be run."""
    try:
        result = sample.run(attempt)
    except _UnbundledError as error:
        outcome.unbundled.setdefault(str(error), sample.name)
        return ""
    except _NoBinaryError:
        return ""
    except LaunchError as error:
        if _CONDITION not in str(error):
            return f"{type(error).__name__}: {error}"
        outcome.unsuited.add(attempt.used[-1])
        return ""
    except TilewrightError as error:
        return f"{type(error).__name__}: {error}"
    return tolerances.problem(sample.family, result, sample.expected(), precision=sample.precision)


def _record(attempt: _Attempt, problem: str | None, sample: Sample, outcome: Outcome) -> None:
    for binary in attempt.used:
        if problem is None:
            outcome.driven.add(binary)
        elif problem:
            outcome.driven.add(binary)
            outcome.failures.setdefault(binary, f"{sample.name} {problem}")
