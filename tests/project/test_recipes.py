"""The recipes of CONTRIBUTING.md: what each says to write is there for everything that exists."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tilewright.runtime import jit
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.emit.module import EMITTERS
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.ops import roles, shared
from tilewright_compiler.passes import PASSES
from tilewright_compiler.schedule import hopper
from tilewright_compiler.schedule import plan as schedule_plan
from tilewright_release.audit import library_kernels
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signatures
from tilewright_release.targets import read_targets

_ROOT = Path(__file__).resolve().parents[2]
_COMPILER = _ROOT / "compiler" / "tilewright_compiler"
_CONTRIBUTING = (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_TESTS = _ROOT / "tests"


def _stems(folder: Path, *without: str) -> list[str]:
    stems = [path.stem for path in sorted(folder.glob("*.py")) if path.stem not in without]
    assert stems, f"{folder} has no modules"
    return [stem for stem in stems if stem != "__init__"]


@pytest.mark.parametrize("recipe", ["operation", "pass", "kernel", "op", "target"])
def test_there_is_a_recipe(recipe: str) -> None:
    assert f"**{recipe[0].upper()}{recipe[1:]}" in _CONTRIBUTING


@pytest.mark.parametrize("family", _stems(_COMPILER / "ir" / "ops", "spec", "shared", "roles"))
def test_an_operation_family_is_in_every_stage(family: str) -> None:
    assert (_COMPILER / "interpret" / "ops" / f"{family}.py").is_file()
    emitter = {"reduction": "reduce"}.get(family, family)
    assert (_COMPILER / "emit" / f"{emitter}.py").is_file()


@pytest.mark.parametrize(
    "name",
    # `tma_tile` is between two of the schedule's own steps.
    [spec.name for spec in (*shared.SPECS, *roles.SPECS) if spec.name != "tma_tile"],
)
def test_an_operation_that_only_the_schedule_makes_is_checked_and_emitted(name: str) -> None:
    assert name in scheduled.OPERATIONS
    assert name in EMITTERS


@pytest.mark.parametrize(
    "family",
    _stems(_COMPILER / "frontend" / "builtins", "arguments", "python", "registry", "types"),
)
def test_a_language_family_has_stub_and_lowering_of_one_name(family: str) -> None:
    assert (_ROOT / "library" / "tilewright" / "language" / f"{family}.py").is_file()


@pytest.mark.parametrize("name", _stems(_COMPILER / "passes"))
def test_a_pass_is_a_file_a_function_and_called_by_the_list_or_a_schedule(name: str) -> None:
    in_schedule = any(callable(getattr(plan, name, None)) for plan in (schedule_plan, hopper))
    assert name in [run.__name__ for run in PASSES] or in_schedule


@cache
def _declared() -> tuple[set[str], set[str]]:
    """Return the families that the bundle declares, and those whose kernels they call."""
    entries = read_signatures(Checkout(_ROOT))
    kernels = {entry.kernel for entry in entries}
    members = {member for kernel in kernels for member in kernel.closure()[1:]}
    return (
        {entry.family for entry in entries},
        {member.module.rpartition(".")[2] for member in members},
    )


@pytest.mark.parametrize("family", sorted({k.module.rpartition(".")[2] for k in library_kernels()}))
def test_a_kernel_family_has_definition_signatures_and_tests(family: str) -> None:
    declared, callees = _declared()
    assert family in declared | callees
    if family in declared:
        # A gradient is defined where its operation is, in any order of sums, too.
        definition = f"{family.removesuffix('_unordered').removesuffix('_backward')}.py"
        assert (_ROOT / "library" / "tilewright" / "reference" / definition).is_file()
        assert (_ROOT / "prebuilt" / "signatures" / f"{family}.toml").is_file()


def test_a_target_is_a_row_here_and_there() -> None:
    rows = read_targets(_ROOT / "prebuilt" / "targets.toml").rows
    assert {row.target for row in rows} == set(TARGETS)
    assert set(jit.TARGETS) == set(TARGETS)
