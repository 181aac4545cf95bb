"""Which operations exchange elements between warps, and the shared memory that they need for it."""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import ATOMICS
from tilewright_compiler.ir.types import TileType, element_bytes
from tilewright_compiler.layout.convert import plan_conversion
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.ordered import plan_ordered_reduction, plan_scan
from tilewright_compiler.layout.reduce import plan_reduce
from tilewright_compiler.layout.share import plan_share

# They may write to shared memory, let all warps meet, and read.
EXCHANGES = ("reduce", "reduce_with", "scan", "convert_layout", "flip", "gather", "histogram")


def scratch_bytes(operation: Operation) -> int:
    """Return the shared memory that an operation of scheduled IR needs while it runs.

    It writes there, lets all warps meet, and reads.
    """
    if operation.name in ATOMICS:
        return _shared_by_atomic(operation)
    if operation.name not in EXCHANGES:
        return 0
    source, target = operation.operands[0].type, operation.results[0].type
    assert isinstance(source, TileType)
    assert source.layout is not None
    size_bytes = element_bytes(source)
    axis: int = operation.attributes.get("axis", 0)
    match operation.name:
        case "reduce":
            return plan_reduce(source.layout, axis, size_bytes=size_bytes).scratch_bytes
        case "reduce_with" | "scan":
            return _ordered_bytes(operation, source.layout, axis)
        case "flip":
            return plan_flip(source.layout, axis, size_bytes=size_bytes).scratch_bytes
        case "gather":
            return source.size * size_bytes
    assert isinstance(target, TileType)
    if operation.name == "histogram":
        return target.size * element_bytes(target)
    assert target.layout is not None
    return plan_conversion(source.layout, target.layout, size_bytes=size_bytes).scratch_bytes


def _ordered_bytes(operation: Operation, layout: LinearLayout, axis: int) -> int:
    sizes = tuple(element_bytes(operand.type) for operand in operation.operands)
    if operation.name == "reduce_with":
        return plan_ordered_reduction(layout, axis, sizes=sizes).scratch_bytes
    is_reversed: bool = operation.attributes["reverse"]
    return plan_scan(layout, axis, sizes=sizes, is_reversed=is_reversed).scratch_bytes


def _shared_by_atomic(operation: Operation) -> int:
    """Return the bytes through which the one thread that did it tells the others of the result."""
    if not operation.results:
        return 0
    type_ = operation.results[0].type
    layout = type_.layout if isinstance(type_, TileType) else None
    plan = plan_share(layout, size_bytes=element_bytes(type_))
    return 0 if plan is None else plan.scratch_bytes
