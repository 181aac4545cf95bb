"""Elementwise functions of floats. f16 and bf16 are computed in f32 and rounded once.

`exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tanh erf floor ceil` take and give one float type.
`log1p(x)` is the logarithm of 1 + x and `expm1(x)` is e^x - 1, exact to the same bounds near 0.
`minnum` and `maxnum` give the other operand where one is NaN (IEEE 754-2008), `min` and `max` NaN.
`fma(a, b, c)` is `a * b + c` rounded once; `fdiv(a, b)` is an approximate quotient (`div` is the
exact one). Accuracy in f32: sqrt, floor, ceil and fma exact to rounding, the others within 4 units
in the last place of the correctly rounded result (sin and cos for arguments below 1e5, fdiv for
divisors from 2^-126 to 2^126); exp2 and fdiv may give 0 for a subnormal result.
"""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import element_dtype, lacks_arithmetic

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf",
    "floor", "ceil",
)  # fmt: skip


def _verify(operation: Operation) -> str | None:
    type_ = operation.result.type
    if any(value.type != type_ for value in operation.operands):
        return "operands and result have one type"
    if not element_dtype(type_).is_float:
        return f"{operation.name} takes floats, got {type_}"
    return lacks_arithmetic(type_)


SPECS = (
    *(OperationSpec(name, (1, 1), verify=_verify) for name in UNARY),
    OperationSpec("minnum", (2, 2), verify=_verify),
    OperationSpec("maxnum", (2, 2), verify=_verify),
    OperationSpec("fma", (3, 3), verify=_verify),
    OperationSpec("fdiv", (2, 2), verify=_verify),
)
