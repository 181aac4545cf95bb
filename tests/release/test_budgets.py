from __future__ import annotations

import dataclasses

import pytest

from helpers.small_checkout import ROOT, SmallCheckout
from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.target import Target
from tilewright.errors import FormatError
from tilewright_compiler.ir.stages import Cubin
from tilewright_release.budgets import (
    Budgets,
    FamilyBudget,
    Measured,
    passed_blob_limits,
    passed_entry_limits,
    read_budgets,
)

_CUBIN = Cubin(b"", Target(9, 0, "a"), "k", registers=64, static_shared_bytes=100)
_MEASURED = Measured("small", "k(x)", shared_bytes=924, seconds=2.0, cubins=(_CUBIN,))
_BUDGETS = Budgets(
    entries=3,
    packed_bytes=1,
    cold_core_seconds=10,
    families={"small": FamilyBudget(2, registers=64, spill_bytes=0, shared_bytes=1024)},
)


def test_the_budgets_of_the_project_hold_what_is_asked() -> None:
    budgets = read_budgets(ROOT / "prebuilt" / "budgets.toml")
    assert budgets.entries <= 2600
    # What is asked is a wheel of at most 30 MB, in which the manifest of 4 MB takes less than one.
    assert budgets.packed_bytes <= 31_500_000
    assert budgets.cold_core_seconds <= 1500
    spilling = {name: f.spill_bytes for name, f in budgets.families.items() if f.spill_bytes}
    assert spilling == {
        "attention": 24,
        "attention_backward": 268,
        "attention_backward_unordered": 128,
        "attention_features": 372,
        "attention_features_backward": 1440,
        "scaled_matmul": 120,
    }
    # What every GPU has, but for families with a text of their own for Hopper.
    large = {name for name, family in budgets.families.items() if family.shared_bytes > 99 * 1024}
    features = {"attention_features", "attention_features_backward"}
    features |= {"attention_backward_unordered"}
    assert large == {"attention", "attention_backward", "matmul", "scaled_matmul"} | features
    assert all(budgets.families[name].shared_bytes <= 227 * 1024 for name in large)


def test_a_misspelt_limit_is_an_error(small: SmallCheckout) -> None:
    small.replace("prebuilt/budgets.toml", "registers = 64", "register = 64")
    with pytest.raises(FormatError, match=r"family\.small\.registers is missing"):
        read_budgets(small.checkout.budgets)


def test_exactly_the_budget_passes() -> None:
    assert passed_entry_limits(_BUDGETS, ["small", "small"]) == []
    assert passed_blob_limits(_BUDGETS, [_MEASURED] * 5) == []


def test_too_many_entries() -> None:
    assert passed_entry_limits(_BUDGETS, ["small"] * 4) == [
        "family small: 4 entries, the budget is 2",
        "bundle: 4 entries, the budget is 3",
    ]


def test_a_family_without_budget() -> None:
    assert passed_entry_limits(_BUDGETS, ["large"]) == [
        "family large has no budget: add [family.large]"
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"registers": 65}, "65 registers, the budget is 64: k(x) for sm_90a"),
        ({"spill_bytes": 8}, "8 bytes spilled, the budget is 0: k(x) for sm_90a"),
        (
            {"static_shared_bytes": 101},
            "1025 bytes of shared memory, the budget is 1024: k(x) for sm_90a",
        ),
        ({"warnings": ("wgmma serialised",)}, "ptxas says wgmma serialised: k(x) for sm_90a"),
    ],
)
def test_what_a_cubin_passes(changes: dict[str, object], problem: str) -> None:
    cubin = dataclasses.replace(_CUBIN, **changes)  # type: ignore[arg-type]  # fields by name
    measured = dataclasses.replace(_MEASURED, cubins=(_CUBIN, cubin))
    assert passed_blob_limits(_BUDGETS, [measured]) == [problem]


def test_only_a_second_text_may_spill() -> None:
    """The common text is launched only where the target's own cannot be."""
    common = dataclasses.replace(_CUBIN, spill_bytes=8)
    own = dataclasses.replace(_CUBIN, abi=LaunchAbi("k", (), 128))
    assert (
        passed_blob_limits(_BUDGETS, [dataclasses.replace(_MEASURED, cubins=(own, common))]) == []
    )
    spilling = dataclasses.replace(own, spill_bytes=8)
    measured = dataclasses.replace(_MEASURED, cubins=(spilling, _CUBIN))
    (problem,) = passed_blob_limits(_BUDGETS, [measured])
    assert problem.startswith("8 bytes spilled")


def test_too_much_time_from_nothing() -> None:
    assert passed_blob_limits(_BUDGETS, [_MEASURED] * 6) == [
        "bundle: 12 core-seconds from nothing, the budget is 10"
    ]
