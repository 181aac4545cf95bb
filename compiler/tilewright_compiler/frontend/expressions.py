"""Expressions of a kernel: each node becomes an operand, with its operations appended on the way.

Evaluation order is Python's, left to right. `and` and `or` on run-time scalars evaluate the right
side only if needed, as in Python, so `i < n and tl.load(p + i) > 0` is safe; where the right side
has no effect and cannot fail, both are computed and combined.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from tilewright.abi.dtypes import int1
from tilewright.errors import KernelSyntaxError, KernelTypeError, KernelValueError
from tilewright_compiler.frontend import calls, names, operators, subscripts
from tilewright_compiler.frontend.builtins.debug import printed
from tilewright_compiler.frontend.infer_types import shape_of_operand
from tilewright_compiler.frontend.joins import build_if, is_speculatable, merge_expressions
from tilewright_compiler.frontend.operands import (
    Constant,
    Operand,
    SliceAll,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType

BINARY_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
}
COMPARE_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def evaluate(scope: Scope, node: ast.expr) -> Operand:
    """Lower an expression."""
    with scope.at(node):
        return _evaluate(scope, node)


def _evaluate(scope: Scope, node: ast.expr) -> Operand:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return Constant(value)
        case ast.Name(id=name):
            return _name(scope, name)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return TupleOperand(tuple(_elements(scope, elements)))
        case ast.BinOp():
            return _binary_chain(scope, node)
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(scope, op, evaluate(scope, operand))
        case ast.BoolOp(op=op, values=values):
            return _bool_op(scope, isinstance(op, ast.And), values)
        case ast.Compare():
            return _compare(scope, node)
        case ast.IfExp():
            return _conditional(scope, node)
        case ast.Attribute(value=value, attr=attribute):
            return names.attribute(scope, evaluate(scope, value), attribute)
        case ast.Subscript(value=value, slice=index):
            return subscripts.subscript(scope, evaluate(scope, value), _index(scope, index))
        case ast.Call():
            return _call(scope, node)
        case ast.JoinedStr(values=parts):
            return Constant("".join(_text(scope, part) for part in parts))
    msg = f"`{ast.unparse(node)}` is not an expression of the tile language"
    raise KernelSyntaxError(msg)


def _name(scope: Scope, name: str) -> Operand:
    operand = scope.lookup(name)
    if operand is not None:
        return operand
    return names.captured(scope, name)


def _binary_chain(scope: Scope, node: ast.expr) -> Operand:
    """Build `a + b + ...` from its innermost operation outwards: it may have any length."""
    operations = []
    while isinstance(node, ast.BinOp):
        operations.append(node)
        node = node.left
    result = evaluate(scope, node)
    for operation in reversed(operations):
        with scope.at(operation):
            right = evaluate(scope, operation.right)
            result = _binary(scope, BINARY_SYMBOLS[type(operation.op)], result, right)
    return result


def _binary(scope: Scope, symbol: str, left: Operand, right: Operand) -> Operand:
    if symbol == "@":
        msg = "`@` is not an operator of the tile language"
        raise KernelSyntaxError(msg)
    return operators.binary(scope, symbol, left, right)


def _unary(scope: Scope, op: ast.unaryop, operand: Operand) -> Operand:
    match op:
        case ast.USub():
            return operators.negate(scope, operand)
        case ast.UAdd():
            return operators.plus(operand)
        case ast.Invert():
            return operators.invert(scope, operand)
        case _:
            return operators.logical_not(scope, operand)


def _bool_op(scope: Scope, is_and: bool, values: list[ast.expr]) -> Operand:
    left = evaluate(scope, values[0])
    for node in values[1:]:
        word = "`and`" if is_and else "`or`"
        condition = operators.truth(scope, left, word)
        if isinstance(condition, Constant):
            # As in Python the result is the operand that decided, not its truth.
            left = evaluate(scope, node) if bool(condition.value) == is_and else left
        else:
            left = short_circuit(scope, is_and, condition, partial(evaluate, scope, node), word)
    return left


def short_circuit(
    scope: Scope, is_and: bool, left: Value, right_side: Callable[[], Operand], word: str
) -> Value:
    """Build `left and right` or `left or right`; the right side runs only if it decides."""
    with scope.nested(word, is_loop=False) as right:
        value = operators.truth(scope, right_side(), word)
    if is_speculatable(right.block):
        scope.builder.block.operations.extend(right.block.operations)
        return operators.elementwise(scope, "and" if is_and else "or", (left, value), int1, word)
    with scope.nested(word, is_loop=False) as decided:
        pass
    pair: tuple[Operand, Operand] = (value, Constant(False)) if is_and else (Constant(True), value)
    then, otherwise = (right, decided) if is_and else (decided, right)
    results = build_if(scope, left, then.block, otherwise.block, [pair], [ScalarType(int1)])
    (result,) = results
    assert isinstance(result, Value)
    return result


def _compare(scope: Scope, node: ast.Compare) -> Operand:
    return _links(
        scope, evaluate(scope, node.left), [*zip(node.ops, node.comparators, strict=True)]
    )


def _links(scope: Scope, left: Operand, links: list[tuple[ast.cmpop, ast.expr]]) -> Operand:
    """Compare with each link in turn; one number that is false is the end, as in Python."""
    (op, comparator), *rest = links
    symbol, right = COMPARE_SYMBOLS[type(op)], evaluate(scope, comparator)
    if symbol in ("in", "not in"):
        link = _membership(scope, symbol, left, right)
    else:
        link = operators.compare(scope, symbol, left, right)
    if not rest:
        return link
    following = partial(_links, scope, right, rest)
    what = "a chained comparison"
    if isinstance(link, Value) and shape_of_operand(link):
        msg = (
            f"{what} takes one bool for the whole program, got {describe(link)}; of tiles write "
            "`(a < b) & (b < c)`: without parentheses `&` comes before the comparisons"
        )
        raise KernelTypeError(msg)
    holds = operators.truth(scope, link, what)
    if isinstance(holds, Constant):
        return following() if holds.value else holds
    return short_circuit(scope, True, holds, following, what)


def _membership(scope: Scope, symbol: str, left: Operand, right: Operand) -> Operand:
    if not isinstance(right, TupleOperand) or isinstance(left, Value):
        msg = (
            f"`{symbol}` looks for a compile-time value in a tuple, got {describe(left)} and "
            f"{describe(right)}"
        )
        raise KernelTypeError(msg)
    equal = [operators.compare(scope, "==", left, item) for item in right.items]
    if any(isinstance(item, Value) for item in equal):
        msg = f"`{symbol}` takes a tuple of compile-time values, got {describe(right)}"
        raise KernelTypeError(msg)
    return Constant((Constant(True) in equal) == (symbol == "in"))


def _conditional(scope: Scope, node: ast.IfExp) -> Operand:
    with scope.at(node.test):
        condition = operators.truth(scope, evaluate(scope, node.test), "a conditional expression")
    if isinstance(condition, Constant):
        return evaluate(scope, node.body if condition.value else node.orelse)
    with scope.nested("a conditional expression", is_loop=False) as then:
        left = evaluate(scope, node.body)
    with scope.nested("a conditional expression", is_loop=False) as otherwise:
        right = evaluate(scope, node.orelse)
    return merge_expressions(
        scope, condition, (then.block, left), (otherwise.block, right), _differing
    )


def _differing(left: str, right: str, remedy: str) -> KernelTypeError:
    msg = (
        f"the branches of a conditional expression are {left} and {right}; they must have one "
        f"type: {remedy}"
    )
    return KernelTypeError(msg)


def _elements(scope: Scope, nodes: list[ast.expr]) -> Iterator[Operand]:
    """Lower the elements of a tuple or of a call; `*` puts those of a tuple in its place."""
    for node in nodes:
        if not isinstance(node, ast.Starred):
            yield evaluate(scope, node)
            continue
        operand = evaluate(scope, node.value)
        if not isinstance(operand, TupleOperand):
            with scope.at(node):
                msg = f"`*` takes a tuple apart, got {describe(operand)}"
                raise KernelTypeError(msg)
        yield from operand.items


def _text(scope: Scope, part: ast.expr) -> str:
    """Return what a part of an f-string says; a run-time value stands for its type."""
    if not isinstance(part, ast.FormattedValue):
        assert isinstance(part, ast.Constant)
        return str(part.value)
    operand = evaluate(scope, part.value)
    spec = part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []
    format_ = "".join(_text(scope, inner) for inner in spec)
    if not isinstance(operand, Constant) or (part.conversion == -1 and not format_):
        return printed(operand)
    value: object = repr(operand.value) if part.conversion == ord("r") else operand.value
    try:
        return format(value, format_)
    except (TypeError, ValueError) as error:
        msg = f"`{ast.unparse(part.value)}` is {describe(operand)}: {error}"
        raise KernelValueError(msg) from error


def _index(scope: Scope, node: ast.expr) -> Operand:
    with scope.at(node):
        match node:
            case ast.Slice(lower=None, upper=None, step=None):
                return SliceAll()
            case ast.Slice():
                msg = (
                    f"`{ast.unparse(node)}`: a subscript takes `:` and None on tiles, an integer "
                    "on tuples"
                )
                raise KernelSyntaxError(msg)
            case ast.Tuple(elts=elements):
                return TupleOperand(tuple(_index(scope, element) for element in elements))
            case _:
                return evaluate(scope, node)


def _call(scope: Scope, node: ast.Call) -> Operand:
    callee = evaluate(scope, node.func)
    return calls.call(scope, callee, *evaluate_arguments(scope, node))


def evaluate_arguments(
    scope: Scope, node: ast.Call
) -> tuple[tuple[Operand, ...], dict[str, Operand]]:
    """Lower the arguments of a call, positional and by keyword."""
    positional = tuple(_elements(scope, node.args))
    keywords: dict[str, Operand] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            msg = "`**` in a call is not in the tile language; write the arguments out"
            raise KernelSyntaxError(msg)
        keywords[keyword.arg] = evaluate(scope, keyword.value)
    return positional, keywords
