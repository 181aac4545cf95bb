"""Look-ups: elements at indices, and how often integers occur."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.abi.dtypes import int1, int32
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import check_broadcastable, shape_of_operand, tile_of
from tilewright_compiler.frontend.operands import NONE, Operand, describe
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, element_type, shape_of


@implements(tl.gather)
def gather(scope: Scope, x: Operand, index: Operand, axis: Operand) -> Operand:
    """Build the elements at indices along an axis."""
    value = arguments.tile(x, "`x` of tl.gather")
    if is_pointer(value):
        msg = f"tl.gather takes a tile of numbers, got {describe(value)}; gather the offsets"
        raise KernelTypeError(msg)
    places = _integers(index, "`index` of tl.gather")
    extents = shape_of(value.type)
    number = arguments.axis(axis, len(extents), "`axis` of tl.gather")
    wanted = shape_of(places.type)
    expected = (*extents[:number], *wanted[number : number + 1], *extents[number + 1 :])
    if wanted != expected:
        msg = (
            f"tl.gather along axis {number} takes tiles that agree along the other axes, got "
            f"{describe(value)} and {describe(places)}"
        )
        raise KernelTypeError(msg)
    target = tile_of(wanted, element_type(value.type))
    return scope.builder.value("gather", (value, places), target, axis=number)


@implements(tl.histogram)
def histogram(scope: Scope, x: Operand, num_bins: Operand, mask: Operand) -> Operand:
    """Build counts of integers."""
    value = _integers(x, "`x` of tl.histogram")
    bins = arguments.integer(num_bins, "`num_bins` of tl.histogram")
    if bins < 1 or bins & (bins - 1):
        msg = f"`num_bins` of tl.histogram is a power of two, got {bins}; round up"
        raise KernelValueError(msg)
    operands = [value]
    if mask != NONE:
        bools = convert.as_value(scope, mask, "`mask` of tl.histogram")
        if is_pointer(bools) or element_dtype(bools.type) != int1:
            msg = f"`mask` of tl.histogram is a tile of bools, got {describe(mask)}"
            raise KernelTypeError(msg)
        extents = shape_of(value.type)
        check_broadcastable(shape_of_operand(bools), extents, "`mask` of tl.histogram")
        operands.append(convert.broadcast(scope, bools, extents))
    return scope.builder.value("histogram", operands, tile_of((bins,), ScalarType(int32)))


def _integers(operand: Operand, what: str) -> Value:
    value = arguments.tile(operand, what)
    if is_pointer(value) or element_dtype(value.type).kind not in ("int", "uint"):
        msg = f"{what} is a tile of integers, got {describe(value)}; cast with .to(...) first"
        raise KernelTypeError(msg)
    return value
