"""The launches of a product by blocks, on a GPU that copies blocks by itself.

A factor that lies where such copies cannot read it, or as no form of its dtype does, is copied
along K first, if that costs less than it saves; a sum cut into parts gets memory for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.abi.dtypes import float32
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import DIVISOR
from tilewright.abi.tuned import Choice
from tilewright.kernels import matmul as kernels
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.geometry import row_major
from tilewright.runtime.launcher import CODES
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import Array, fits_fast
from tilewright.tensor.block_configurations import (
    BlockChoice,
    BlockForm,
    BlockProduct,
    block_choice,
    clocks_of_copy,
    clocks_otherwise,
    tuned_form,
    why_form_not,
)
from tilewright.tensor.geometry import Arrays
from tilewright.tensor.launches import PlannedLaunch, Pointer
from tilewright.tensor.movement import BITS, copy_elements
from tilewright.tensor.products import count_tiles, launch_options
from tilewright.tensor.strides import Shape, Strides
from tilewright.tensor.tuned import why_no_binary
from tilewright.tensor.workspaces import Workspace, counters

if TYPE_CHECKING:
    from tilewright.tensor.matmul_launches import Operands

# Rows of results, gate and residual begin at multiples of so many elements; those of copies at
# multiples of so many bytes.
_EIGHTS = 8
_ROW_BYTES = 128

BLOCK_KERNELS: dict[str, Kernel] = {
    "blocks": kernels.matmul_blocks,
    "halves": kernels.matmul_halves,
    "rows": kernels.matmul_rows,
    "parts": kernels.matmul_parts,
    "plain": kernels.matmul_plain_blocks,
}


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """A copy of elements of one operand to another: both walked over `sizes`."""

    sizes: Shape
    source: Pointer
    target: Pointer

    def run(self, arrays: Arrays, _scalars: tuple[Any, ...]) -> None:
        """Copy between the operands of a call."""
        copy_elements(_view(arrays, self.source), _view(arrays, self.target))


PlannedStep = PlannedCopy | PlannedLaunch


def block_steps(
    operands: Operands, *, fast: bool, first_workspace: int
) -> tuple[list[PlannedStep], list[Workspace]] | None:
    """Plan a product by blocks, with the workspaces that it needs; None if it is no better.

    `fast` says whether `matmul` would serve it in its fast form; workspaces count as operands from
    `first_workspace` on.
    """
    if not all(operands.aligned[2:]):
        return None
    best: tuple[float, tuple[int, ...], BlockChoice] | None = None
    for copied in _copies(operands):
        choice = block_choice(_described(operands, copied))
        if choice is not None:
            copying = sum(clocks_of_copy(_copied_bytes(operands, side)) for side in copied)
            clocks = choice.clocks + copying
            if best is None or clocks < best[0]:
                best = clocks, copied, choice
    if best is None or best[0] >= clocks_otherwise(_described(operands, ()), fast=fast):
        return None
    _, copied, choice = best
    return _steps(operands, copied, choice, first_workspace)


def tuned_block_steps(
    operands: Operands, choice: Choice, *, first_workspace: int
) -> tuple[list[PlannedStep], list[Workspace]] | None:
    """Plan a product by blocks as a tuned choice says, of which `why_not_by_blocks` knows nothing.

    None if its numbers do not fit the launch.
    """
    form = tuned_form(choice, _described(operands, choice.copied))
    found = BlockChoice(form, choice.parts, 0.0)
    return _steps(operands, choice.copied, found, first_workspace)


def why_not_by_blocks(operands: Operands, choice: Choice) -> str:
    """Return why a tuned choice cannot serve a product by blocks; empty if it can."""
    if choice.kernel not in BLOCK_KERNELS:
        return f"there is no kernel {choice.kernel!r}"
    if not all(operands.aligned[2:]):
        return "the result or an operand of the epilogue is not aligned"
    if choice.copied not in _copies(operands):
        return "a factor that blocks cannot read is not copied"
    product = _described(operands, choice.copied)
    form = tuned_form(choice, product)
    fault = why_form_not(form, product)
    if fault or form.is_declared:
        return fault
    dtypes = {"a": operands.dtype, "c": operands.result}
    options = _options(operands.precision, product.units, form)
    return why_no_binary(BLOCK_KERNELS[form.kernel], dtypes, options)


def layout_of(operands: Operands) -> str:
    """Return along which axes both factors are contiguous; `-` for one that must be copied."""
    return "".join(
        "-" if _must_be_copied(operands, side) else operands.units[side] for side in (0, 1)
    )


def is_even(operands: Operands) -> bool:
    """Return whether results, gate and residual have rows of blocks."""
    return _described(operands, ()).is_even


def _steps(
    operands: Operands, copied: tuple[int, ...], choice: BlockChoice, first_workspace: int
) -> tuple[list[PlannedStep], list[Workspace]] | None:
    steps: list[PlannedStep] = []
    workspaces: list[Workspace] = []
    for side in copied:
        step, workspace, operands = _copy(operands, side, first_workspace + len(workspaces))
        steps.append(step)
        workspaces.append(workspace)
    launch, more = _launch(operands, choice, first_workspace + len(workspaces))
    return None if launch is None else ([*steps, launch], [*workspaces, *more])


def _copies(operands: Operands) -> Iterator[tuple[int, ...]]:
    """Yield the sets of factors that may be copied: those that must be, with or without others."""
    ways = [(True,) if _must_be_copied(operands, s) else (False, True) for s in (0, 1)]
    for is_copied in product(*ways):
        yield tuple(side for side in (0, 1) if is_copied[side])


def _must_be_copied(operands: Operands, side: int) -> bool:
    unit = DIVISOR // operands.dtype.size_bytes
    batch0, batch1, outer, _ = operands.strides[side]
    on_blocks = operands.aligned[side] and not any(s % unit for s in (batch0, batch1, outer))
    return operands.units[side] == "any" or not on_blocks


def _described(operands: Operands, copied: tuple[int, ...]) -> BlockProduct:
    _, n, _ = operands.sizes
    even = [n, *chain.from_iterable(strides[:3] for strides in operands.strides[2:])]
    units = tuple("k" if side in copied else operands.units[side] for side in (0, 1))
    return BlockProduct(
        operands.sizes,
        operands.batch[0] * operands.batch[1],
        operands.dtype,
        operands.result,
        operands.precision,
        (units[0], units[1]),
        is_even=not any(number % _EIGHTS for number in even),
        is_bare=operands.is_bare,
        is_active=operands.is_active,
    )


def _shapes(operands: Operands, side: int) -> tuple[Shape, Shape]:
    """Return over what a factor is copied, and the shape of its copy, whose rows are longer.

    A batch along which it is broadcast is copied once.
    """
    batch = [
        size if stride else 1
        for size, stride in zip(operands.batch, operands.strides[side], strict=False)
    ]
    rows, k = operands.sizes[side], operands.sizes[2]
    unit = _ROW_BYTES // operands.dtype.size_bytes
    return (*batch, rows, k), (*batch, rows, -(-k // unit) * unit)


def _copied_bytes(operands: Operands, side: int) -> int:
    batch0, batch1, rows, k = _shapes(operands, side)[0]
    return batch0 * batch1 * rows * k * operands.dtype.size_bytes


def _copy(operands: Operands, side: int, number: int) -> tuple[PlannedCopy, Workspace, Operands]:
    """Plan the copy of a factor to that operand; return the operands with it in its place."""
    sizes, shape = _shapes(operands, side)
    packed = row_major(shape)
    source = Pointer(
        operands.pointers[side].operand,
        operands.pointers[side].offset,
        sizes,
        operands.along_k(side),
    )
    target = Pointer(number, 0, sizes, packed)
    outer0, outer1, *_ = operands.strides[side]
    strides = packed[0] if outer0 else 0, packed[1] if outer1 else 0, packed[2], 1
    moved = operands.with_factor(side, target, strides)
    return PlannedCopy(sizes, source, target), Workspace(shape, CODES[operands.dtype]), moved


def _launch(
    operands: Operands, choice: BlockChoice, first_workspace: int
) -> tuple[PlannedLaunch | None, list[Workspace]]:
    form, tiles = choice.form, choice.form.tiles
    kernel = BLOCK_KERNELS[form.kernel]
    integers, pointers = operands.integers, operands.pointers
    options = _options(operands.precision, operands.units, form)
    m, n, _ = operands.sizes
    count = count_tiles(m, n, tiles)
    workspaces: list[Workspace] = []
    if form.kernel == "plain":
        pointers, integers = pointers[:3], operands.plain_integers
    if form.kernel == "parts":
        # A sum that is whole leaves nothing in memory.
        whole = count * operands.batch[0] * operands.batch[1] if choice.parts > 1 else 1
        size = whole * choice.parts * tiles.block_m * tiles.block_n if choice.parts > 1 else 1
        workspaces = [Workspace((size,), CODES[float32]), counters(whole)]
        pointers += _pointers(workspaces, first_workspace)
        integers = (*integers, choice.parts)
    if not fits_fast(kernel, len(pointers), integers):
        return None, []
    grid = (count * choice.parts, operands.batch[1], operands.batch[0])
    return PlannedLaunch(kernel, grid, pointers, integers, options), workspaces


def _options(precision: str, units: tuple[str, str], form: BlockForm) -> dict[str, Any]:
    options = {"A_UNIT": units[0], "B_UNIT": units[1], **launch_options(form.tiles)}
    if form.kernel == "plain":
        return options
    options["PRECISION"] = precision
    return options if form.kernel == "parts" else {**options, "FULL_EPILOGUE": form.is_full}


def _pointers(workspaces: Iterable[Workspace], first: int) -> tuple[Pointer, ...]:
    return tuple(
        Pointer(first + index, 0, workspace.shape, (1,))
        for index, workspace in enumerate(workspaces)
    )


def _view(arrays: Arrays, pointer: Pointer) -> Array:
    array = arrays[pointer.operand]
    if isinstance(array, DeviceArray):
        return array.view(pointer.sizes, pointer.strides, offset=pointer.offset)
    start = pointer.into(arrays)
    assert isinstance(start, np.ndarray), "a view is where its array is"
    # NumPy gives no strides to some types of 8-bit floats; a copy is of bits in any case.
    start = start.view(to_numpy(BITS[start.itemsize]))
    strides: Strides = tuple(stride * start.itemsize for stride in pointer.strides)
    return np.lib.stride_tricks.as_strided(start, pointer.sizes, strides)
