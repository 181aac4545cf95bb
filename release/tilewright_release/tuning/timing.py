"""`tilewright tune time`: candidates are run and timed on a device, and the fastest becomes a line.

Each candidate's result is checked before it is timed; then all are timed in turns, and those far
behind the first after one turn drop out. Every finished point is a line of a journal, so that a run
that was killed, or whose time was up, goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TextIO

import numpy as np

from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.tuned import Choice, Line
from tilewright.errors import LaunchError, ReleaseError, TilewrightError
from tilewright.tensor.tuned import trying
from tilewright_release.progress import show_progress
from tilewright_release.tuning.plan import Plan, PlannedPoint

# By so much must a choice that no bundle carries be faster to be taken before one that is there.
_WORTH_IT = 0.97
USUAL = "usual"
"""What the library chooses without tables, among the contenders of a point."""

Contender = Callable[[], None]


class Bench(Protocol):
    """A device to time on."""

    def place(self, values: Any) -> Any:
        """Return values as an array of the device."""

    def turned(self, array: Any) -> Any:
        """Return an array with its last two axes exchanged."""

    def clear(self, array: Any) -> None:
        """Set an array to zeros."""

    def read(self, array: Any) -> Any:
        """Return an array's values, after the work before."""

    def record(self, call: Contender) -> Contender:
        """Return what can be timed in place of a call that was made before."""

    def measure(self, contenders: Mapping[str, Contender]) -> dict[str, list[float]]:
        """Return the microseconds of a call by name, one a turn; those far behind have one."""


@dataclass(slots=True)
class Timed:
    """What is known of a point: its line, and why candidates were refused."""

    line: Line | None
    refused: dict[str, str] = field(default_factory=dict)


class Journal:
    """The points that are done, a line of JSON each, below one that says of what.

    A run of another plan or on another device begins anew; a line that was cut short is dropped.
    """

    def __init__(self, path: Path, *, of: str) -> None:
        self.path = path
        self.done: dict[str, Timed] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if not lines or lines[0] != of:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(of + "\n", encoding="utf-8")
            return
        for text in lines[1:]:
            try:
                point, line, refused = json.loads(text)
                self.done[point] = Timed(_line(line), refused)
            except (ValueError, TypeError):
                break
        # What follows is written behind whole lines.
        whole = [of, *(self._text(point, timed) for point, timed in self.done.items())]
        path.write_text("".join(f"{text}\n" for text in whole), encoding="utf-8")

    def add(self, point: str, timed: Timed) -> None:
        """Write down a point that is done."""
        self.done[point] = timed
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self._text(point, timed) + "\n")

    @staticmethod
    def _text(point: str, timed: Timed) -> str:
        return json.dumps([point, timed.line, timed.refused])


def time_plan(
    plan: Plan,
    bench: Bench,
    journal: Journal,
    *,
    declared_only: bool,
    seconds: float | None,
    stream: TextIO,
) -> Iterator[tuple[str, Timed]]:
    """Time what the journal does not have, and yield each point as it is done.

    No point is begun after so many `seconds`. With `declared_only` the choice is one that bundles
    carry; the line tells of a faster one.
    """
    start = time.monotonic()
    todo = [planned for planned in plan.points if str(planned.point) not in journal.done]
    with show_progress("points", total=len(todo), stream=stream) as progress:
        for planned in todo:
            if seconds is not None and time.monotonic() - start > seconds:
                return
            timed = time_point(planned, bench, declared_only=declared_only)
            journal.add(str(planned.point), timed)
            progress.advance(f"{planned.point}: {_told(timed)}")
            yield str(planned.point), timed


def time_point(planned: PlannedPoint, bench: Bench, *, declared_only: bool) -> Timed:
    """Check and time every candidate of a point; raises ReleaseError if the usual one is wrong."""
    point = planned.point
    values = {operand.name: point.values(operand) for operand in point.operands}
    arrays = {name: bench.place(value) for name, value in values.items()}
    for operand in point.operands:
        if operand.is_turned:
            values[operand.name] = values[operand.name].swapaxes(-1, -2)
            arrays[operand.name] = bench.turned(arrays[operand.name])
    out = bench.place(np.zeros(point.result.shape, to_numpy(point.result.dtype)))
    expected = point.expected(values)

    def call() -> None:
        point.call(arrays, out)

    with trying(point.family, None) as asked:
        call()
        usual = bench.read(out)
        fault = point.problem(usual, expected, usual)
        if fault:
            msg = f"{point}, as the library does it: {fault}; nothing can be tuned on what is wrong"
            raise ReleaseError(msg)
        contenders = {USUAL: bench.record(call)}
    choices: dict[str, tuple[Choice, bool]] = {}
    refused: dict[str, str] = {}
    for choice, is_declared in planned.candidates:
        try:
            with trying(point.family, choice):
                bench.clear(out)
                call()
                fault = point.problem(bench.read(out), expected, usual)
                if fault:
                    raise LaunchError(fault)
                contenders[str(choice)] = bench.record(call)
        except TilewrightError as error:
            refused[str(choice)] = str(error).partition("\n")[0]
            continue
        choices[str(choice)] = choice, is_declared
    if not choices:
        return Timed(None, refused)
    times = {name: round(median(turns), 2) for name, turns in bench.measure(contenders).items()}
    found = _best(choices, times, declared_only=declared_only)
    if found is None:
        return Timed(None, refused)
    # An operation of one piece asks one question.
    ((case, sizes),) = set(asked)
    name, undeclared = found
    line = Line(case, sizes, choices[name][0], times[name], times[USUAL], undeclared)
    return Timed(line, refused)


def _best(
    choices: Mapping[str, tuple[Choice, bool]], times: Mapping[str, float], *, declared_only: bool
) -> tuple[str, str] | None:
    """Return the name of what is chosen, and what to tell of a faster one that is not declared."""

    def fastest(*, is_declared: bool) -> str | None:
        names = [name for name, (_, declared) in choices.items() if declared == is_declared]
        return min(names, key=lambda name: times[name], default=None)

    there, other = fastest(is_declared=True), fastest(is_declared=False)
    if other is None or (there is not None and times[other] >= _WORTH_IT * times[there]):
        return None if there is None else (there, "")
    if not declared_only:
        return other, ""
    return None if there is None else (there, f"{other}: {times[other]} us")


def _told(timed: Timed) -> str:
    if timed.line is None:
        return f"no candidate serves, {len(timed.refused)} refused"
    line = timed.line
    return f"{line.choice}, {line.time_us} us (usual {line.model_us})"


def _line(data: Any) -> Line | None:
    if data is None:
        return None
    case, sizes, (kernel, (m, n, k, warps, stages), parts, copied), *figures = data
    choice = Choice(kernel, (m, n, k, warps, stages), parts, tuple(copied))
    return Line(case, tuple(sizes), choice, *figures)
