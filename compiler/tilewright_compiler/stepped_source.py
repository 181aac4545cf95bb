"""A kernel's function rewritten so that it can be stepped through: from its tree to a code object.

Numbers are Python's as long as the compiler folds them, and are scalars where it makes them so:
after an `if` or a conditional expression with a run-time test, and around a loop. What decides that
is the compiler's own lowering of that statement, so the rewritten code keeps what was there before
it, and asks `__stepper__` behind it what each assigned name has become. The statements that ask
have no line, which leaves lines, breakpoints and the order of events as the file has them.
`not`, `and`, `or`, chained comparisons and attributes are asked of `__stepper__` where they stand.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from tilewright.language.kernel import Kernel
from tilewright.language.source import bounded_nesting
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.frontend.carried import assigned_names
from tilewright_compiler.frontend.escapes import escapes_of, returns_or_goes_on
from tilewright_compiler.frontend.expressions import COMPARE_SYMBOLS

STEPPER = "__stepper__"
_NOWHERE: dict[str, Any] = {"lineno": -1, "col_offset": -1, "end_lineno": -1, "end_col_offset": -1}
# `is` and `in` are of what is known when a kernel is compiled, and stay Python's.
_PYTHONS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


@dataclass(frozen=True, slots=True)
class SteppedSource:
    """The code of a rewritten function and, by number, the nodes that its calls are about.

    The nodes are without statements that are one expression: these set no name, and may be Python
    that the language does not have, such as `print(x)`.
    """

    code: CodeType
    nodes: tuple[ast.stmt | ast.expr, ...]


@lru_cache(maxsize=64)
def rewrite(kernel: Kernel) -> SteppedSource:
    """Return a kernel's function as it is stepped through; its closure's names are globals."""
    with bounded_nesting(lambda: kernel.location):
        return _rewrite(kernel)


def _rewrite(kernel: Kernel) -> SteppedSource:
    tree = kernel.tree
    plain = _Plain()
    plain.visit(tree)
    rewriter = _Rewriter(plain.copies)
    function = copy.copy(tree)
    function.decorator_list, function.returns = [], None
    function.args = _bare(tree.args)
    function.body = rewriter.statements(tree.body)
    module = ast.Module([function], [])
    code = compile(module, kernel.fn.__code__.co_filename, "exec", dont_inherit=True)
    (body,) = (const for const in code.co_consts if isinstance(const, CodeType))
    return SteppedSource(body, tuple(rewriter.nodes))


def _bare(arguments: ast.arguments) -> ast.arguments:
    """Return parameters without annotations and defaults, which the function brings itself."""
    bare = copy.copy(arguments)
    for field in ("posonlyargs", "args", "kwonlyargs"):
        parameters = [copy.copy(parameter) for parameter in getattr(arguments, field)]
        for parameter in parameters:
            parameter.annotation = None
        setattr(bare, field, parameters)
    bare.defaults, bare.kw_defaults = [], [None for _ in bare.kwonlyargs]
    return bare


class _Copier(ast.NodeTransformer):
    """Copies a tree, which is the compiler's and stays as it is."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        new = copy.copy(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(new, field, self.visit(value))
            elif isinstance(value, list):
                setattr(new, field, self.several(value))
        return new

    def several(self, nodes: Sequence[Any]) -> list[Any]:
        copied: list[Any] = []
        for node in nodes:
            found = self.visit(node) if isinstance(node, ast.AST) else node
            copied.extend(found if isinstance(found, list) else [found])
        return copied

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        # In a loop: a sum may have thousands of terms.
        terms: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            terms.append(left)
            left = left.left
        left = self.visit(left)
        for term in reversed(terms):
            new = copy.copy(term)
            new.left, new.right = left, self.visit(term.right)
            left = new
        return left


class _Plain(_Copier):
    """Copies a tree without the statements that are one expression, and remembers the copies."""

    def __init__(self) -> None:
        self.copies: dict[ast.AST, Any] = {}

    def visit(self, node: ast.AST) -> Any:
        found = self.copies[node] = super().visit(node)
        return found

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)


class _Rewriter(_Copier):
    def __init__(self, copies: dict[ast.AST, Any]) -> None:
        self.nodes: list[ast.stmt | ast.expr] = []
        self._copies = copies
        # What is asked before the innermost loop's next iteration.
        self._around: list[list[ast.stmt]] = []

    def statements(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the statements rewritten."""
        return self.several(nodes)

    def visit_If(self, node: ast.If) -> ast.AST:
        statements = (*node.body, *node.orelse)
        names = assigned_names(statements)
        # Where a branch is left early, what follows belongs to the other branch: nothing is joined,
        # unless both branches go on.
        if not names or (escapes_of(statements) and not returns_or_goes_on(node)):
            return self.generic_visit(node)
        number = self._number(node)
        new = copy.copy(node)
        new.test = _ask(node.test, "branch", number, self.visit(node.test))
        new.body = [*self.statements(node.body), *_settle("joins", number, names)]
        new.orelse = [*self.statements(node.orelse), *_settle("joins", number, names)]
        return new

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        return self._loop(node)

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [*self._around[-1], node]

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [*self._around[-1], node]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        new = copy.copy(node)
        new.value = None if node.value is None else self.visit(node.value)
        return new

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _ask(node, "attribute", self.visit(node.value), _constant(node, node.attr))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return _ask(node, "logical_not", self.visit(node.operand))
        if isinstance(node.op, ast.Invert):
            return _ask(node, "invert", self.visit(node.operand))
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        left: ast.expr = self.visit(node.values[0])
        for value in node.values[1:]:
            number = self._number(node)
            test = _ask(node, "left", number, left)
            right = _ask(node, "right", number, self.visit(value))
            decided = _ask(node, "decided", number)
            then, otherwise = (right, decided) if isinstance(node.op, ast.And) else (decided, right)
            left = ast.IfExp(test, then, otherwise, **_place(node))
        return left

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1 or any(isinstance(op, _PYTHONS) for op in node.ops):
            return self.generic_visit(node)
        symbols: list[ast.expr] = [_constant(node, COMPARE_SYMBOLS[type(op)]) for op in node.ops]
        values = map(self.visit, (node.left, *node.comparators))
        return _ask(node, "chain", ast.Tuple(symbols, ast.Load(), **_place(node)), *values)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        number = self._number(node)
        test = _ask(node, "left", number, self.visit(node.test))
        then, otherwise = (
            _ask(node, "chosen", number, self.visit(side)) for side in (node.body, node.orelse)
        )
        return ast.IfExp(test, then, otherwise, **_place(node))

    def _loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        names = assigned_names(node.body)
        number = self._number(node)
        around = _settle("carries", number, names)
        after = _settle("leaves", number, names) if isinstance(node, ast.For) else []
        new = copy.copy(node)
        if isinstance(new, ast.For):
            new.iter = self.visit(new.iter)
        else:
            new.test = self.visit(new.test)
        self._around.append(around)
        new.body = [*self.statements(node.body), *around]
        self._around.pop()
        new.orelse = self.statements(node.orelse)
        enter = ast.Expr(_ask(None, "enter", number), **_NOWHERE)
        return [enter, *around, new, *(after if escapes_of(node.body) else ())]

    def _number(self, node: ast.stmt | ast.expr) -> ast.expr:
        self.nodes.append(self._copies[node] if isinstance(node, ast.stmt) else node)
        return _constant(None, len(self.nodes) - 1)


def _settle(question: str, number: ast.expr, names: Sequence[str]) -> list[ast.stmt]:
    """Return `if __stepper__.question(number, "name"): name = __stepper__.settled` for each."""
    settled = ast.Attribute(_stepper(None), "settled", ast.Load(), **_NOWHERE)
    return [
        ast.If(
            _ask(None, question, number, _constant(None, name)),
            [ast.Assign([ast.Name(name, ast.Store(), **_NOWHERE)], settled, **_NOWHERE)],
            [],
            **_NOWHERE,
        )
        for name in names
    ]


def _ask(place: ast.expr | None, method: str, *args: ast.expr) -> ast.Call:
    """Return `__stepper__.method(*args)` at the place of a node."""
    function = ast.Attribute(_stepper(place), method, ast.Load(), **_place(place))
    return ast.Call(function, list(args), [], **_place(place))


def _stepper(place: ast.expr | None) -> ast.Name:
    return ast.Name(STEPPER, ast.Load(), **_place(place))


def _constant(place: ast.expr | None, value: str | int) -> ast.Constant:
    return ast.Constant(value, **_place(place))


def _place(node: ast.expr | None) -> dict[str, Any]:
    """Return where a node stands, as its constructor takes it; nothing stands at no line."""
    if node is None:
        return _NOWHERE
    return {name: getattr(node, name) for name in _NOWHERE}
