"""Which configuration of a kernel serves which shape; the bundle carries exactly these.

Those of rows were chosen by timing on an H200: 16 elements a lane for rows of up to 1,024 columns,
32 for wider ones, the same for softmax, layer norm and reductions, and 64 for the widest that one
program holds; 8 for elementwise tiles.
`prebuilt/signatures` declares the same configurations, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    uint8,
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Tile extents and warps of one program; `block_m` rows of up to `block_n` columns."""

    block_m: int
    block_n: int
    num_warps: int


# One program holds whole rows: the first entry with block_n >= columns serves.
ROWS: tuple[Configuration, ...] = (
    Configuration(16, 128, 4),
    Configuration(4, 512, 4),
    Configuration(2, 1024, 4),
    Configuration(1, 2048, 2),
    Configuration(1, 4096, 4),
    Configuration(1, 8192, 8),
    Configuration(1, 16384, 16),
)

# Softmax and norms hold narrow rows in tiles, of two warps so that many programs fit, or one long
# row in parts.
TILES: tuple[Configuration, ...] = (
    Configuration(8, 128, 2),
    Configuration(4, 256, 2),
    Configuration(2, 512, 2),
    Configuration(1, 1024, 2),
)
LONG_ROWS: tuple[Configuration, ...] = (*ROWS[3:], Configuration(1, 32768, 16))

# Where a row may begin unaligned, layer norm keeps weight and bias in registers: of wider rows they
# would not fit.
LONG_ROWS_UNALIGNED = LONG_ROWS[:3]

# Wider rows are walked in chunks by one program.
ROWS_LOOPED = Configuration(1, 4096, 16)
# Rows of f64, of any width.
ROWS_LOOPED_64 = Configuration(1, 1024, 8)


@dataclass(frozen=True, slots=True)
class ResidentConfiguration(Configuration):
    """Of a kernel whose programs walk over all rows: so many fit a multiprocessor at once."""

    resident: int


# Of up to so many columns the general form holds rows of gradients too; wider ones are walked.
NARROW = 1024

# Gradients of norms keep sums for each column, beside x and dy: of wider rows they would not fit.
NORM_BACKWARD: tuple[ResidentConfiguration, ...] = (
    ResidentConfiguration(8, 128, 4, 6),
    ResidentConfiguration(8, 256, 4, 4),
    ResidentConfiguration(4, 512, 4, 4),
    ResidentConfiguration(1, 1024, 2, 8),
    ResidentConfiguration(1, 2048, 4, 4),
    ResidentConfiguration(1, 4096, 8, 2),
    ResidentConfiguration(1, 8192, 16, 1),
)
NORM_BACKWARD_WALKED = Configuration(1, 1024, 4)
PARAMETERS_BACKWARD = Configuration(16, 64, 4)
PARTIALS = Configuration(256, 16, 8)

SOFTMAX_BACKWARD: tuple[Configuration, ...] = (
    Configuration(16, 128, 4),
    Configuration(8, 256, 4),
    Configuration(4, 512, 4),
    Configuration(2, 1024, 4),
    Configuration(1, 4096, 8),
    Configuration(1, 8192, 8),
    Configuration(1, 16384, 16),
)
SOFTMAX_BACKWARD_WALKED = Configuration(1, 4096, 16)
SOFTMAX_BACKWARD_WALKED_64 = Configuration(1, 1024, 8)

# Cross entropy: narrow rows in tiles, one long row in parts, wider ones in chunks; targets and
# losses that a program takes at once.
CROSS_ENTROPY = Configuration(8, 128, 2)
CROSS_ENTROPY_LONG: tuple[Configuration, ...] = (
    Configuration(1, 2048, 2),
    Configuration(1, 8192, 8),
    Configuration(1, 32768, 16),
)
# Wider rows of 2-byte elements, of any width.
CROSS_ENTROPY_HELD = Configuration(1, 65536, 16)
CROSS_ENTROPY_WALKED, CROSS_ENTROPY_WALKED_16 = (
    Configuration(1, 2048, 16),
    Configuration(1, 4096, 16),
)
TARGETS, LOSSES = Configuration(1, 1024, 4), Configuration(1, 2048, 8)

# Elementwise: wide tiles for long inner axes, tall ones for short.
ELEMENTWISE_WIDE = Configuration(1, 1024, 4)
ELEMENTWISE_TALL = Configuration(32, 32, 4)
# Of 2-byte elements gelu is bound by instructions: what a program does once weighs less here.
GELU_WIDE_16 = Configuration(1, 2048, 4)


# Copies: wide tiles for long inner axes, tall ones for short.
COPY_WIDE, COPY_TALL = Configuration(1, 1024, 4), Configuration(16, 32, 4)
# Tiles that cross from one contiguous axis to another, by bytes of an element.
TRANSPOSE: dict[int, Configuration] = {
    1: Configuration(64, 64, 4),
    2: Configuration(64, 64, 4),
    4: Configuration(64, 64, 4),
    8: Configuration(32, 32, 4),
}


_AnyConfiguration = TypeVar("_AnyConfiguration", bound=Configuration)


def rows_configuration(
    columns: int, table: tuple[_AnyConfiguration, ...]
) -> _AnyConfiguration | None:
    """Return the first of a table that holds rows of that width, None when none does."""
    for configuration in table:
        if columns <= configuration.block_n:
            return configuration
    return None


def elementwise_configuration(columns: int) -> Configuration:
    """Return the configuration for an inner axis of that extent."""
    return ELEMENTWISE_WIDE if columns > ELEMENTWISE_TALL.block_n * 4 else ELEMENTWISE_TALL


# Reductions over any axes: `block_m` results by `block_n` reduced elements.
REDUCE_INNER: tuple[Configuration, ...] = (Configuration(8, 128, 4), Configuration(1, 4096, 8))
REDUCE_OUTER = Configuration(128, 8, 4)
# The most programs that share the reduced axes of one result.
MOST_PARTS = 512
# Scans, likewise; long rows of sums that the fast form takes have tiles of their own.
SCAN_INNER = Configuration(4, 256, 4)
SCAN_LONG = Configuration(1, 2048, 4)
SCAN_OUTER = Configuration(64, 32, 4)


# Sorts: rows and keys of a tile; runs of the second are merged by tiles of the same width.
SORT_NARROW = Configuration(4, 128, 4)
SORT_WIDE = Configuration(1, 512, 4)
# Look-ups of single elements, and of rows; additions to rows in a fixed order and in any.
GATHER = Configuration(4, 128, 4)
TAKE = Configuration(4, 256, 4)
# Elements of a tile that sums runs of equal destinations, and tiles of a program that joins them.
RUN_ELEMENTS = 512
SPAN_TILES = 128
# Elements of a tile that counts; bins that shared memory counts, with more warps.
COUNT_FEW, COUNT_MANY = Configuration(1, 2048, 8), Configuration(1, 1024, 4)
FEW_BINS = 1024
# Elements of a program that only moves them.
MOVED_ELEMENTS = 1024
# Philox counters of a program that fills an array.
RANDOM_COUNTERS = 256


def reduce_configuration(columns: int, *, is_inner: bool, fast: bool) -> Configuration:
    """Return the configuration for so many elements along the last reduced axis."""
    if not is_inner:
        return REDUCE_OUTER
    narrow, wide = REDUCE_INNER
    return wide if fast and columns > 16 * narrow.block_n else narrow


@dataclass(frozen=True, slots=True)
class DotConfiguration:
    """Tile extents of a product, along M, N and K, with the warps and stages of its loop."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int


# Products of 16-bit floats, and of 8-bit floats, which are multiplied as such.
MATMUL_16 = (
    DotConfiguration(128, 128, 32, 4, 4),
    DotConfiguration(64, 64, 64, 4, 4),
    DotConfiguration(16, 128, 64, 4, 4),
)
MATMUL_8_FLOAT = (DotConfiguration(128, 128, 64, 8, 3),)
MATMUL_FAST: dict[tuple[DType, str], tuple[DotConfiguration, ...]] = {
    (float16, "ieee"): MATMUL_16,
    (bfloat16, "ieee"): MATMUL_16,
    (float8e4nv, "ieee"): MATMUL_8_FLOAT,
    (float8e5, "ieee"): MATMUL_8_FLOAT,
    (float32, "ieee"): (
        DotConfiguration(128, 128, 32, 8, 3),
        DotConfiguration(64, 64, 16, 4, 4),
        DotConfiguration(32, 64, 16, 4, 3),
    ),
    (float32, "tf32"): (DotConfiguration(128, 128, 32, 8, 3), DotConfiguration(32, 64, 32, 4, 3)),
    (float32, "tf32x3"): (DotConfiguration(64, 128, 32, 8, 3),),
    (float64, "ieee"): (DotConfiguration(64, 64, 16, 4, 3),),
    (int8, "ieee"): (DotConfiguration(128, 128, 64, 4, 4), DotConfiguration(32, 64, 64, 4, 4)),
    (uint8, "ieee"): (DotConfiguration(128, 128, 64, 4, 4),),
}

# What is not aligned is read element by element, by one tile, as large as a pointer of each allows.
_UNALIGNED = DotConfiguration(128, 128, 32, 8, 2)
_UNALIGNED_32 = DotConfiguration(128, 128, 16, 8, 2)
MATMUL_GENERAL: dict[tuple[DType, str], DotConfiguration] = {
    (float16, "ieee"): _UNALIGNED,
    (bfloat16, "ieee"): _UNALIGNED,
    (float8e4nv, "ieee"): _UNALIGNED,
    (float8e5, "ieee"): _UNALIGNED,
    (float32, "ieee"): _UNALIGNED_32,
    (float32, "tf32"): _UNALIGNED_32,
    (float32, "tf32x3"): _UNALIGNED_32,
    (float64, "ieee"): DotConfiguration(64, 64, 16, 4, 2),
    (int8, "ieee"): _UNALIGNED,
    (uint8, "ieee"): _UNALIGNED,
}

# Programs that fill a GPU of today; tiles beyond them wait for the next wave.
_WAVE = 128
# Extent at which a tile's loads cost as much as its products: small tiles read more for each.
_BALANCE = 64


def matmul_configuration(
    m: int, n: int, batch: int, dtype: DType, *, precision: str, fast: bool
) -> DotConfiguration:
    """Return the configuration for a product of `[m, n]` results, `fast` or of general form.

    The one whose waves of tiles cost least, a tile costing its products and its loads.
    """
    if not fast:
        return MATMUL_GENERAL[dtype, precision]
    return min(MATMUL_FAST[dtype, precision], key=lambda tiles: _cost(m, n, batch, tiles))


# Products with scales on the device, of blocks of 128 along K; what has more than 128 columns is
# computed in halves. The others than `SCALED` are for GPUs that copy blocks by themselves.
SCALED = DotConfiguration(64, 128, 128, 8, 6)
SCALED_BLOCKS = (
    DotConfiguration(128, 256, 128, 8, 4),
    SCALED,
    DotConfiguration(16, 64, 128, 4, 4),
)


def scaled_configuration(m: int, n: int, *, by_blocks: bool) -> DotConfiguration:
    """Return the configuration for a product of `[m, n]` results with scales on the device."""
    if not by_blocks:
        return SCALED
    return min(SCALED_BLOCKS, key=lambda tiles: _cost(m, n, 1, tiles))


def _cost(m: int, n: int, batch: int, tiles: DotConfiguration) -> float:
    waves = -(-(-(-m // tiles.block_m) * -(-n // tiles.block_n) * batch) // _WAVE)
    return waves * (tiles.block_m * tiles.block_n + _BALANCE * (tiles.block_m + tiles.block_n))


# Attention by the extent to which heads are padded: queries, keys and elements of a head.
ATTENTION_16: dict[int, DotConfiguration] = {
    16: DotConfiguration(64, 64, 16, 4, 3),
    32: DotConfiguration(64, 64, 32, 4, 3),
    64: DotConfiguration(64, 64, 64, 4, 2),
    128: DotConfiguration(128, 64, 128, 8, 2),
    256: DotConfiguration(64, 32, 256, 8, 2),
}
ATTENTION_16_GENERAL: dict[int, DotConfiguration] = {
    16: DotConfiguration(64, 32, 16, 4, 2),
    32: DotConfiguration(64, 32, 32, 4, 2),
    64: DotConfiguration(64, 32, 64, 4, 2),
    128: DotConfiguration(64, 32, 128, 8, 2),
    256: DotConfiguration(32, 16, 256, 8, 2),
}
# The parts of f32 take twice the registers, which wider heads do not leave.
ATTENTION_32: dict[int, DotConfiguration] = {
    16: DotConfiguration(64, 32, 16, 4, 2),
    32: DotConfiguration(64, 32, 32, 4, 2),
    64: DotConfiguration(64, 32, 64, 8, 2),
    128: DotConfiguration(32, 16, 128, 8, 2),
}


def attention_configuration(dim: int, dtype: DType, *, fast: bool) -> DotConfiguration:
    """Return the configuration for heads of that extent, which the table must reach."""
    table = ATTENTION_32 if dtype == float32 else ATTENTION_16 if fast else ATTENTION_16_GENERAL
    return next(table[padded] for padded in table if dim <= padded)


# By blocks, where the GPU copies them by itself: two warpgroups of 64 queries each.
ATTENTION_BLOCKS: dict[int, DotConfiguration] = {
    16: DotConfiguration(128, 128, 16, 8, 2),
    32: DotConfiguration(128, 128, 32, 8, 2),
    64: DotConfiguration(128, 128, 64, 8, 2),
    128: DotConfiguration(128, 128, 128, 8, 2),
    256: DotConfiguration(128, 64, 256, 8, 2),
}
# With a bias, blocks of which take room as well.
ATTENTION_BLOCKS_BIASED: dict[int, DotConfiguration] = {
    **{dim: tiles for dim, tiles in ATTENTION_BLOCKS.items() if dim <= 64},
    128: DotConfiguration(128, 64, 128, 8, 2),
}


def attention_blocks_configuration(dim: int, *, has_bias: bool) -> DotConfiguration | None:
    """Return the configuration by blocks for heads of that extent; None if there is none."""
    table = ATTENTION_BLOCKS_BIASED if has_bias else ATTENTION_BLOCKS
    return next((tiles for padded, tiles in table.items() if dim <= padded), None)


# With all that may happen to scores, which takes registers: where the GPU copies blocks by itself,
# and elsewhere, the widest everywhere; f32 in its parts.
ATTENTION_FEATURED_BLOCKS = (
    DotConfiguration(128, 64, 64, 8, 2),
    DotConfiguration(128, 64, 128, 8, 2),
)
ATTENTION_FEATURED = (
    DotConfiguration(64, 32, 64, 4, 2),
    DotConfiguration(64, 32, 128, 8, 2),
    DotConfiguration(64, 32, 256, 8, 2),
)
ATTENTION_FEATURED_32 = (
    DotConfiguration(64, 32, 64, 8, 2),
    DotConfiguration(32, 16, 128, 8, 2),
)


def featured_attention_configuration(
    dim: int, dtype: DType, *, by_blocks: bool
) -> DotConfiguration:
    """Return the configuration with features for heads of that extent, which a table must reach."""
    table: tuple[DotConfiguration, ...] = ATTENTION_FEATURED
    if dtype == float32:
        table = ATTENTION_FEATURED_32
    elif by_blocks:
        table = (*ATTENTION_FEATURED_BLOCKS, table[-1])
    return next(tiles for tiles in table if dim <= tiles.block_k)


# Gradients of attention: queries and keys of a step. Of keys and values a program holds a block of
# keys, of queries one of queries; first where the GPU copies blocks by itself, as two warpgroups.
KEY_GRADIENTS_BLOCKS = (
    DotConfiguration(64, 128, 32, 8, 2),
    DotConfiguration(64, 128, 64, 8, 2),
    DotConfiguration(64, 128, 128, 8, 2),
)
QUERY_GRADIENTS_BLOCKS = (
    DotConfiguration(128, 64, 32, 8, 2),
    DotConfiguration(128, 64, 64, 8, 2),
    DotConfiguration(128, 64, 128, 8, 2),
)
KEY_GRADIENTS = (
    DotConfiguration(32, 64, 32, 4, 2),
    DotConfiguration(32, 64, 64, 4, 2),
    DotConfiguration(32, 32, 128, 8, 2),
)
QUERY_GRADIENTS = (
    DotConfiguration(64, 32, 32, 4, 2),
    DotConfiguration(64, 32, 64, 4, 2),
    DotConfiguration(64, 32, 128, 8, 2),
)
ROW_PRODUCTS = (Configuration(16, 128, 4), Configuration(16, 256, 8))


def row_products_configuration(dim: int) -> Configuration:
    """Return that of the products of rows, for heads of up to 256 elements."""
    return next(rows for rows in ROW_PRODUCTS if dim <= rows.block_n)


# All gradients at once, in any order of sums: queries of a step, keys of a program.
ALL_GRADIENTS = (
    DotConfiguration(64, 128, 64, 8, 2),
    DotConfiguration(64, 128, 128, 8, 2),
)


def all_gradients_configuration(dim: int) -> DotConfiguration:
    """Return the configuration for heads of up to 128 elements."""
    return next(tiles for tiles in ALL_GRADIENTS if dim <= tiles.block_k)


def attention_backward_configurations(
    dim: int, *, by_blocks: bool
) -> tuple[DotConfiguration, DotConfiguration]:
    """Return those of the gradients of keys and of queries, for heads of up to 128 elements."""
    keys = KEY_GRADIENTS_BLOCKS if by_blocks else KEY_GRADIENTS
    queries = QUERY_GRADIENTS_BLOCKS if by_blocks else QUERY_GRADIENTS
    place = next(place for place, tiles in enumerate(keys) if dim <= tiles.block_k)
    return keys[place], queries[place]


KEY_GRADIENTS_FEATURED_BLOCKS = (
    DotConfiguration(32, 128, 64, 8, 2),
    DotConfiguration(32, 128, 128, 8, 2),
)
QUERY_GRADIENTS_FEATURED_BLOCKS = (
    DotConfiguration(128, 32, 64, 8, 2),
    DotConfiguration(128, 32, 128, 8, 2),
)
KEY_GRADIENTS_FEATURED = (
    DotConfiguration(32, 64, 64, 8, 2),
    DotConfiguration(32, 32, 128, 8, 2),
    DotConfiguration(16, 16, 256, 8, 2),
)
QUERY_GRADIENTS_FEATURED = (
    DotConfiguration(64, 32, 64, 4, 2),
    DotConfiguration(64, 32, 128, 8, 2),
    DotConfiguration(32, 16, 256, 8, 2),
)
BIAS_GRADIENTS = (
    DotConfiguration(64, 32, 64, 8, 2),
    DotConfiguration(64, 32, 128, 8, 2),
    DotConfiguration(32, 32, 256, 8, 2),
)


def featured_gradients_configurations(
    dim: int, *, by_blocks: bool
) -> tuple[DotConfiguration, DotConfiguration, DotConfiguration]:
    """Return those of the gradients of keys, of queries and of a bias, of up to 256 elements."""
    keys, queries = KEY_GRADIENTS_FEATURED, QUERY_GRADIENTS_FEATURED
    if by_blocks:
        keys = (*KEY_GRADIENTS_FEATURED_BLOCKS, keys[-1])
        queries = (*QUERY_GRADIENTS_FEATURED_BLOCKS, queries[-1])
    place = next(place for place, tiles in enumerate(keys) if dim <= tiles.block_k)
    return keys[place], queries[place], BIAS_GRADIENTS[place]


# Convolutions: pixels, filters, channels of one step.
CONVOLUTION_16: tuple[DotConfiguration, ...] = (
    DotConfiguration(128, 128, 32, 4, 4),
    DotConfiguration(128, 64, 32, 4, 4),
)
CONVOLUTION_32: tuple[DotConfiguration, ...] = (DotConfiguration(128, 64, 32, 8, 3),)
CONVOLUTION_GENERAL = DotConfiguration(128, 64, 32, 8, 2)


def convolution_configuration(filters: int, dtype: DType, *, fast: bool) -> DotConfiguration:
    """Return the configuration for so many filters of a group, `fast` or of general form."""
    if not fast:
        return CONVOLUTION_GENERAL
    table = CONVOLUTION_32 if dtype == float32 else CONVOLUTION_16
    return table[-1] if filters <= table[-1].block_n else table[0]
