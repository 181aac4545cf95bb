"""`prebuilt/budgets.toml` becomes limits, and a bundle becomes the list of limits that it passes.

A budget is there to fail the build: growth is a decision that somebody makes in that file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewright_compiler.ir.stages import Cubin
from tilewright_release.table import Table, read_table


@dataclass(frozen=True, slots=True)
class FamilyBudget:
    """Limits of one family: entries in all; registers, spills and shared memory of each blob."""

    entries: int
    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of the whole bundle and of each family."""

    entries: int
    packed_bytes: int
    cold_core_seconds: int
    families: dict[str, FamilyBudget]


@dataclass(frozen=True, slots=True)
class Measured:
    """What an entry takes of its family's budget."""

    family: str
    name: str
    shared_bytes: int
    seconds: float
    cubins: tuple[Cubin, ...]


def read_budgets(file: Path) -> Budgets:
    """Read the table; raises FormatError that names the key of whatever is wrong."""
    top = read_table(file)
    bundle = top.table("bundle")
    entries = bundle.integer("entries")
    packed_bytes = bundle.integer("packed_bytes")
    cold_core_seconds = bundle.integer("cold_core_seconds")
    bundle.finish()
    families = top.table("family")
    budgets = {name: _read_family(families.table(name)) for name in families.names()}
    top.finish()
    return Budgets(entries, packed_bytes, cold_core_seconds, budgets)


def passed_entry_limits(budgets: Budgets, families: Iterable[str]) -> list[str]:
    """Return what the declared entries pass, known before anything is compiled."""
    counts = Counter(families)
    problems = [
        f"family {family} has no budget: add [family.{family}]"
        for family in sorted(counts)
        if family not in budgets.families
    ]
    problems += [
        f"family {family}: {count} entries, the budget is {budgets.families[family].entries}"
        for family, count in sorted(counts.items())
        if family in budgets.families and count > budgets.families[family].entries
    ]
    total = counts.total()
    if total > budgets.entries:
        problems.append(f"bundle: {total} entries, the budget is {budgets.entries}")
    return problems


def passed_blob_limits(budgets: Budgets, measured: Iterable[Measured]) -> list[str]:
    """Return what compiled entries pass: registers, spills, shared memory, ptxas's warnings.

    The common text of a target that has one of its own is launched only where that cannot be: its
    spills do not count.
    """
    problems = []
    seconds = 0.0
    for entry in measured:
        budget = budgets.families[entry.family]
        seconds += entry.seconds
        has_own = {cubin.target for cubin in entry.cubins if cubin.abi is not None}
        for cubin in entry.cubins:
            is_second = cubin.abi is None and cubin.target in has_own
            found = (
                ("registers", cubin.registers, budget.registers),
                ("bytes spilled", 0 if is_second else cubin.spill_bytes, budget.spill_bytes),
                (
                    "bytes of shared memory",
                    _dynamic_bytes(entry, cubin) + cubin.static_shared_bytes,
                    budget.shared_bytes,
                ),
            )
            problems += [
                f"{value} {what}, the budget is {limit}: {entry.name} for {cubin.key}"
                for what, value, limit in found
                if value > limit
            ]
            problems += [
                f"ptxas says {text}: {entry.name} for {cubin.key}" for text in cubin.warnings
            ]
    if seconds > budgets.cold_core_seconds:
        problems.append(
            f"bundle: {seconds:.0f} core-seconds from nothing, the budget is "
            f"{budgets.cold_core_seconds}"
        )
    return problems


def _dynamic_bytes(entry: Measured, cubin: Cubin) -> int:
    return entry.shared_bytes if cubin.abi is None else cubin.abi.shared_bytes


def _read_family(table: Table) -> FamilyBudget:
    budget = FamilyBudget(
        entries=table.integer("entries"),
        registers=table.integer("registers"),
        spill_bytes=table.integer("spill_bytes", 0),
        shared_bytes=table.integer("shared_bytes"),
    )
    table.finish()
    return budget
