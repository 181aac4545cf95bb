from __future__ import annotations

import dataclasses
import re

import pytest

from helpers.small_checkout import ROOT, SmallCheckout
from tilewright_release.audit import (
    differing_pins,
    library_kernels,
    repeated_keys,
    undefined_families,
    unknown_targets,
    unmatched_launches,
    unmatched_tolerances,
    unreached_kernels,
    unused_budgets,
)
from tilewright_release.budgets import read_budgets
from tilewright_release.checkout import Checkout
from tilewright_release.main import main
from tilewright_release.samples import all_samples
from tilewright_release.signatures import read_signatures
from tilewright_release.targets import read_targets
from tilewright_release.tolerances import Tolerances


def test_the_project_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(ROOT), "audit"]) == 0, capsys.readouterr().err
    assert re.search(r"\d+ entries of \d+ families are consistent", capsys.readouterr().out)


def test_a_kernel_that_nothing_reaches_is_found() -> None:
    kernels = library_kernels()
    declared = read_signatures(Checkout(ROOT))
    assert len(kernels) > 8
    softmax = [entry for entry in declared if entry.family == "softmax"]
    others = [entry for entry in declared if entry.family != "softmax"]
    assert not list(unreached_kernels(declared, kernels))
    problems = list(unreached_kernels(others, kernels))
    assert {entry.kernel.qualified_name for entry in softmax} <= {
        problem.partition(" ")[0] for problem in problems
    }


def test_a_budget_without_signatures_is_found(small: SmallCheckout) -> None:
    small.replace("prebuilt/budgets.toml", "[family.small]", "[family.other]")
    budgets = read_budgets(small.checkout.budgets)
    assert list(unused_budgets(budgets, read_signatures(small.checkout))) == [
        "family other has a budget and no signatures: remove one or add the other"
    ]


def test_the_same_key_twice_is_found(small: SmallCheckout) -> None:
    declared = read_signatures(small.checkout)
    assert not list(repeated_keys(declared))
    assert len(list(repeated_keys([*declared, declared[0]]))) == 2


def test_an_unsupported_target_must_exist(small: SmallCheckout) -> None:
    small.replace(
        "prebuilt/signatures/small.toml", "num_warps = 2", 'num_warps = 2\nunsupported.sm_81 = "x"'
    )
    declared = read_signatures(small.checkout)
    assert list(unknown_targets(declared, read_targets(small.checkout.targets))) == [
        "kernels.py:square is unsupported on sm_81, which is no target"
    ]


def test_a_family_must_be_where_its_definition_is(small: SmallCheckout) -> None:
    entry = dataclasses.replace(
        read_signatures(small.checkout)[0],
        family="norm",
        reference="tilewright.kernels.softmax:softmax",
    )
    first, second = undefined_families([entry], small.checkout)
    assert first.endswith("is declared in family norm, its module is softmax")
    assert second.startswith("tilewright.kernels.softmax:softmax has no definition: ")
    assert not list(
        undefined_families([dataclasses.replace(entry, family="softmax")], Checkout(ROOT))
    )


def test_pins_must_agree(small: SmallCheckout) -> None:
    assert not list(differing_pins(Checkout(ROOT)))
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    small.write("pyproject.toml", pyproject.replace("nvcc-cu12==12.9.86", "nvcc-cu12==13.0.88"))
    lock = (ROOT / "wheels" / "locks" / "dev.txt").read_text(encoding="utf-8")
    small.write("wheels/locks/dev.txt", lock.replace("ruff==", "ruff==0"))
    problems = list(differing_pins(small.checkout))
    assert problems[0].startswith("the compiler pins nvidia-cuda-nvcc-cu12==12.9.86, the extra")
    assert problems[1].startswith("nvidia-cuda-nvcc-cu12==13.0.88 is not in wheels/locks/dev.txt")
    assert problems[2].startswith("ruff==")


def test_a_family_without_tolerances_is_found(small: SmallCheckout) -> None:
    declared = read_signatures(small.checkout)
    assert list(unmatched_tolerances(Tolerances({"small": {}}), declared)) == []
    assert list(unmatched_tolerances(Tolerances({"other": {}}), declared)) == [
        "family small has no tolerances: add [small] to prebuilt/tolerances.toml",
        "family other has tolerances and no signatures: remove one or add the other",
    ]


def test_what_no_operation_launches_is_found() -> None:
    declared = read_signatures(Checkout(ROOT))
    samples = all_samples(ROOT)
    softmax = [entry for entry in declared if entry.family == "softmax"]
    of_softmax = [sample for sample in samples if sample.family == "softmax"]
    assert list(unmatched_launches(softmax, of_softmax)) == []
    # A configuration that the library does not choose, and one that it does and nobody declares.
    signature = dataclasses.replace(softmax[0].signature, num_warps=32)
    odd = dataclasses.replace(softmax[0], signature=signature)
    (problem,) = unmatched_launches([*softmax, odd], of_softmax)
    assert problem.startswith(f"{odd.kernel.qualified_name} {signature} is launched by no sample")
    problems = list(unmatched_launches(softmax[1:], of_softmax))
    assert any("which is not declared" in problem for problem in problems)
    astray = dataclasses.replace(of_softmax[0], family="norm")
    (problem,) = unmatched_launches(softmax, [*of_softmax, astray])
    assert problem == f"sample {astray.name} is of family norm and launches nothing of it"
