"""The configurations that launches choose are the ones that the bundle is told to carry."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tilewright.tensor.configurations import (
    ELEMENTWISE_TALL,
    ELEMENTWISE_WIDE,
    LONG_ROWS,
    LONG_ROWS_UNALIGNED,
    ROWS,
    ROWS_LOOPED,
    TILES,
    Configuration,
    elementwise_configuration,
    rows_configuration,
)

SIGNATURES = Path(__file__).parents[3] / "prebuilt" / "signatures"
ELEMENTWISE = (ELEMENTWISE_WIDE, ELEMENTWISE_TALL)
EXPECTED: dict[str, dict[str, tuple[Configuration, ...]]] = {
    "elementwise": {
        "add": ELEMENTWISE,
        "mul": ELEMENTWISE,
        "exp": ELEMENTWISE,
        "gelu": ELEMENTWISE,
    },
    "softmax": {"softmax": TILES, "softmax_row": LONG_ROWS, "softmax_looped": (ROWS_LOOPED,)},
    "norm": {
        "layer_norm": TILES,
        "layer_norm_row": LONG_ROWS,
        "layer_norm_rows": LONG_ROWS_UNALIGNED,
        "layer_norm_looped": (ROWS_LOOPED,),
    },
    "reduce": {
        "sum_rows": ROWS,
        "sum_rows_looped": (ROWS_LOOPED,),
        "max_rows": ROWS,
        "max_rows_looped": (ROWS_LOOPED,),
    },
}


def declared(family: str) -> dict[str, set[Configuration]]:
    """Read the configurations of each kernel from the family's signature file."""
    with (SIGNATURES / f"{family}.toml").open("rb") as file:
        kernels: list[dict[str, Any]] = tomllib.load(file)["kernel"]
    found: dict[str, set[Configuration]] = {}
    for kernel in kernels:
        found.setdefault(kernel["kernel"].partition(":")[2], set()).update(
            Configuration(
                config["constexprs"].get("BLOCK_M", 1),
                config["constexprs"]["BLOCK_N"],
                config["num_warps"],
            )
            for config in kernel["config"]
        )
    return found


@pytest.mark.parametrize("family", EXPECTED)
def test_the_bundle_declares_what_is_chosen_and_nothing_else(family: str) -> None:
    expected = {name: set(table) for name, table in EXPECTED[family].items()}
    assert declared(family) == expected


@pytest.mark.parametrize("table", [ROWS, LONG_ROWS], ids=["tiles", "long rows"])
def test_a_tile_holds_the_rows_it_is_chosen_for(table: tuple[Configuration, ...]) -> None:
    widest = table[-1].block_n
    for columns in (0, 1, 127, 128, 129, 4097, widest):
        chosen = rows_configuration(columns, table)
        assert chosen is not None
        assert chosen.block_n >= columns
    assert rows_configuration(widest + 1, table) is None


def test_short_inner_axes_get_tall_tiles() -> None:
    assert elementwise_configuration(3) == ELEMENTWISE_TALL
    assert elementwise_configuration(100_000) == ELEMENTWISE_WIDE
