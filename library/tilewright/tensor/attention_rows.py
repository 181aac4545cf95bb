"""What the gradients of attention need of every row first: its sum of `y * dy`."""

from __future__ import annotations

from math import prod

from tilewright.kernels.attention_backward import row_products
from tilewright.tensor.configurations import Configuration, row_products_configuration
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.head_arrays import head_count, walk_of
from tilewright.tensor.launches import PlannedLaunch, Pointer, check_programs


def row_products_launch(
    y: Geometry, dy: Geometry, *, operands: tuple[int, int, int]
) -> PlannedLaunch:
    """Plan the sums of the rows of two arrays of heads; `operands` are theirs and that of the sums.

    The sums are row-major.
    """
    rows, dim = y.shape[-2:]
    heads, batches = head_count(y), prod(y.shape[:-3])
    tiles = row_products_configuration(dim)
    programs = -(-rows // tiles.block_m) * heads * batches
    check_programs(row_products, programs)
    return PlannedLaunch(
        row_products,
        (programs, 1, 1),
        tuple(Pointer(operand, 0, (), ()) for operand in operands),
        (rows, dim, heads, batches, *walk_of(y), *walk_of(dy)),
        row_options(tiles),
    )


def row_options(tiles: Configuration) -> dict[str, int]:
    """Return the constexprs and options of a launch over rows of heads."""
    return {"BLOCK_M": tiles.block_m, "BLOCK_D": tiles.block_n, "num_warps": tiles.num_warps}
