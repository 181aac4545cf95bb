"""The launches of a product by blocks, on a GPU that copies blocks by itself.

A factor whose rows do not begin where such copies can is copied to where they do, if that costs
less than it saves; a sum cut into parts gets memory for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.abi.dtypes import float32
from tilewright.abi.signature import DIVISOR
from tilewright.kernels import matmul as kernels
from tilewright.kernels.copy import copy_rows
from tilewright.kernels.matmul_parts import matmul_parts
from tilewright.language.kernel import Kernel
from tilewright.runtime.launcher import CODES
from tilewright.tensor.arrays import fits_fast
from tilewright.tensor.block_configurations import (
    COPY_TILES,
    BlockChoice,
    BlockProduct,
    block_choice,
    clocks_of_copy,
    clocks_otherwise,
)
from tilewright.tensor.launches import PlannedLaunch, Pointer
from tilewright.tensor.products import count_tiles, launch_options
from tilewright.tensor.workspaces import Workspace, counters

if TYPE_CHECKING:
    from tilewright.tensor.matmul_launches import Operands

# Rows of results, gate and residual begin at multiples of so many elements; those of copies at
# multiples of 128 bytes.
_EIGHTS = 8
_ROW_BYTES = 128

_KERNELS: dict[str, Kernel] = {
    "blocks": kernels.matmul_blocks,
    "rows": kernels.matmul_rows,
    "parts": matmul_parts,
}


def block_launches(
    operands: Operands, *, fast: bool, first_workspace: int
) -> tuple[list[PlannedLaunch], list[Workspace]] | None:
    """Plan a product by blocks, with the workspaces that it needs; None if it is no better.

    `fast` says whether `matmul` would serve it in its fast form; workspaces count as operands from
    `first_workspace` on.
    """
    if "any" in operands.units or not all(operands.aligned[2:]):
        return None
    product = _described(operands)
    choice = block_choice(product)
    if choice is None:
        return None
    copied = [side for side in (0, 1) if not _begins_on_blocks(operands, side)]
    elements = [_copy_shape(operands, side) for side in copied]
    clocks = choice.clocks + sum(
        clocks_of_copy(a * b * rows * row, product.dtype) for a, b, rows, row in elements
    )
    if clocks >= clocks_otherwise(product, fast=fast):
        return None
    launches, workspaces = [], []
    for side, shape in zip(copied, elements, strict=True):
        number = first_workspace + len(workspaces)
        launches.append(_copy(operands, side, number, shape))
        workspaces.append(Workspace(shape, CODES[product.dtype]))
        operands = _moved(operands, side, number, shape)
    launch, more = _launch(operands, choice, first_workspace + len(workspaces))
    if launch is None:
        return None
    return [*launches, launch], [*workspaces, *more]


def _described(operands: Operands) -> BlockProduct:
    _, n, _ = operands.sizes
    even = [n, *(stride for side in operands.strides[2:] for stride in side[:3])]
    return BlockProduct(
        operands.sizes,
        operands.batch[0] * operands.batch[1],
        operands.dtype,
        operands.result,
        operands.precision,
        operands.units,
        is_even=not any(number % _EIGHTS for number in even),
        is_bare=operands.is_bare,
        is_active=operands.is_active,
    )


def _begins_on_blocks(operands: Operands, side: int) -> bool:
    unit = DIVISOR // operands.dtype.size_bytes
    batch0, batch1, outer, _ = operands.strides[side]
    return operands.aligned[side] and not any(s % unit for s in (batch0, batch1, outer))


def _copy_shape(operands: Operands, side: int) -> tuple[int, int, int, int]:
    """Return the shape of a factor's copy: a batch along which it is broadcast is copied once."""
    extents = zip(operands.batch, operands.strides[side], strict=False)
    batch0, batch1 = (size if stride else 1 for size, stride in extents)
    row = _ROW_BYTES // operands.dtype.size_bytes
    return batch0, batch1, operands.lines(side), -(-operands.extents[side] // row) * row


def _copy(
    operands: Operands, side: int, number: int, shape: tuple[int, int, int, int]
) -> PlannedLaunch:
    batch0, batch1, lines, row = shape
    extent = operands.extents[side]
    strides = _copy_strides(operands, side, shape)
    block_m, block_n, num_warps = COPY_TILES
    tiles = -(-lines // block_m) * -(-extent // block_n)
    options: dict[str, Any] = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": num_warps}
    return PlannedLaunch(
        copy_rows,
        (tiles, batch1, batch0),
        (operands.pointers[side], Pointer(number, 0, shape, (1, 1, row, 1))),
        (lines, extent, *operands.strides[side], *strides[:3]),
        {**options, "num_stages": 1},
    )


def _copy_strides(
    operands: Operands, side: int, shape: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    _, batch1, lines, row = shape
    before0, before1, *_ = operands.strides[side]
    return batch1 * lines * row if before0 else 0, lines * row if before1 else 0, row, 1


def _moved(
    operands: Operands, side: int, number: int, shape: tuple[int, int, int, int]
) -> Operands:
    """Return the operands with the copy of a factor in its place."""
    pointers, strides = list(operands.pointers), list(operands.strides)
    pointers[side] = Pointer(number, 0, shape, (1, 1, shape[-1], 1))
    strides[side] = _copy_strides(operands, side, shape)
    aligned = [True if index == side else value for index, value in enumerate(operands.aligned)]
    return operands.replaced(tuple(pointers), tuple(strides), tuple(aligned))


def _launch(
    operands: Operands, choice: BlockChoice, first_workspace: int
) -> tuple[PlannedLaunch | None, list[Workspace]]:
    form, tiles = choice.form, choice.form.tiles
    kernel = _KERNELS[form.kernel]
    integers, pointers = operands.integers, operands.pointers
    options: dict[str, Any] = {
        "A_UNIT": operands.units[0],
        "B_UNIT": operands.units[1],
        "PRECISION": operands.precision,
        **launch_options(tiles),
    }
    count = count_tiles(operands.sizes[0], operands.sizes[1], tiles)
    batch0, batch1 = operands.batch
    workspaces: list[Workspace] = []
    if form.kernel == "parts":
        whole = count * batch0 * batch1
        size = whole * choice.parts * tiles.block_m * tiles.block_n
        workspaces = [Workspace((size,), CODES[float32]), counters(whole)]
        pointers += tuple(
            Pointer(first_workspace + index, 0, workspace.shape, (1,))
            for index, workspace in enumerate(workspaces)
        )
        integers = (*integers, choice.parts)
    else:
        options["FULL_EPILOGUE"] = form.is_full
    if not fits_fast(kernel, len(pointers), integers):
        return None, []
    grid = (count * choice.parts, batch1, batch0)
    return PlannedLaunch(kernel, grid, pointers, integers, options), workspaces
