"""`prebuilt/targets.toml` becomes the list of targets: what each blob is assembled by and needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewright.abi.target import Target
from tilewright.errors import UnsupportedTargetError
from tilewright_compiler.capabilities import BASELINE, TARGETS
from tilewright_compiler.toolchain import ptxas_id
from tilewright_release.table import Table, read_table

FLOOR = "ptx"
"""The name of the PTX text itself among the targets of an entry."""


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One target. `min_driver` is a CUDA version in the driver's own form: 12000 is 12.0."""

    target: Target
    toolchain: str
    min_driver: int


@dataclass(frozen=True, slots=True)
class TargetTable:
    """All cubin targets in order, and the minimum driver of the PTX floor."""

    rows: tuple[TargetRow, ...]
    floor_min_driver: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all blobs of an entry: each target, then the floor."""
        return (*(str(row.target) for row in self.rows), FLOOR)

    def min_driver(self, name: str) -> int:
        """Return the minimum driver of a blob by its target's name."""
        if name == FLOOR:
            return self.floor_min_driver
        return next(row.min_driver for row in self.rows if str(row.target) == name)


def read_targets(file: Path) -> TargetTable:
    """Read the table; raises FormatError that names the key of whatever is wrong.

    A toolchain or PTX version that the installed compiler does not have is an error too: the
    blobs would not be what the table says.
    """
    top = read_table(file)
    rows = tuple(_read_row(table) for table in top.tables("target"))
    names = [row.target for row in rows]
    if len(set(names)) != len(names):
        top.fail("target", "names a target twice")
    floor = top.table("floor")
    wanted = (floor.text("target"), floor.text("version"))
    has = (str(BASELINE.target), ".".join(map(str, BASELINE.version)))
    if wanted != has:
        floor.fail(
            "target", f"and version are {' '.join(wanted)}, the compiler writes {' '.join(has)}"
        )
    floor_min_driver = floor.integer("min_driver")
    floor.finish()
    top.finish()
    return TargetTable(rows, floor_min_driver)


def _read_row(table: Table) -> TargetRow:
    name = table.text("name")
    try:
        target = Target.parse(name)
    except UnsupportedTargetError as error:
        table.fail("name", str(error))
    if target not in TARGETS:
        known = ", ".join(map(str, TARGETS))
        table.fail("name", f"is {name}, for which the compiler makes no cubins; it knows {known}")
    toolchain = table.text("toolchain")
    if toolchain != ptxas_id():
        table.fail("toolchain", f"is {toolchain}, the compiler has {ptxas_id()}")
    row = TargetRow(target, toolchain, table.integer("min_driver"))
    table.finish()
    return row
