"""The launches of cross entropy: targets placed and counted, rows, losses added up.

The first and the last step take little: a target is 8 bytes, a loss 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.abi.dtypes import DType, float32, float64, int32, int64
from tilewright.abi.signature import INT31_MAX
from tilewright.errors import ArgumentError, ArgumentValueError, IndexRangeError
from tilewright.kernels import cross_entropy as kernels
from tilewright.kernels.cross_entropy_parts import MOST_PARTS
from tilewright.language.kernel import Kernel
from tilewright.runtime.geometry import row_major
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    are_aligned,
    as_array,
    as_flag,
    as_integer,
    as_number,
    check_is_float,
    dtype_of,
    new_array,
    on_host,
    stand_in,
)
from tilewright.tensor.axes import viewed
from tilewright.tensor.configurations import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_HELD,
    CROSS_ENTROPY_LONG,
    CROSS_ENTROPY_WALKED,
    CROSS_ENTROPY_WALKED_16,
    LOSSES,
    TARGETS,
    Configuration,
    rows_configuration,
)
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_one_side,
    geometry_of,
)
from tilewright.tensor.indexing import outside_flag
from tilewright.tensor.launches import (
    Piece,
    PlannedLaunch,
    Pointer,
    pieces,
    planned,
    tile_options,
)
from tilewright.tensor.movement import contiguous, copy
from tilewright.tensor.products import check_choice
from tilewright.tensor.rows import check_rows, number_for
from tilewright.tensor.strides import IndexSpace, Shape, Strides, collapsed

REDUCTIONS = ("none", "sum", "mean")

# The operands of a launch over rows by number.
_X, _PLACES, _WEIGHT, _COUNTS, _DLOSS, _LOSSES, _DX = range(7)
_MOST_PARTS = int(str(MOST_PARTS.value))
# Steps from which on one program takes longer to add up than a second launch does.
_STEPS = 8
# Bytes to which both rows must lie alike for the accesses of long ones.
_VECTOR_BYTES = 16
# A grid's height, so that what a multiple of it begins at is aligned.
_HIGHEST = GRID_HEIGHT // 16 * 16
_LEAST_INT64 = -(2**63)


@dataclass(frozen=True, slots=True)
class LossOptions:
    """What a loss is made with, checked."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    reduction: str
    check: bool

    @staticmethod
    def of(
        ignore_index: object,
        label_smoothing: object,
        z_loss: object,
        reduction: str,
        *,
        check: object,
    ) -> LossOptions:
        """Check the options of a call.

        Raises ArgumentError for one of another type, ArgumentValueError for one out of range.
        """
        check_choice("reduction", reduction, REDUCTIONS)
        ignored = as_integer(ignore_index, name="ignore_index")
        if not _LEAST_INT64 <= ignored < -_LEAST_INT64:
            msg = f"ignore_index is {ignored}, which no i64 is; it lies in [-2**63, 2**63)"
            raise ArgumentValueError(msg)
        smoothing = as_number(label_smoothing, name="label_smoothing")
        if not 0 <= smoothing <= 1:
            msg = f"label_smoothing is {smoothing}; it lies between 0 and 1"
            raise ArgumentValueError(msg)
        return LossOptions(
            ignored,
            smoothing,
            as_number(z_loss, name="z_loss"),
            reduction,
            as_flag(check, name="check"),
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one loss: their targets, placed and counted, over which launches may be many."""

    x: Array
    target: Array
    weight: Array | None
    options: LossOptions
    classes: int
    places: Array
    counts: Array

    @staticmethod
    def placed(
        x: Array | None, target: Array | None, weight: Array | None, options: LossOptions
    ) -> Rows:
        """Return the rows of logits, with their targets placed and counted by a launch.

        With `options.check` this waits for it, and raises IndexRangeError for a target that names
        no class; raises ArgumentError for operands that do not fit.
        """
        logits = as_array(x, name="x")
        check_rows(geometry_of(logits))
        return Rows.placed_for(logits, logits.shape[-1], target, weight, options)

    @staticmethod
    def placed_for(
        x: Array, classes: int, target: Array | None, weight: Array | None, options: LossOptions
    ) -> Rows:
        """Do as `placed` for rows of which something else makes logits of so many classes."""
        targets = as_array(target, name="target")
        _check_targets(x, classes, targets, weight)
        targets = contiguous(targets)
        if weight is not None and not are_aligned((weight,)):
            weight = copy(weight)
        count = prod(targets.shape)
        parts = min(max(-(-count // TARGETS.block_n), 1), _MOST_PARTS)
        places = new_array((count,), int32, x)
        counts = new_array((parts,), loss_dtype(x), x)
        flag = outside_flag(x, check=options.check)
        launch = _plan_places(
            geometry_of(targets), None if weight is None else geometry_of(weight),
            geometry_of(counts), classes,
        )  # fmt: skip
        launch.run([targets, weight, places, counts, flag], (options.ignore_index,))
        if options.check:
            _raise_if_outside(flag, targets, classes, options.ignore_index)
        return Rows(x, targets, weight, options, classes, places, counts)

    def new_losses(self) -> Array:
        """Return room for the loss of each row."""
        return new_array((prod(self.target.shape),), loss_dtype(self.x), self.x)

    def check_dloss(self, dloss: Array | None) -> None:
        """Raise ArgumentError unless a given gradient has the loss's shape and dtype."""
        if dloss is None:
            return
        check_one_side({"x": geometry_of(self.x), "dloss": geometry_of(dloss)})
        shape = self.target.shape if self.options.reduction == "none" else ()
        if dloss.shape != shape or dtype_of(dloss) != loss_dtype(self.x):
            msg = (
                f"dloss is {dtype_of(dloss)} of shape {dloss.shape}, the loss "
                f"{loss_dtype(self.x)} of shape {shape}"
            )
            raise ArgumentError(msg)

    def run(
        self, x: Array, losses: Array, dx: Array | None, dloss: Array | None, *, first: int = 0
    ) -> None:
        """Write the losses of the rows `x`, of all from row `first` on, and `dx` unless None.

        Kernels take `x` and `dx` as they lie, see `is_direct`.
        """
        is_each = dloss is not None and self.options.reduction == "none"
        plan = _plan_rows(
            geometry_of(x),
            None if dx is None else geometry_of(dx),
            None if self.weight is None else geometry_of(self.weight),
            has_dloss=dloss is not None,
            is_each=is_each,
            is_mean=self.options.reduction == "mean",
            is_smoothed=self.options.label_smoothing != 0,
            parts=self.counts.shape[0],
        )
        count = prod(x.shape[:-1])
        if is_each and dloss is not None:
            every = viewed(contiguous(dloss), self.places.shape, (1,))
            dloss = part_of(every, first, count)
        if dloss is not None and not are_aligned((dloss,)):
            dloss = copy(dloss)
        arrays: Arrays = [
            x,
            part_of(self.places, first, count),
            self.weight,
            self.counts,
            dloss,
            part_of(losses, first, count),
            stand_in(losses, dtype_of(x)) if dx is None else dx,
        ]
        options = self.options
        numbers = (number_for(x, options.label_smoothing), number_for(x, options.z_loss))
        for launch in plan:
            launch.run(arrays, numbers)

    def reduced(self, losses: Array) -> Array:
        """Return what a loss of each row is reduced to."""
        if self.options.reduction == "none":
            return viewed(losses, self.target.shape, geometry_of(self.target).strides)
        result = new_array((), dtype_of(losses), losses)
        count, parts = losses.shape[0], self.counts.shape[0]
        if count > _STEPS * LOSSES.block_n:
            programs = min(-(-count // LOSSES.block_n), _MOST_PARTS)
            partial = new_array((programs,), dtype_of(losses), losses)
            first = _sum_losses(count, parts=parts, programs=programs, is_mean=False)
            first.run([losses, self.counts, partial], ())
            losses, count = partial, programs
        is_mean = self.options.reduction == "mean"
        last = _sum_losses(count, parts=parts, programs=1, is_mean=is_mean)
        last.run([losses, self.counts, result], ())
        return result


def is_direct(*arrays: Array) -> bool:
    """Return whether kernels take arrays of one shape as they lie, else copies of them.

    Elements of a row lie side by side, the first one aligned, and rows along two axes.
    """
    first, *_ = every = [geometry_of(array) for array in arrays]
    if not all(array.is_aligned for array in every):
        return False
    if first.shape[-1] > 1 and any(array.strides[-1] != 1 for array in every):
        return False
    strides = tuple(array.strides for array in every)
    return collapsed(first.shape, strides, rank=3, keep_last=True) is not None


def loss_dtype(x: Array) -> DType:
    """Return the dtype of the loss of an array's rows."""
    return float64 if dtype_of(x) == float64 else float32


def part_of(rows: Array, first: int, count: int) -> Array:
    """Return so many rows from `first` on of a row-major array."""
    if not first and rows.shape[0] == count:
        return rows
    return rows[first : first + count]


def _check_targets(x: Array, classes: int, target: Array, weight: Array | None) -> None:
    check_is_float(x)
    given = {"x": x, "target": target} | ({} if weight is None else {"weight": weight})
    check_one_side({name: geometry_of(array) for name, array in given.items()})
    if dtype_of(target) not in (int32, int64):
        msg = f"target has dtype {dtype_of(target)}; targets are i32 or i64"
        raise ArgumentError(msg)
    if target.shape != x.shape[:-1]:
        msg = f"target has shape {target.shape}, x {x.shape}; target has all axes of x but the last"
        raise ArgumentError(msg)
    if not 0 < classes <= INT31_MAX:
        msg = f"there are {classes} classes; from 1 to {INT31_MAX} are taken"
        raise ArgumentError(msg)
    if weight is None:
        return
    strides = geometry_of(weight).strides
    is_contiguous = weight.shape == (classes,) and (strides == (1,) or classes == 1)
    if not is_contiguous or dtype_of(weight) != loss_dtype(x):
        msg = (
            f"weight must be contiguous {loss_dtype(x)} of shape ({classes},), got "
            f"{dtype_of(weight)} of shape {weight.shape} with strides {strides}"
        )
        raise ArgumentError(msg)


def _raise_if_outside(flag: Array, target: Array, classes: int, ignored: int) -> None:
    """Raise IndexRangeError for the first target outside, if the kernel reported one."""
    if not on_host(flag)[0]:
        return
    found = on_host(target)
    is_outside = ((found < 0) | (found >= classes)) & (found != ignored)
    place = tuple(int(i) for i in np.argwhere(is_outside)[0])
    msg = (
        f"target {found[place]} at {place} names none of {classes} classes, counted from 0, and is "
        f"not ignore_index, {ignored}"
    )
    raise IndexRangeError(msg)


@planned
def _plan_places(
    target: Geometry, weight: Geometry | None, counts: Geometry, classes: int
) -> PlannedLaunch:
    """Plan over target, weight, places, counts and the flag."""
    count = prod(target.shape)
    pointers = tuple(
        Pointer(operand, 0, (), ()) for operand in (0, 3 if weight is None else 1, 2, 3, 4)
    )
    return PlannedLaunch(
        kernels.place_targets,
        (counts.shape[0], 1, 1),
        pointers,
        (count, classes),
        {"BLOCK": TARGETS.block_n, "num_warps": TARGETS.num_warps},
        flags=(int(weight is not None),),
    )


@planned
def _sum_losses(count: int, *, parts: int, programs: int, is_mean: bool) -> PlannedLaunch:
    """Plan over losses, counts and the result."""
    return PlannedLaunch(
        kernels.sum_losses,
        (programs, 1, 1),
        tuple(Pointer(operand, 0, (), ()) for operand in range(3)),
        (count, parts, int(is_mean)),
        {"BLOCK": LOSSES.block_n, "num_warps": LOSSES.num_warps},
    )


@planned
def _plan_rows(
    x: Geometry,
    dx: Geometry | None,
    weight: Geometry | None,
    *,
    has_dloss: bool,
    is_each: bool,
    is_mean: bool,
    is_smoothed: bool,
    parts: int,
) -> tuple[PlannedLaunch, ...]:
    """Plan over the operands of rows; a launch takes the numbers `label_smoothing`, `z_loss`."""
    # Seen from the logits, what is one for each row is repeated along the last axis.
    each = (*row_major(x.shape[:-1]), 0)
    strides = (x.strides, each, each, x.strides if dx is None else dx.strides)
    flags = (int(weight is not None), int(has_dloss), int(is_mean), int(dx is not None))
    # A smoothed loss takes the weights of all classes, for which a held row leaves no registers.
    is_held = x.dtype != float64 and not (is_smoothed and weight is not None)
    launches = []
    for piece in _low_pieces(x.shape, strides):
        at_x, at_places, at_losses, at_dx = piece.pointers(_X, _PLACES, _LOSSES, _DX)
        if dx is None:
            at_dx = Pointer(_DX, 0, (), ())
        absent = Pointer(_COUNTS, 0, (), ())
        given = Pointer(_DLOSS, 0, (), ()) if has_dloss else absent
        if is_each:
            given = Pointer(_DLOSS, at_losses.offset, at_losses.sizes, at_losses.strides)
        pointers = (
            at_x, at_places,
            absent if weight is None else Pointer(_WEIGHT, 0, weight.shape, (1,)),
            absent, given, at_losses, at_dx,
        )  # fmt: skip
        form = _form(x, piece, is_held=is_held)
        outer, rows, columns = piece.space.sizes
        x_walk, _, _, dx_walk = (walk[:2] for walk in piece.space.strides)
        launches.append(
            PlannedLaunch(
                form.kernel,
                (-(-rows // form.rows), outer, 1),
                pointers,
                (rows, columns, *x_walk, *dx_walk, int(is_each), parts),
                tile_options(form.tiles, has_rows=form.kernel is kernels.entropy),
                flags=flags,
            )
        )
    return tuple(launches)


def _low_pieces(shape: Shape, strides: tuple[Strides, ...]) -> Iterator[Piece]:
    """Cut rows into pieces whose outer axis is no longer than a grid is high."""
    for piece in pieces(shape, strides, rank=3, keep_last=True):
        space = piece.space
        for start in range(0, space.sizes[0], _HIGHEST):
            sizes = (min(_HIGHEST, space.sizes[0] - start), *space.sizes[1:])
            offsets = tuple(
                offset + start * walk[0]
                for offset, walk in zip(piece.offsets, space.strides, strict=True)
            )
            yield Piece(offsets, IndexSpace(sizes, space.strides))


class _Form(NamedTuple):
    """The kernel that serves rows, and its tiles; a program takes so many rows."""

    kernel: Kernel
    tiles: Configuration
    rows: int


def _form(x: Geometry, piece: Piece, *, is_held: bool) -> _Form:
    """Choose for a piece: short rows together, long ones held, the longest walked.

    Without `is_held` all are walked.
    """
    columns = piece.space.sizes[2]
    x_walk, _, _, dx_walk = (walk[:2] for walk in piece.space.strides)
    is_narrow = x.dtype.bits == 16
    if is_held and columns <= CROSS_ENTROPY.block_n:
        return _Form(kernels.entropy, CROSS_ENTROPY, CROSS_ENTROPY.block_m)
    if is_held and _are_alike(x, x_walk, dx_walk):
        tiles = rows_configuration(columns, CROSS_ENTROPY_LONG)
        if tiles is None and is_narrow:
            tiles = CROSS_ENTROPY_HELD
        if tiles is not None:
            return _Form(kernels.entropy_row, tiles, 1)
    tiles = CROSS_ENTROPY_WALKED_16 if is_narrow else CROSS_ENTROPY_WALKED
    return _Form(kernels.entropy_walked, tiles, 1)


def _are_alike(x: Geometry, x_walk: tuple[int, ...], dx_walk: tuple[int, ...]) -> bool:
    """Return whether rows of both begin equally far from a multiple of what is accessed at once."""
    size = x.dtype.size_bytes
    return all((a - b) * size % _VECTOR_BYTES == 0 for a, b in zip(x_walk, dx_walk, strict=True))
