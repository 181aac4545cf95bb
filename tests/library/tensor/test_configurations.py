"""The configurations that launches choose are the ones that the bundle is told to carry."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tilewright.abi.dtypes import DType, bfloat16, float16, float32
from tilewright.abi.signature import Pointer
from tilewright.kernels.attention import attention_blocks
from tilewright.kernels.attention_backward import key_gradients, query_gradients
from tilewright.kernels.attention_backward_unordered import all_gradients, round_sums
from tilewright.tensor.configurations import (
    ALL_GRADIENTS,
    ATTENTION_16,
    ATTENTION_16_GENERAL,
    ATTENTION_32,
    ATTENTION_BLOCKS,
    ATTENTION_BLOCKS_BIASED,
    ATTENTION_FEATURED,
    ATTENTION_FEATURED_32,
    ATTENTION_FEATURED_BLOCKS,
    BIAS_GRADIENTS,
    CONVOLUTION_16,
    CONVOLUTION_32,
    CONVOLUTION_GENERAL,
    CROSS_ENTROPY,
    CROSS_ENTROPY_HELD,
    CROSS_ENTROPY_LONG,
    CROSS_ENTROPY_WALKED,
    CROSS_ENTROPY_WALKED_16,
    ELEMENTWISE_TALL,
    ELEMENTWISE_WIDE,
    GELU_WIDE_16,
    KEY_GRADIENTS,
    KEY_GRADIENTS_BLOCKS,
    KEY_GRADIENTS_FEATURED,
    KEY_GRADIENTS_FEATURED_BLOCKS,
    LONG_ROWS,
    LONG_ROWS_UNALIGNED,
    LOSSES,
    MATMUL_FAST,
    MATMUL_GENERAL,
    NORM_BACKWARD,
    NORM_BACKWARD_WALKED,
    PARAMETERS_BACKWARD,
    PARTIALS,
    QUERY_GRADIENTS,
    QUERY_GRADIENTS_BLOCKS,
    QUERY_GRADIENTS_FEATURED,
    QUERY_GRADIENTS_FEATURED_BLOCKS,
    ROW_PRODUCTS,
    ROWS,
    ROWS_LOOPED,
    ROWS_LOOPED_64,
    SOFTMAX_BACKWARD,
    SOFTMAX_BACKWARD_WALKED,
    SOFTMAX_BACKWARD_WALKED_64,
    TARGETS,
    TILES,
    Configuration,
    DotConfiguration,
    ResidentConfiguration,
    all_gradients_configuration,
    attention_backward_configurations,
    attention_configuration,
    convolution_configuration,
    elementwise_configuration,
    featured_attention_configuration,
    featured_gradients_configurations,
    matmul_configuration,
    row_products_configuration,
    rows_configuration,
)
from tilewright.tensor.matmul import RESULTS
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
SIGNATURES = ROOT / "prebuilt" / "signatures"
ELEMENTWISE = (ELEMENTWISE_WIDE, ELEMENTWISE_TALL)
EXPECTED: dict[str, dict[str, tuple[Configuration, ...]]] = {
    "cross_entropy": {
        "place_targets": (TARGETS,),
        "sum_losses": (LOSSES,),
        "entropy": (CROSS_ENTROPY,),
        "entropy_row": (*CROSS_ENTROPY_LONG, CROSS_ENTROPY_HELD),
        "entropy_walked": (CROSS_ENTROPY_WALKED, CROSS_ENTROPY_WALKED_16),
    },
    "elementwise": {
        "add": ELEMENTWISE,
        "mul": ELEMENTWISE,
        "exp": ELEMENTWISE,
        "gelu": (*ELEMENTWISE, GELU_WIDE_16),
    },
    "elementwise_backward": {"gelu_backward": (ELEMENTWISE_WIDE,)},
    "softmax": {
        "softmax": TILES,
        "softmax_row": LONG_ROWS,
        "softmax_looped": (ROWS_LOOPED, ROWS_LOOPED_64),
    },
    "softmax_backward": {
        "softmax_backward": SOFTMAX_BACKWARD,
        "softmax_backward_walked": (SOFTMAX_BACKWARD_WALKED, SOFTMAX_BACKWARD_WALKED_64),
    },
    "norm": {
        "layer_norm": TILES,
        "layer_norm_row": LONG_ROWS,
        "layer_norm_rows": LONG_ROWS_UNALIGNED,
        "layer_norm_looped": (ROWS_LOOPED, ROWS_LOOPED_64),
    },
    "norm_backward": {
        "norm_backward": NORM_BACKWARD,
        "norm_backward_walked": (NORM_BACKWARD_WALKED,),
        "parameters_backward": (PARAMETERS_BACKWARD,),
        "sum_partials": (PARTIALS,),
    },
    "reduce": {
        "sum_rows": ROWS,
        "sum_rows_looped": (ROWS_LOOPED,),
        "max_rows": ROWS,
        "max_rows_looped": (ROWS_LOOPED,),
    },
}


@pytest.mark.parametrize(
    "table",
    [ROWS, LONG_ROWS, LONG_ROWS_UNALIGNED, NORM_BACKWARD, SOFTMAX_BACKWARD, CROSS_ENTROPY_LONG],
)
def test_the_first_that_holds_a_row_is_the_narrowest(table: tuple[Configuration, ...]) -> None:
    widths = [configuration.block_n for configuration in table]
    assert widths == sorted(set(widths))


def declared(family: str) -> dict[str, set[Configuration]]:
    """Read the configurations of each kernel from the family's signature file."""
    with (SIGNATURES / f"{family}.toml").open("rb") as file:
        kernels: list[dict[str, Any]] = tomllib.load(file)["kernel"]
    found: dict[str, set[Configuration]] = {}
    for kernel in kernels:
        found.setdefault(kernel["kernel"].partition(":")[2], set()).update(
            _configuration(config["constexprs"], config["num_warps"]) for config in kernel["config"]
        )
    return found


def _configuration(values: Mapping[str, int], num_warps: int) -> Configuration:
    tiles = (values.get("BLOCK_M", 1), values.get("BLOCK_N") or values["BLOCK"], num_warps)
    if "RESIDENT" in values:
        return ResidentConfiguration(*tiles, values["RESIDENT"])
    return Configuration(*tiles)


@pytest.mark.parametrize("family", EXPECTED)
def test_the_bundle_declares_what_is_chosen_and_nothing_else(family: str) -> None:
    expected = {name: set(table) for name, table in EXPECTED[family].items()}
    assert declared(family) == expected


@pytest.mark.parametrize(
    "table",
    [ROWS, LONG_ROWS, CROSS_ENTROPY_LONG],
    ids=["tiles", "long rows", "losses"],
)
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


@cache
def products(family: str) -> list[DeclaredEntry]:
    """Read the entries of a family that multiplies tiles."""
    return read_signature_file(Checkout(ROOT).signatures / f"{family}.toml", root=ROOT)


def tiles_of(entry: DeclaredEntry) -> DotConfiguration:
    values: Mapping[str, Any] = entry.signature.constexprs
    depth = values.get("BLOCK_K", values.get("BLOCK_D", 0))
    signature = entry.signature
    return DotConfiguration(
        values["BLOCK_M"], values["BLOCK_N"], depth, signature.num_warps, signature.num_stages
    )


def dtypes_of(entry: DeclaredEntry, *names: str) -> tuple[DType, ...]:
    parameters = dict(entry.signature.parameters)
    return tuple(parameter.dtype for n in names if isinstance(parameter := parameters[n], Pointer))


def precision_of(entry: DeclaredEntry) -> str:
    return str(entry.signature.constexprs.get("PRECISION", "ieee"))


def test_products_are_declared_in_every_form_that_is_chosen() -> None:
    declared_forms: dict[Any, set[tuple[Any, DotConfiguration]]] = defaultdict(set)
    for entry in products("matmul"):
        if entry.kernel.name not in ("matmul", "matmul_plain"):
            continue
        values, signature = entry.signature.constexprs, entry.signature
        key = (*dtypes_of(entry, "a", "c"), precision_of(entry), signature.specialization)
        declared_forms[key].add(((values["A_UNIT"], values["B_UNIT"]), tiles_of(entry)))
    units = [("k", "n"), ("k", "k"), ("m", "n"), ("m", "k")]
    expected: dict[Any, set[tuple[Any, DotConfiguration]]] = {}
    for (dtype, precision), table in MATMUL_FAST.items():
        for result in RESULTS[dtype]:
            general = MATMUL_GENERAL[dtype, precision]
            key = (dtype, result, precision)
            expected[*key, "fast"] = {(unit, tiles) for unit in units for tiles in table}
            expected[*key, "general"] = {(unit, general) for unit in (*units, ("any", "any"))}
    assert declared_forms == expected


def test_every_tile_of_a_product_is_the_best_for_some_shape() -> None:
    extents = (1, 16, 64, 128, 300, 1024, 4096)
    for (dtype, precision), table in MATMUL_FAST.items():
        chosen = {
            matmul_configuration(m, n, 1, dtype, precision=precision, fast=True)
            for m in extents
            for n in extents
        }
        assert chosen == set(table), (dtype, precision)


def test_attention_is_declared_as_it_is_chosen() -> None:
    declared_tiles: dict[Any, set[DotConfiguration]] = defaultdict(set)
    for entry in products("attention"):
        (dtype,) = dtypes_of(entry, "q")
        is_own = entry.kernel is attention_blocks
        form = "blocks" if is_own else entry.signature.specialization
        precision = "ieee" if is_own else precision_of(entry)
        declared_tiles[dtype, precision, form].add(tiles_of(entry))
    blocks = {*ATTENTION_BLOCKS.values(), *ATTENTION_BLOCKS_BIASED.values()}
    assert declared_tiles == {
        **{(t, "ieee", "fast"): set(ATTENTION_16.values()) for t in (float16, bfloat16)},
        **{(t, "ieee", "blocks"): blocks for t in (float16, bfloat16)},
        **{(t, "ieee", "general"): set(ATTENTION_16_GENERAL.values()) for t in (float16, bfloat16)},
        **{
            (float32, precision, form): set(ATTENTION_32.values())
            for precision in ("tf32x3", "tf32")
            for form in ("fast", "general")
        },
    }
    for fast in (True, False):
        assert attention_configuration(33, float16, fast=fast).block_k == 64
        assert attention_configuration(128, float32, fast=fast).block_k == 128


def test_gradients_of_attention_are_declared_as_they_are_chosen() -> None:
    declared_tiles: dict[Any, set[DotConfiguration]] = defaultdict(set)
    for entry in products("attention_backward"):
        (dtype,) = dtypes_of(entry, "dy")
        values = entry.signature.constexprs
        if entry.kernel in (key_gradients, query_gradients):
            declared_tiles[dtype, entry.kernel.name].add(tiles_of(entry))
        else:
            tiles = (values["BLOCK_M"], values["BLOCK_D"], entry.signature.num_warps)
            assert tiles in [(x.block_m, x.block_n, x.num_warps) for x in ROW_PRODUCTS]
    assert declared_tiles == {
        (dtype, name): set(table)
        for dtype in (float16, bfloat16)
        for name, table in (
            ("key_gradients", (*KEY_GRADIENTS, *KEY_GRADIENTS_BLOCKS)),
            ("query_gradients", (*QUERY_GRADIENTS, *QUERY_GRADIENTS_BLOCKS)),
        )
    }
    for by_blocks in (True, False):
        for dim, padded in ((1, 32), (33, 64), (128, 128)):
            pair = attention_backward_configurations(dim, by_blocks=by_blocks)
            assert [tiles.block_k for tiles in pair] == [padded, padded]


def test_attention_with_features_is_declared_as_it_is_chosen() -> None:
    declared_tiles: dict[Any, set[DotConfiguration]] = defaultdict(set)
    for entry in (*products("attention_features"), *products("attention_features_backward")):
        (dtype,) = dtypes_of(entry, "q")
        assert entry.signature.specialization == "fast"
        precision = entry.signature.constexprs.get("PRECISION", "")
        declared_tiles[dtype, entry.kernel.name, precision].add(tiles_of(entry))
    tables = {
        ("featured_attention", "ieee"): (*ATTENTION_FEATURED, *ATTENTION_FEATURED_BLOCKS),
        ("featured_key_gradients", ""): (*KEY_GRADIENTS_FEATURED, *KEY_GRADIENTS_FEATURED_BLOCKS),
        ("featured_query_gradients", ""): (
            *QUERY_GRADIENTS_FEATURED,
            *QUERY_GRADIENTS_FEATURED_BLOCKS,
        ),
        ("bias_gradients", ""): BIAS_GRADIENTS,
    }
    expected: dict[Any, set[DotConfiguration]] = {
        (dtype, *key): set(table) for dtype in (float16, bfloat16) for key, table in tables.items()
    }
    expected[float32, "featured_attention", "tf32x3"] = set(ATTENTION_FEATURED_32)
    assert declared_tiles == expected
    for by_blocks in (True, False):
        for dim, padded in ((1, 64), (65, 128), (129, 256)):
            chosen = featured_gradients_configurations(dim, by_blocks=by_blocks)
            assert [tiles.block_k for tiles in chosen] == [padded] * 3
            forward = featured_attention_configuration(dim, float16, by_blocks=by_blocks)
            assert forward.block_k == padded
    assert featured_attention_configuration(64, float32, by_blocks=True) == ATTENTION_FEATURED_32[0]


def test_unordered_gradients_of_attention_are_declared_as_they_are_chosen() -> None:
    declared_tiles: dict[Any, set[DotConfiguration]] = defaultdict(set)
    for entry in products("attention_backward_unordered"):
        values, num_warps = entry.signature.constexprs, entry.signature.num_warps
        if entry.kernel is all_gradients:
            (dtype,) = dtypes_of(entry, "dy")
            declared_tiles[dtype, values["ADDS"]].add(tiles_of(entry))
            continue
        rows = row_products_configuration(128)
        shapes = {(rows.block_m, rows.block_n, rows.num_warps)}
        if entry.kernel is round_sums:
            shapes = {(tiles.block_m, tiles.block_k, tiles.num_warps) for tiles in ALL_GRADIENTS}
        assert (values["BLOCK_M"], values["BLOCK_D"], num_warps) in shapes
    assert declared_tiles == {
        (dtype, adds): set(ALL_GRADIENTS) for dtype in (float16, bfloat16) for adds in (True, False)
    }
    for dim, padded in ((1, 64), (64, 64), (65, 128), (128, 128)):
        assert all_gradients_configuration(dim).block_k == padded


def test_convolutions_are_declared_as_they_are_chosen() -> None:
    declared_tiles: dict[Any, set[DotConfiguration]] = defaultdict(set)
    for entry in products("convolution"):
        form = (entry.signature.specialization, entry.signature.constexprs["CHANNELS_LAST"])
        declared_tiles[*dtypes_of(entry, "x"), precision_of(entry), *form].add(tiles_of(entry))
    tables = {(t, "ieee"): CONVOLUTION_16 for t in (float16, bfloat16)}
    tables |= {(float32, precision): CONVOLUTION_32 for precision in ("ieee", "tf32")}
    expected = {}
    for key, table in tables.items():
        expected[*key, "fast", True] = set(table)
        expected[*key, "general", True] = expected[*key, "general", False] = {CONVOLUTION_GENERAL}
    assert declared_tiles == expected
    assert convolution_configuration(64, float16, fast=True).block_n == 64
    assert convolution_configuration(65, float16, fast=True).block_n == 128
