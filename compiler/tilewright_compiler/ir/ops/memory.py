"""Global memory. Pointers are moved by `addptr` (offset in elements) and read or written tile-wise.

| operation | operands | meaning |
|---|---|---|
| addptr | pointer, integer of the same shape -> pointer | |
| address | pointer -> i64 | its address in bytes |
| load | pointer, [mask i1, [other]] -> value | where the mask is false: `other`, 0 without one |
| store | pointer, value, [mask i1] | lanes whose mask is false write nothing |

`load` and `store` have the attributes `cache` ("" or a PTX cache operator) and `eviction` ("" or
"evict_first", "evict_last"). A load whose `ahead` is true must run ahead in the loop around it: no
other thing in that loop writes what it reads.
"""

from __future__ import annotations

from tilewright.abi.dtypes import int1, int64
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    Type,
    element_dtype,
    element_type,
    shape_of,
)


def _verify_addptr(operation: Operation) -> str | None:
    pointer, offset = (value.type for value in operation.operands)
    if not isinstance(element_type(pointer), PointerType) or pointer != operation.result.type:
        return "first operand and result are one pointer type"
    dtype = element_dtype(offset)
    if isinstance(element_type(offset), PointerType) or dtype.is_float or dtype.bits == 1:
        return f"offset is an integer, got {offset}"
    return None if shape_of(pointer) == shape_of(offset) else "pointer and offset have one shape"


def _verify_address(operation: Operation) -> str | None:
    pointer, result = operation.operands[0].type, operation.result.type
    if not isinstance(element_type(pointer), PointerType):
        return f"operand is a pointer, got {pointer}"
    good = element_type(result) == ScalarType(int64) and shape_of(result) == shape_of(pointer)
    return None if good else "result is i64 of the pointer's shape"


def verify_access(pointer: Type, value: Type, mask: Type | None) -> str | None:
    """Return a complaint if `value` is not what `pointer` points to, or `mask` does not fit."""
    if not isinstance(element_type(pointer), PointerType):
        return f"first operand is a pointer, got {pointer}"
    if element_dtype(pointer) != element_dtype(value) or shape_of(pointer) != shape_of(value):
        return f"value {value} does not fit pointer {pointer}"
    if mask is not None and (element_dtype(mask) != int1 or shape_of(mask) != shape_of(pointer)):
        return f"mask is i1 of the pointer's shape, got {mask}"
    return None


def _verify_load(operation: Operation) -> str | None:
    pointer = operation.operands[0].type
    mask = operation.operands[1].type if len(operation.operands) > 1 else None
    if len(operation.operands) > 2 and operation.operands[2].type != operation.result.type:
        return "other has the result's type"
    return verify_access(pointer, operation.result.type, mask)


def _verify_store(operation: Operation) -> str | None:
    mask = operation.operands[2].type if len(operation.operands) > 2 else None
    return verify_access(operation.operands[0].type, operation.operands[1].type, mask)


SPECS = (
    OperationSpec("addptr", (2, 2), verify=_verify_addptr),
    OperationSpec("address", (1, 1), verify=_verify_address),
    OperationSpec(
        "load",
        (1, 3),
        ("cache", "eviction"),
        Effect.READ,
        optional_attributes=("ahead",),
        verify=_verify_load,
    ),
    OperationSpec(
        "store", (2, 3), ("cache", "eviction"), Effect.WRITE, results=0, verify=_verify_store
    ),
)
