"""Block pointers, which exist in the frontend alone: a load or store turns one into addresses.

The scalar part of an address, base and offsets, is computed once; lanes add `index * stride` along
each axis. A checked axis compares the index with 0 and with the extent. Everything but the window's
extents is a 64-bit run-time scalar, so that a window which a loop moves keeps its types.
"""

from __future__ import annotations

from functools import reduce

import tilewright.language as tl
from tilewright.abi.dtypes import int1, int32, int64
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import common_dtype, shape_of_operand, tile_of
from tilewright_compiler.frontend.operands import (
    NONE,
    BlockPointer,
    Operand,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType


@implements(tl.make_block_ptr)
def make_block_ptr(
    scope: Scope,
    base: Operand,
    shape: Operand,
    strides: Operand,
    offsets: Operand,
    block_shape: Operand,
    order: Operand,
) -> Operand:
    """Make the block pointer."""
    if not isinstance(base, Value) or not operators.is_pointer(base) or shape_of_operand(base):
        msg = f"`base` of tl.make_block_ptr is a pointer, got {describe(base)}"
        raise KernelTypeError(msg)
    block = arguments.shape(block_shape, "`block_shape` of tl.make_block_ptr")
    tile_of(block, ScalarType(int32))
    items = [
        item
        for operand, name in ((shape, "shape"), (strides, "strides"), (offsets, "offsets"))
        for item in _scalars(scope, operand, len(block), f"`{name}` of tl.make_block_ptr")
    ]
    _check_order(order, len(block))
    return BlockPointer((base, *items), block)


@implements(tl.advance)
def advance(scope: Scope, base: Operand, offsets: Operand) -> Operand:
    """Make the block pointer at moved offsets."""
    if not isinstance(base, BlockPointer):
        msg = f"`base` of tl.advance is a block pointer, got {describe(base)}"
        raise KernelTypeError(msg)
    rank = len(base.block)
    moved = [
        operators.elementwise(scope, "add", pair, int64, "tl.advance")
        for pair in zip(
            base.items[-rank:],
            _scalars(scope, offsets, rank, "`offsets` of tl.advance"),
            strict=True,
        )
    ]
    return BlockPointer((*base.items[:-rank], *moved), base.block)


def addresses(
    scope: Scope, pointer: BlockPointer, checked: Operand, what: str
) -> tuple[Value, Operand]:
    """Build the pointers of the window and the mask of its checked axes, None without any."""
    rank = len(pointer.block)
    start, *numbers = pointer.items
    extents, strides, offsets = (numbers[i * rank : (i + 1) * rank] for i in range(3))
    axes = _axes(checked, rank, f"`boundary_check` of {what}")
    lanes, inside = [], []
    for axis in range(rank):
        index = _along(scope, axis, pointer.block)
        lanes.append(operators.binary(scope, "*", index, strides[axis]))
        moved = operators.binary(scope, "*", offsets[axis], strides[axis])
        start = operators.binary(scope, "+", start, moved)
        if axis in axes:
            place = operators.binary(scope, "+", index, offsets[axis])
            zero = convert.constant(scope, 0, int64)
            inside.append(operators.compare(scope, ">=", place, zero))
            inside.append(operators.compare(scope, "<", place, extents[axis]))
    offset = reduce(lambda left, right: operators.binary(scope, "+", left, right), lanes)
    result = operators.binary(scope, "+", start, offset)
    assert isinstance(result, Value)
    if not inside:
        return result, NONE
    mask = reduce(lambda left, right: _both(scope, left, right), inside)
    assert isinstance(mask, Value)
    return result, convert.broadcast(scope, mask, pointer.block)


def _along(scope: Scope, axis: int, block: tuple[int, ...]) -> Value:
    """Build 0, 1, ... along one axis of a window, of extent 1 along the others."""
    extent = block[axis]
    index = scope.builder.value(
        "arange", (), tile_of((extent,), ScalarType(int32)), start=0, end=extent
    )
    index = convert.cast(scope, index, int64)
    for other in range(len(block)):
        if other != axis:
            index = convert.expand_dims(scope, index, other)
    return index


def _both(scope: Scope, left: Operand, right: Operand) -> Operand:
    return operators.elementwise(scope, "and", (left, right), int1, "`boundary_check`")


def _scalars(scope: Scope, operand: Operand, rank: int, what: str) -> list[Value]:
    """Return `rank` integers in 64 bits."""
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    if len(items) != rank:
        msg = f"{what} has one integer for each of the {rank} axes, got {describe(operand)}"
        raise KernelTypeError(msg)
    for item in items:
        dtype = common_dtype((item,), what)
        if shape_of_operand(item) or dtype.is_float or dtype == int1:
            msg = f"{what} has one integer for each axis, got {describe(item)}"
            raise KernelTypeError(msg)
    return [convert.as_number(scope, item, int64, what) for item in items]


def _axes(operand: Operand, rank: int, what: str) -> set[int]:
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    return {arguments.axis(item, rank, f"an axis of {what}") for item in items}


def _check_order(operand: Operand, rank: int) -> None:
    axes = _axes(operand, rank, "`order` of tl.make_block_ptr")
    if len(axes) != rank or (isinstance(operand, TupleOperand) and len(operand.items) != rank):
        msg = f"`order` of tl.make_block_ptr names each of the {rank} axes once, got "
        raise KernelValueError(msg + describe(operand))
