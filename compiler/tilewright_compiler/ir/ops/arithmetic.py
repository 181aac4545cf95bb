"""Elementwise arithmetic, comparison, selection, conversion. Operands and result have one shape.

| operation | meaning |
|---|---|
| add sub mul | floats round to nearest even (a multiply and a dependent add may fuse); \
integers wrap |
| div rem | floats: IEEE division, `rem` as C's fmod; integers: truncated as in C, `rem` takes the \
dividend's sign |
| mulhi | the upper half of the product of integers of 32 or 64 bits |
| min max | NaN if either operand is NaN (IEEE 754-2019 minimum and maximum) |
| and or xor shl shr | integers; `shr` is arithmetic on signed types |
| cmp | predicate eq ne lt le gt ge; unordered floats compare false but for ne; result i1 |
| select | condition i1, then two values |
| cast | to the result's dtype: floats round to nearest even, float to integer truncates and \
saturates (NaN gives 0), to i1 is `!= 0`; to 8-bit floats beyond the largest number, infinities \
included, gives that number, and NaN gives 0x7f |
| truncate | to a narrower float, not of 8 bits, towards zero: what is too large becomes the \
largest number, infinities and NaN stay |
| bitcast | same bits, same width |
| neg abs | integers wrap |

Of 8-bit floats there are only select, cast and bitcast (and load, store, dot).

Integer division by zero, and shifts by a negative amount or by the width and more, give any value.
"""

from __future__ import annotations

from tilewright.abi.dtypes import int1
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import (
    PointerType,
    element_dtype,
    element_type,
    lacks_arithmetic,
    shape_of,
)

PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
BINARY = (
    *("add", "sub", "mul", "mulhi", "div", "rem", "min", "max"),
    *("and", "or", "xor", "shl", "shr"),
)
_INTEGER_ONLY = ("mulhi", "and", "or", "xor", "shl", "shr")


def _verify_binary(operation: Operation) -> str | None:
    left, right = (value.type for value in operation.operands)
    if not left == right == operation.result.type:
        return f"operands and result have one type, got {left}, {right} -> {operation.result.type}"
    if isinstance(element_type(left), PointerType):
        return "pointers move by addptr"
    if operation.name in _INTEGER_ONLY and element_dtype(left).is_float:
        return f"{operation.name} takes integers, got {left}"
    if operation.name == "mulhi" and element_dtype(left).bits < 32:
        return f"mulhi takes 32 or 64 bits, got {left}"
    return lacks_arithmetic(left)


def _verify_cmp(operation: Operation) -> str | None:
    left, right = (value.type for value in operation.operands)
    if operation.attributes["predicate"] not in PREDICATES:
        return f"predicate is one of {PREDICATES}"
    if left != right:
        return f"operands have one type, got {left} and {right}"
    result = operation.result.type
    if element_dtype(result) != int1 or shape_of(result) != shape_of(left):
        return "result is i1 of the operands' shape"
    return lacks_arithmetic(left)


def _verify_select(operation: Operation) -> str | None:
    condition, left, right = (value.type for value in operation.operands)
    if not left == right == operation.result.type:
        return f"both values and the result have one type, got {left}, {right}"
    good = element_dtype(condition) == int1 and shape_of(condition) == shape_of(left)
    return None if good else "condition is i1 of the values' shape"


def _verify_cast(operation: Operation) -> str | None:
    same = shape_of(operation.operands[0].type) == shape_of(operation.result.type)
    return None if same else "operand and result have one shape"


def _verify_truncate(operation: Operation) -> str | None:
    source, target = operation.operands[0].type, operation.result.type
    if shape_of(source) != shape_of(target):
        return "operand and result have one shape"
    wide, narrow = element_dtype(source), element_dtype(target)
    good = wide.is_float and narrow.is_float and wide.bits > narrow.bits > 8
    return None if good else f"makes a float narrower, got {source} -> {target}"


def _verify_bitcast(operation: Operation) -> str | None:
    source, target = operation.operands[0].type, operation.result.type
    same_shape = shape_of(source) == shape_of(target)
    good = same_shape and element_dtype(source).bits == element_dtype(target).bits
    return None if good else "operand and result have one shape and width"


def _verify_unary(operation: Operation) -> str | None:
    if operation.operands[0].type != operation.result.type:
        return "operand and result have one type"
    return lacks_arithmetic(operation.result.type)


SPECS = (
    *(OperationSpec(name, (2, 2), verify=_verify_binary) for name in BINARY),
    OperationSpec("cmp", (2, 2), ("predicate",), verify=_verify_cmp),
    OperationSpec("select", (3, 3), verify=_verify_select),
    OperationSpec("cast", (1, 1), verify=_verify_cast),
    OperationSpec("truncate", (1, 1), verify=_verify_truncate),
    OperationSpec("bitcast", (1, 1), verify=_verify_bitcast),
    OperationSpec("neg", (1, 1), verify=_verify_unary),
    OperationSpec("abs", (1, 1), verify=_verify_unary),
)
