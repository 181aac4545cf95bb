"""An expression of the launch ABI becomes postfix code that the launcher evaluates at every launch.

Workspace sizes, tensor map extents and the launch predicate are small integer expressions over the
launch arguments, for example `4 * rows * cdiv(columns, 128)` or `x % 16 == 0 and columns % 8 == 0`.
They are parsed as Python, by a whitelist of nodes; names of pointers mean their addresses,
constexprs are put in as constants, and `grid0`, `grid1`, `grid2` are the launch grid.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import IntEnum

from tilewright.errors import FormatError


class Operation(IntEnum):
    """Operations of the stack machine; the numbers are shared with library/native/plan.c."""

    CONSTANT = 0
    ARGUMENT = 1
    GRID = 2
    ADD = 3
    SUBTRACT = 4
    MULTIPLY = 5
    FLOOR_DIVIDE = 6
    MODULO = 7
    NEGATE = 8
    LESS = 9
    LESS_EQUAL = 10
    EQUAL = 11
    NOT_EQUAL = 12
    AND = 13
    OR = 14
    NOT = 15
    MINIMUM = 16
    MAXIMUM = 17


_BINARY: dict[type[ast.operator], Operation] = {
    ast.Add: Operation.ADD,
    ast.Sub: Operation.SUBTRACT,
    ast.Mult: Operation.MULTIPLY,
    ast.FloorDiv: Operation.FLOOR_DIVIDE,
    ast.Mod: Operation.MODULO,
}
# `a > b` is `b < a`: the operands are emitted in the other order.
_COMPARE: dict[type[ast.cmpop], tuple[Operation, bool]] = {
    ast.Lt: (Operation.LESS, False),
    ast.LtE: (Operation.LESS_EQUAL, False),
    ast.Gt: (Operation.LESS, True),
    ast.GtE: (Operation.LESS_EQUAL, True),
    ast.Eq: (Operation.EQUAL, False),
    ast.NotEq: (Operation.NOT_EQUAL, False),
}
_GRID = {"grid0": 0, "grid1": 1, "grid2": 2}

Code = tuple[int, ...]


def compile_expression(
    text: str, positions: Mapping[str, int], constants: Mapping[str, int]
) -> Code:
    """Return code for `text`; `positions` numbers the arguments, `constants` are the constexprs.

    Raises FormatError on anything outside the small language.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        msg = f"launch expression {text!r} cannot be parsed: {error.msg}"
        raise FormatError(msg) from error
    code: list[int] = []
    _emit(tree.body, positions, constants, code, text)
    return tuple(code)


def _emit(
    node: ast.expr,
    positions: Mapping[str, int],
    constants: Mapping[str, int],
    code: list[int],
    text: str,
) -> None:
    def emit(*nodes: ast.expr) -> None:
        for each in nodes:
            _emit(each, positions, constants, code, text)

    def operation(kind: Operation, operand: int = 0) -> None:
        code.extend((int(kind), operand))

    match node:
        case ast.Constant(value=int() as value):
            operation(Operation.CONSTANT, int(value))
        case ast.Name(id=name) if name in constants:
            operation(Operation.CONSTANT, constants[name])
        case ast.Name(id=name) if name in positions:
            operation(Operation.ARGUMENT, positions[name])
        case ast.Name(id=name) if name in _GRID:
            operation(Operation.GRID, _GRID[name])
        case ast.UnaryOp(op=ast.USub() | ast.Not() as operator, operand=operand):
            emit(operand)
            operation(Operation.NEGATE if isinstance(operator, ast.USub) else Operation.NOT)
        case ast.BinOp(left=left, op=arithmetic, right=right) if type(arithmetic) in _BINARY:
            emit(left, right)
            operation(_BINARY[type(arithmetic)])
        case ast.Compare(left=left, ops=[comparison], comparators=[right]) if (
            type(comparison) in _COMPARE
        ):
            kind, is_swapped = _COMPARE[type(comparison)]
            emit(*((right, left) if is_swapped else (left, right)))
            operation(kind)
        case ast.BoolOp(op=boolean, values=[first, *rest]):
            emit(first)
            for term in rest:
                emit(term)
                operation(Operation.AND if isinstance(boolean, ast.And) else Operation.OR)
        case ast.Call(
            func=ast.Name(id="min" | "max" as function), args=[first, *rest], keywords=[]
        ):
            emit(first)
            for term in rest:
                emit(term)
                operation(Operation.MINIMUM if function == "min" else Operation.MAXIMUM)
        case ast.Call(func=ast.Name(id="cdiv"), args=[dividend, divisor], keywords=[]):
            # ceil(a / b) = -(-a // b) for floor division.
            emit(dividend)
            operation(Operation.NEGATE)
            emit(divisor)
            operation(Operation.FLOOR_DIVIDE)
            operation(Operation.NEGATE)
        case _:
            names = ", ".join((*positions, *constants, *_GRID))
            msg = (
                f"launch expression {text!r} has {ast.unparse(node)!r}; allowed are integers, "
                f"{names}, + - * // %, comparisons, and, or, not, min, max, cdiv"
            )
            raise FormatError(msg)
