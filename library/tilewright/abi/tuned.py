"""Tables of tuned choices: which kernel with which tiles was fastest for a case, on which device.

A case says in words what a choice depends on besides sizes (dtypes, layout, epilogue). A line was
timed for one set of sizes and serves its bucket: all that round to the same half powers of two, so
that neighbours in it differ by a fifth at most. A device is its compute capability and number of
multiprocessors, `90-132`; devices alike in these are alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tilewright.errors import FormatError

FILE_NAME = "tuned.json"
"""The tables of a bundle, beside its manifest."""

SCHEMA = 1

_LEAST_GAIN = 1.02

Sizes = tuple[int, ...]
Key = tuple[str, tuple[int, ...]]
"""A case, and the bucket of sizes."""


class Choice(NamedTuple):
    """A kernel by its short name, with the tile extents, warps and stages of its loop.

    `parts` are those of each sum, `copied` the operands that are copied before.
    """

    kernel: str
    tiles: tuple[int, int, int, int, int]
    parts: int = 1
    copied: tuple[int, ...] = ()

    def __str__(self) -> str:
        m, n, k, warps, stages = self.tiles
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        copied = f" after copying {' and '.join('AB'[i] for i in self.copied)}"
        text = f"{self.kernel} {m}x{n}x{k}, {warps} warps, {stages} stages{parts}"
        return text + (copied if self.copied else "")


class Line(NamedTuple):
    """What won for a case and sizes, and its median time; `model_us` is the time of what the
    library chooses without tables. `undeclared` tells of a faster choice that no bundle carries.
    """

    case: str
    sizes: Sizes
    choice: Choice
    time_us: float
    model_us: float
    undeclared: str = ""

    @property
    def key(self) -> Key:
        """What a launch looks the line up by."""
        return self.case, bucket(self.sizes)

    @property
    def is_worth_it(self) -> bool:
        """Whether it is faster by more than noise: other sizes of its bucket should gain too."""
        return self.model_us > _LEAST_GAIN * self.time_us


class TunedTable(NamedTuple):
    """The lines of a family of kernels on one kind of device, and where and when they were timed.

    `driver` is a CUDA version, 13000 for 13.0; `commit` is that of the sources, empty if unknown.
    """

    family: str
    device: str
    gpu: str
    driver: int
    date: str
    version: str
    commit: str
    lines: tuple[Line, ...]

    def choices(self) -> dict[Key, Choice]:
        """Return the choice of each case and bucket in which there is something to gain."""
        return {line.key: line.choice for line in self.lines if line.is_worth_it}

    def to_data(self) -> dict[str, Any]:
        """Return the table as plain data, for JSON and TOML."""
        head = {name: getattr(self, name) for name in self._fields if name != "lines"}
        return {"schema": SCHEMA, **head, "line": [_line_to_data(line) for line in self.lines]}


def bucket(sizes: Sizes) -> tuple[int, ...]:
    """Return the half powers of two that sizes round to."""
    return tuple([round(2 * math.log2(size)) if size > 0 else -1 for size in sizes])


def nearest(device: str, known: Iterable[str]) -> str | None:
    """Return the known device that is most like another: by major capability, minor, then size."""

    def distance(name: str) -> tuple[int, int, float, str]:
        (major, minor, size), (own_major, own_minor, own_size) = _parts(name), _parts(device)
        return (
            abs(major - own_major),
            abs(minor - own_minor),
            abs(math.log(size / own_size)),
            name,
        )

    return min(known, key=distance, default=None)


def from_data(data: Mapping[str, Any], *, source: object) -> TunedTable:
    """Return a table from plain data; raises FormatError, which names `source`, if it is none."""
    try:
        if data["schema"] != SCHEMA:
            msg = f"{source} has schema {data['schema']!r}, this library reads {SCHEMA}"
            raise FormatError(msg)
        _parts(data["device"])
        return TunedTable(
            family=str(data["family"]),
            device=str(data["device"]),
            gpu=str(data["gpu"]),
            driver=int(data["driver"]),
            date=str(data["date"]),
            version=str(data["version"]),
            commit=str(data["commit"]),
            lines=tuple(map(_line_from_data, data["line"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        msg = f"{source} is no table of tuned choices: {error!r}"
        raise FormatError(msg) from error


def to_json(tables: Iterable[TunedTable]) -> str:
    """Return the text of a file of tables."""
    data = {"schema": SCHEMA, "tables": [table.to_data() for table in tables]}
    return json.dumps(data, indent=None, separators=(",", ":"), sort_keys=True) + "\n"


def from_json(text: str, *, source: object) -> tuple[TunedTable, ...]:
    """Return the tables of a file; raises FormatError, which names `source`."""
    try:
        tables = json.loads(text)["tables"]
        return tuple(from_data(table, source=source) for table in tables)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{source} is no file of tuned tables: {error!r}"
        raise FormatError(msg) from error


def _line_to_data(line: Line) -> dict[str, Any]:
    data: dict[str, Any] = {
        "case": line.case,
        "sizes": list(line.sizes),
        "kernel": line.choice.kernel,
        "tiles": list(line.choice.tiles),
        "time_us": line.time_us,
        "model_us": line.model_us,
    }
    if line.choice.parts != 1:
        data["parts"] = line.choice.parts
    if line.choice.copied:
        data["copied"] = list(line.choice.copied)
    if line.undeclared:
        data["undeclared"] = line.undeclared
    return data


def _line_from_data(data: Mapping[str, Any]) -> Line:
    tiles = tuple(map(_positive, data["tiles"]))
    m, n, k, warps, stages = tiles
    choice = Choice(
        str(data["kernel"]),
        (m, n, k, warps, stages),
        _positive(data.get("parts", 1)),
        tuple(map(int, data.get("copied", ()))),
    )
    return Line(
        str(data["case"]),
        tuple(map(int, data["sizes"])),
        choice,
        float(data["time_us"]),
        float(data["model_us"]),
        str(data.get("undeclared", "")),
    )


def _positive(value: object) -> int:
    if type(value) is not int or value <= 0:
        msg = f"{value!r} is no positive number"
        raise ValueError(msg)
    return value


def _parts(device: str) -> tuple[int, int, int]:
    # No pattern: compiling one would take longer than all of this.
    capability, _, multiprocessors = device.partition("-")
    is_spelled_so = len(capability) > 1 and f"{capability}{multiprocessors}".isdecimal()
    if not is_spelled_so or not multiprocessors:
        msg = f"{device!r} is no device such as 90-132"
        raise ValueError(msg)
    return int(capability[:-1]), int(capability[-1]), int(multiprocessors)
