"""The launches of attention's gradients by blocks of keys, for GPUs that copy blocks by themselves.

On them those of K and V are computed here whatever is asked for, summed up in a fixed order. That
of Q comes with them where its sums may be in any order, with five products instead of seven; else
`attention_backward` computes it. The operands are those of that module, which the kernels take as
they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilewright.abi.dtypes import float32
from tilewright.kernels.attention_backward_unordered import (
    all_gradients,
    round_sums,
    row_statistics,
)
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import Array, new_array
from tilewright.tensor.attention_launches import head_tile_options
from tilewright.tensor.attention_rows import row_options
from tilewright.tensor.attention_window import Window
from tilewright.tensor.configurations import (
    DotConfiguration,
    all_gradients_configuration,
    row_products_configuration,
)
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.head_arrays import head_count
from tilewright.tensor.head_order import band_of
from tilewright.tensor.launches import PlannedLaunch, Pointer, check_programs
from tilewright.tensor.products import copies_blocks, processors
from tilewright.tensor.strides import Strides

# The operands by number, those of `attention_backward` first.
_Q, _K, _V, _Y, _DY, _LSE, _DQ, _DK, _DV, _OF_ROWS, _SUMS = range(11)
_LINE = 64  # elements of f32 that begin where a tensor map may


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a problem, and the tiles that serve it."""

    batches: int
    heads: int
    shared_heads: int
    queries: int
    keys: int
    dim: int
    tiles: DotConfiguration

    @classmethod
    def of(cls, q: Geometry, k: Geometry) -> Sizes:
        """Return the sizes of these operands."""
        heads, shared_heads = head_count(q), head_count(k)
        queries, dim = q.shape[-2:]
        tiles = all_gradients_configuration(dim)
        return cls(prod(q.shape[:-3]), heads, shared_heads, queries, k.shape[-2], dim, tiles)

    @property
    def padded(self) -> int:
        """Queries of a head, whole blocks of them."""
        return -(-self.queries // self.tiles.block_m) * self.tiles.block_m

    @property
    def deltas(self) -> int:
        """Elements that the row-major sums of `y * dy` take; the statistics lie behind them."""
        return -(-self.batches * self.heads * self.queries // _LINE) * _LINE


def goes_by_key_blocks(device: int | None, window: Window) -> bool:
    """Return whether the gradients of keys and values on a device are computed here.

    Every query sees all keys then, or all up to its own place.
    """
    if window.is_left_limited or (window.is_right_limited and window.right):
        return False
    return copies_blocks(device)


def new_rows(q: Array, sizes: Sizes) -> Array:
    """Return a new array for what is known of rows, the operand behind `dv`."""
    count = sizes.deltas + 2 * sizes.batches * sizes.heads * sizes.padded
    return new_array((count,), float32, q)


def new_sums(q: Array, sizes: Sizes) -> Array:
    """Return zeros, to which the gradient of Q is added: the last operand."""
    count = sizes.batches * sizes.heads * sizes.padded * sizes.tiles.block_k
    return new_array((count,), float32, q, zeroed=True)


def key_block_launches(
    q: Geometry, k: Geometry, walks: Sequence[Strides], *, causal: bool, adds: bool
) -> Iterator[PlannedLaunch]:
    """Plan the gradients of K and V, and with `adds` that of Q.

    `walks` are the strides of each operand along batch, heads and rows, of those that have them.
    """
    sizes = Sizes.of(q, k)
    tiles = sizes.tiles
    count = 2 * sizes.batches * sizes.heads * sizes.padded
    statistics = Pointer(_OF_ROWS, sizes.deltas, (count,), (1,))

    def planned_launch(
        kernel: Kernel, operands: tuple[int | Pointer, ...], numbers: tuple[int, ...],
        programs: int, options: dict[str, int], flags: tuple[int, ...] = (),
    ) -> PlannedLaunch:  # fmt: skip
        check_programs(kernel, programs)
        pointers = tuple(
            Pointer(operand, 0, (), ()) if isinstance(operand, int) else operand
            for operand in operands
        )
        known = (o for o in operands if isinstance(o, int) and o < _OF_ROWS and o != _LSE)
        strides = (stride for operand in known for stride in walks[operand])
        integers = (*numbers, *strides)
        return PlannedLaunch(kernel, (programs, 1, 1), pointers, integers, options, flags=flags)

    rows = row_products_configuration(sizes.dim)
    yield planned_launch(
        row_statistics,
        (_Y, _DY, _LSE, _OF_ROWS, statistics),
        (sizes.queries, sizes.dim, sizes.heads, sizes.batches, sizes.padded),
        sizes.padded // rows.block_m * sizes.heads * sizes.batches,
        row_options(rows),
    )
    group = sizes.heads // sizes.shared_heads
    # Seen from the keys, what the last query sees is what the first key is seen by.
    band = band_of(
        (sizes.keys, sizes.queries),
        heads=sizes.shared_heads * sizes.batches,
        head_bytes=group * sizes.queries * 2 * sizes.dim * q.dtype.size_bytes,
        tile=(tiles.block_n, tiles.block_m),
        processors=processors(q.device),
        causal=causal,
    )
    yield planned_launch(
        all_gradients,
        (_Q, _K, _V, _DY, _DK, _DV, statistics, _SUMS if adds else statistics),
        (
            sizes.queries, sizes.keys, sizes.dim, group, sizes.batches, sizes.shared_heads, band,
            sizes.padded,
        ),
        -(-sizes.keys // tiles.block_n) * sizes.shared_heads * sizes.batches,
        {"ADDS": adds, **head_tile_options(tiles)},
        (int(causal),),
    )  # fmt: skip
    if adds:
        yield planned_launch(
            round_sums,
            (_SUMS, _DQ),
            (sizes.queries, sizes.dim, sizes.heads, sizes.batches, sizes.padded),
            -(-sizes.queries // tiles.block_m) * sizes.heads * sizes.batches,
            {"BLOCK_M": tiles.block_m, "BLOCK_D": tiles.block_k, "num_warps": tiles.num_warps},
        )
