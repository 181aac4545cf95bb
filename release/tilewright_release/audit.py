"""`tilewright dev audit`: what is declared, budgeted, pinned and written fits together.

Each rule is one function that yields what it finds wrong; the command fails if any does.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence

import tilewright.kernels
from tilewright.errors import ReleaseError
from tilewright.language.kernel import Kernel
from tilewright_compiler.toolchain import PINNED
from tilewright_release.budgets import Budgets, passed_entry_limits, read_budgets
from tilewright_release.checkout import Checkout
from tilewright_release.samples import Sample, all_samples, launched_by
from tilewright_release.signatures import DeclaredEntry, read_signatures
from tilewright_release.targets import TargetTable, read_targets
from tilewright_release.tolerances import Tolerances, read_tolerances
from tilewright_release.tuning.tables import read_tuned, undeclared_choices

_LIBRARY = "tilewright.kernels."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options: there are none."""


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:  # noqa: ARG001  # a command's form
    """Print what was audited; raises ReleaseError that lists what is wrong."""
    declared = read_signatures(checkout)
    table, budgets = read_targets(checkout.targets), read_budgets(checkout.budgets)
    problems = [
        *passed_entry_limits(budgets, (entry.family for entry in declared)),
        *unused_budgets(budgets, declared),
        *repeated_keys(declared),
        *unknown_targets(declared, table),
        *unreached_kernels(declared, library_kernels()),
        *undefined_families(declared, checkout),
        *unmatched_tolerances(read_tolerances(checkout.tolerances), declared),
        *unmatched_launches(declared, all_samples(checkout.root)),
        *undeclared_choices(read_tuned(checkout.tuned), declared),
        *differing_pins(checkout),
    ]
    if problems:
        raise ReleaseError("\n  ".join((f"the audit finds {len(problems)} problems:", *problems)))
    families = len({entry.family for entry in declared})
    print(f"audit: {len(declared)} entries of {families} families are consistent")
    return 0


def library_kernels() -> list[Kernel]:
    """Return every kernel that a module of `tilewright.kernels` defines."""
    found = []
    for item in pkgutil.iter_modules(tilewright.kernels.__path__, _LIBRARY):
        module = importlib.import_module(item.name)
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, Kernel) and value.module == item.name
        ]
    return found


def unused_budgets(budgets: Budgets, declared: Sequence[DeclaredEntry]) -> Iterator[str]:
    """Yield families that have a budget and no signatures."""
    for family in sorted(set(budgets.families) - {entry.family for entry in declared}):
        yield f"family {family} has a budget and no signatures: remove one or add the other"


def repeated_keys(declared: Sequence[DeclaredEntry]) -> Iterator[str]:
    """Yield entries that are the same to a launch, so that one of them could never be reached."""
    counts = Counter(entry.source_key for entry in declared)
    for entry in declared:
        if counts[entry.source_key] > 1:
            yield f"{entry.reference} {entry.signature} is declared more than once"


def unknown_targets(declared: Sequence[DeclaredEntry], table: TargetTable) -> Iterator[str]:
    """Yield `unsupported` targets that are none."""
    for entry in declared:
        for target, _ in entry.unsupported:
            if target not in table.names:
                yield f"{entry.reference} is unsupported on {target}, which is no target"


def unreached_kernels(
    declared: Sequence[DeclaredEntry], kernels: Sequence[Kernel]
) -> Iterator[str]:
    """Yield kernels of the library that no declared kernel is or calls."""
    reached = {kernel for entry in declared for kernel in entry.kernel.closure()}
    for kernel in kernels:
        if kernel not in reached:
            yield f"{kernel.qualified_name} is in no signature file and no declared kernel calls it"


def undefined_families(declared: Sequence[DeclaredEntry], checkout: Checkout) -> Iterator[str]:
    """Yield library kernels that stand outside their family's module or have no reference."""
    reference = checkout.root / "library" / "tilewright" / "reference"
    for name, family in sorted({(entry.reference, entry.family) for entry in declared}):
        if not name.startswith(_LIBRARY):
            continue
        module = name.removeprefix(_LIBRARY).partition(":")[0]
        if module != family:
            yield f"{name} is declared in family {family}, its module is {module}"
        # A gradient is defined where its operation is.
        definition = reference / f"{module.removesuffix('_unordered').removesuffix('_backward')}.py"
        if not definition.is_file():
            yield f"{name} has no definition: {definition} does not exist"


def unmatched_tolerances(
    tolerances: Tolerances, declared: Sequence[DeclaredEntry]
) -> Iterator[str]:
    """Yield families without tolerances, and tolerances of no family."""
    families = {entry.family for entry in declared}
    for family in sorted(families - set(tolerances.families)):
        yield f"family {family} has no tolerances: add [{family}] to prebuilt/tolerances.toml"
    for family in sorted(set(tolerances.families) - families):
        yield f"family {family} has tolerances and no signatures: remove one or add the other"


def unmatched_launches(
    declared: Sequence[DeclaredEntry], samples: Sequence[Sample]
) -> Iterator[str]:
    """Yield signatures that no sample's operation launches, and launches that are not declared.

    Also samples that are held to the tolerance of a family of which they launch nothing.
    """
    families = {(entry.kernel.qualified_name, str(entry.signature)): entry.family
                for entry in declared}  # fmt: skip
    launched: set[tuple[str, str]] = set()
    missing: dict[tuple[str, str], str] = {}
    for sample in samples:
        launches = [(x.kernel.qualified_name, str(x.signature)) for x in launched_by(sample)]
        launched.update(launches)
        missing |= {launch: sample.name for launch in launches if launch not in families}
        if sample.family not in {families.get(launch) for launch in launches}:
            yield f"sample {sample.name} is of family {sample.family} and launches nothing of it"
    for (kernel, signature), name in sorted(missing.items()):
        yield f"sample {name} launches {kernel} {signature}, which is not declared"
    for kernel, signature in families:
        if (kernel, signature) not in launched:
            yield (
                f"{kernel} {signature} is launched by no sample: no operation chooses it, or "
                "tilewright_release/samples lacks a call that does"
            )


def differing_pins(checkout: Checkout) -> Iterator[str]:
    """Yield tools whose version differs between the compiler, pyproject.toml and the lock."""
    with (checkout.root / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    lock = (checkout.root / "wheels" / "locks" / "dev.txt").read_text(encoding="utf-8")
    locked = {line.partition(" ")[0] for line in lock.splitlines()}
    for name, version in PINNED.items():
        if f"{name}=={version}" not in extras["compiler"]:
            yield f"the compiler pins {name}=={version}, the extra of pyproject.toml does not"
    for pin in (*extras["compiler"], *extras["dev"]):
        if pin not in locked:
            yield f"{pin} is not in wheels/locks/dev.txt; run `make locks`"
