"""Launch expressions: the code means what Python means by the text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import FormatError
from tilewright.runtime.expression import Operation, compile_expression

_POSITIONS = {"x": 0, "rows": 1, "columns": 2}


def _evaluate(code: tuple[int, ...], arguments: tuple[int, ...], grid: tuple[int, ...]) -> int:
    """Run the code as library/native/plan.c does."""
    stack: list[int] = []
    for operation, operand in zip(code[::2], code[1::2], strict=True):
        match Operation(operation):
            case Operation.CONSTANT:
                stack.append(operand)
            case Operation.ARGUMENT:
                stack.append(arguments[operand])
            case Operation.GRID:
                stack.append(grid[operand])
            case Operation.NEGATE:
                stack.append(-stack.pop())
            case Operation.NOT:
                stack.append(int(not stack.pop()))
            case binary:
                b, a = stack.pop(), stack.pop()
                results: dict[Operation, Callable[[int, int], int]] = {
                    Operation.ADD: lambda a, b: a + b,
                    Operation.SUBTRACT: lambda a, b: a - b,
                    Operation.MULTIPLY: lambda a, b: a * b,
                    Operation.FLOOR_DIVIDE: lambda a, b: a // b,
                    Operation.MODULO: lambda a, b: a % b,
                    Operation.LESS: lambda a, b: int(a < b),
                    Operation.LESS_EQUAL: lambda a, b: int(a <= b),
                    Operation.EQUAL: lambda a, b: int(a == b),
                    Operation.NOT_EQUAL: lambda a, b: int(a != b),
                    Operation.AND: lambda a, b: int(bool(a) and bool(b)),
                    Operation.OR: lambda a, b: int(bool(a) or bool(b)),
                    Operation.MINIMUM: min,
                    Operation.MAXIMUM: max,
                }
                stack.append(results[binary](a, b))
    (result,) = stack
    return result


@pytest.mark.parametrize(
    "text",
    [
        "4 * rows * columns",
        "rows - columns - 3",
        "-(rows // 7) % 5",
        "x % 16 == 0 and rows >= 2 and columns < BLOCK",
        "not rows or columns != 4",
        "min(rows, columns, 3) + max(1, rows)",
        "cdiv(rows, BLOCK) * grid0 + grid2",
        "rows > columns",
    ],
)
@given(rows=st.integers(0, 1000), columns=st.integers(-50, 50), x=st.integers(0, 64))
def test_code_means_what_python_means(text: str, rows: int, columns: int, x: int) -> None:
    code = compile_expression(text, _POSITIONS, {"BLOCK": 8})
    names = {"rows": rows, "columns": columns, "x": x, "BLOCK": 8, "grid0": 5, "grid2": 7}
    expected = eval(text, {"cdiv": lambda a, b: -(-a // b)}, names)
    result = _evaluate(code, (x, rows, columns), (5, 6, 7))
    assert result == (int(bool(expected)) if "and" in text or "not" in text else int(expected))


@pytest.mark.parametrize(
    "text",
    [
        "", "rows +", "unknown", "rows.x", "rows[0]", "print(1)", "rows / 2", "1.5", "'a'",
        "rows ** 2", "1 < rows < 3", "lambda: 1", "min()", "min(rows, key=1)", "cdiv(1)",
        "__import__('os')", "rows if x else 1", "rows; x",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="launch expression"):
        compile_expression(text, _POSITIONS, {})
