"""Which operations exchange elements between warps, and the shared memory that they need for it."""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import ATOMICS
from tilewright_compiler.ir.types import TileType, element_bytes
from tilewright_compiler.layout.convert import plan_conversion
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.reduce import plan_reduce
from tilewright_compiler.layout.share import plan_share


def scratch_bytes(operation: Operation) -> int:
    """Return the shared memory that an operation of scheduled IR needs while it runs.

    It writes there, lets all warps meet, and reads.
    """
    if operation.name in ATOMICS:
        return _shared_by_atomic(operation)
    if operation.name not in ("reduce", "convert_layout", "flip"):
        return 0
    source, target = operation.operands[0].type, operation.results[0].type
    assert isinstance(source, TileType)
    assert source.layout is not None
    size_bytes = element_bytes(source)
    axis: int
    if operation.name == "reduce":
        axis = operation.attributes["axis"]
        return plan_reduce(source.layout, axis, size_bytes=size_bytes).scratch_bytes
    if operation.name == "flip":
        axis = operation.attributes["axis"]
        return plan_flip(source.layout, axis, size_bytes=size_bytes).scratch_bytes
    assert isinstance(target, TileType)
    assert target.layout is not None
    return plan_conversion(source.layout, target.layout, size_bytes=size_bytes).scratch_bytes


def _shared_by_atomic(operation: Operation) -> int:
    """Return the bytes through which the one thread that did it tells the others of the result."""
    if not operation.results:
        return 0
    type_ = operation.results[0].type
    if not isinstance(type_, TileType):
        return element_bytes(type_)
    assert type_.layout is not None
    plan = plan_share(type_.layout, size_bytes=element_bytes(type_))
    return 0 if plan is None else plan.scratch_bytes
