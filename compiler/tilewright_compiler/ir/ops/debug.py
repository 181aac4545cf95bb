"""Checks that the kernel's author writes.

| operation | operands | meaning |
|---|---|---|
| assert | i1 scalar | unless it is true, ends the launch with the attribute `message` |
| print | value, program id along 3 axes, indices along its own -> the value | prints a line an \
element: the attribute `prefix`, and the value, in hexadecimal if `digits` is not 0 |

All operands of `print` have one shape and 64 bits; what it gives is the value, so that it has a
layout.
"""

from __future__ import annotations

from tilewright.abi.dtypes import float64, int1, int64, uint64
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import ScalarType, element_type, shape_of


def _verify_assert(operation: Operation) -> str | None:
    type_ = operation.operands[0].type
    return None if type_ == ScalarType(int1) else f"takes an i1 scalar, got {type_}"


def _verify_print(operation: Operation) -> str | None:
    value, *places = (operand.type for operand in operation.operands)
    if operation.result.type != value:
        return "gives the first operand"
    if len(places) != 3 + len(shape_of(value)):
        return "takes three program ids and an index an axis"
    if any(element_type(place) != ScalarType(int64) for place in places):
        return "program ids and indices are i64"
    good = element_type(value) in _PRINTED and all(shape_of(p) == shape_of(value) for p in places)
    return None if good else "prints i64, u64 or f64 in one shape"


_PRINTED = tuple(map(ScalarType, (int64, uint64, float64)))

SPECS = (
    OperationSpec("assert", (1, 1), ("message",), Effect.WRITE, results=0, verify=_verify_assert),
    OperationSpec("print", (4, 1 << 10), ("prefix", "digits"), Effect.WRITE, verify=_verify_print),
)
