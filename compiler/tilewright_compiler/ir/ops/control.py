"""Structured control flow, calls, and the layout conversion that the schedule inserts.

| operation | operands | regions |
|---|---|---|
| for | lower, upper, step (one integer type; step > 0), initial values \
| body(induction, carried) ends in yield |
| while | initial values | before(carried) ends in `condition(c, values)`; after(values) in yield |
| if | condition i1 scalar | then, else; both end in yield with the results |
| yield, condition, return | values | |
| call | arguments, attribute callee | |
| convert_layout | tile -> the same tile in another layout | |

`for` results are the carried values after the last iteration; with none, the initial values. Its
optional attribute `num_stages` overrides the signature's for loads in the loop; `unroll` asks for
so many iterations in one, and is gone after the pass of that name.
"""

from __future__ import annotations

from tilewright.abi.dtypes import int1
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import ScalarType, TileType, Type

_MANY = 1 << 30


def _types(values: tuple[Value, ...]) -> list[Type]:
    return [value.type for value in values]


def _verify_for(operation: Operation) -> str | None:
    lower, upper, step, *initial = (value.type for value in operation.operands)
    if not lower == upper == step:
        return f"bounds and step have one type, got {lower}, {upper}, {step}"
    if not (isinstance(lower, ScalarType) and lower.dtype.kind in ("int", "uint")):
        return f"bounds are integer scalars, got {lower}"
    induction, *carried = [*_types(operation.regions[0].arguments), None]
    if induction != lower:
        return f"the body's first argument is the induction value, {lower}, got {induction}"
    carried.pop()
    yielded = _types(operation.regions[0].terminator.operands)
    good = initial == carried == yielded == _types(operation.results)
    return None if good else "initial, carried, yielded and result types agree"


def _verify_while(operation: Operation) -> str | None:
    before, after = operation.regions
    if before.terminator.operands[0].type != ScalarType(int1):
        return "the condition is an i1 scalar"
    initial = _types(operation.operands)
    passed = _types(before.terminator.operands)[1:]
    good = initial == _types(before.arguments) == _types(after.terminator.operands)
    good = good and passed == _types(after.arguments) == _types(operation.results)
    return None if good else "carried types agree"


def _verify_if(operation: Operation) -> str | None:
    if operation.operands[0].type != ScalarType(int1):
        return f"the condition is an i1 scalar, got {operation.operands[0].type}"
    if any(region.arguments for region in operation.regions):
        return "the branches take no arguments"
    results = _types(operation.results)
    good = all(_types(region.terminator.operands) == results for region in operation.regions)
    return None if good else "both branches yield the result types"


def _verify_convert_layout(operation: Operation) -> str | None:
    source, target = operation.operands[0].type, operation.result.type
    if not (isinstance(source, TileType) and isinstance(target, TileType)):
        return "converts a tile"
    same = source.with_layout(None) == target.with_layout(None)
    return None if same else "only the layout changes"


SPECS = (
    OperationSpec(
        "for",
        (3, _MANY),
        (),
        Effect.CONTROL,
        regions=1,
        results=None,
        optional_attributes=("num_stages", "unroll"),
        verify=_verify_for,
    ),
    OperationSpec(
        "while", (0, _MANY), (), Effect.CONTROL, regions=2, results=None, verify=_verify_while
    ),
    OperationSpec("if", (1, 1), (), Effect.CONTROL, regions=2, results=None, verify=_verify_if),
    OperationSpec("yield", (0, _MANY), (), Effect.CONTROL, terminator=True, results=0),
    OperationSpec("condition", (1, _MANY), (), Effect.CONTROL, terminator=True, results=0),
    OperationSpec("return", (0, _MANY), (), Effect.CONTROL, terminator=True, results=0),
    OperationSpec("call", (0, _MANY), ("callee",), Effect.CONTROL, results=None),
    OperationSpec(
        "convert_layout",
        (1, 1),
        verify=_verify_convert_layout,
        optional_attributes=("shared_offset",),
    ),
)
