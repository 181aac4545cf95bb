"""`return`, `continue` and `break` under a run-time `if`: what comes after it moves into branches.

Structured control flow has no jumps. So where a branch of an `if` may leave early, what would have
run after the `if` is lowered inside each branch that gets there, up to the place where all ways
meet again: the end of the function for `return`, of the iteration for `continue` and `break`. In
the usual form, `if done: return`, the rest is lowered once, in the other branch. A `break` sets a
flag besides, by which its loop decides behind the iteration whether to go on.

`Scope.pending` says what comes after the statement that is being lowered, innermost last. Each
entry is a `Rest`; an `iteration` is a place that `continue` goes to, with the name of its loop's
flag.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Literal

from tilewright.errors import KernelSyntaxError, KernelTypeError
from tilewright_compiler.frontend.joins import merge_expressions, merge_variables
from tilewright_compiler.frontend.operands import NONE, Constant
from tilewright_compiler.frontend.scope import Branch, Scope
from tilewright_compiler.ir.core import Value

Escape = Literal["return", "break", "continue"]
_MAX_COPIES = 1 << 14
_WORDS: dict[type[ast.AST], Escape] = {
    ast.Return: "return",
    ast.Break: "break",
    ast.Continue: "continue",
}


def escapes_of(statements: Iterable[ast.stmt]) -> frozenset[Escape]:
    """Return how statements may be left, other than at their end."""
    found: set[Escape] = set()
    pending = [(statement, False) for statement in statements]
    while pending:
        node, is_in_loop = pending.pop()
        word = _WORDS.get(type(node))
        # A `break` inside a loop inside the statements stays there; a `return` does not.
        if word is not None and (word == "return" or not is_in_loop):
            found.add(word)
        is_in_loop = is_in_loop or isinstance(node, ast.For | ast.While)
        for field in ("body", "orelse"):
            pending.extend((inner, is_in_loop) for inner in getattr(node, field, ()))
    return frozenset(found)


def branch(
    scope: Scope,
    condition: Value,
    escapes: frozenset[Escape],
    bodies: tuple[Callable[[], None], Callable[[], None]],
    description: str,
) -> None:
    """Build an `if` whose branches may leave early, with all that follows up to where they meet.

    Without escapes it is a plain `if`.
    """
    returns = "return" in escapes or (bool(escapes) and _rest_returns(scope))
    depth = len(scope.pending)
    if escapes:
        depth = 0 if returns else _innermost_iteration(scope) + 1
    branches: list[Branch] = []
    results = []
    for body in bodies:
        with scope.nested(description, is_loop=False) as lowered:
            body()
            _continue_to(scope, depth)
            results.append(NONE if scope.result is None else scope.result)
            scope.result = None
        branches.append(lowered)
    then, otherwise = branches
    if not returns:
        merge_variables(scope, condition, then, otherwise)
        scope.leaving = bool(escapes)
        return
    scope.result = merge_expressions(
        scope, condition, (then.block, results[0]), (otherwise.block, results[1]), _differing
    )


def leave(scope: Scope, word: Literal["break", "continue"]) -> None:
    """Lower a `break` or `continue`: what follows it in its iteration is not lowered."""
    if word == "break":
        scope.assign(scope.pending[_innermost_iteration(scope)].flag, Constant(True))
    scope.leaving = True


def _rest_returns(scope: Scope) -> bool:
    """Return whether what the branches go on with in this iteration may return."""
    rest = scope.pending[_innermost_iteration(scope) + 1 :]
    return any("return" in escapes_of(later.statements) for later in rest)


def _innermost_iteration(scope: Scope) -> int:
    depths = [depth for depth, rest in enumerate(scope.pending) if rest.kind == "iteration"]
    assert depths, "Python refuses `break` and `continue` outside loops"
    return depths[-1]


def _continue_to(scope: Scope, depth: int) -> None:
    """Lower what comes next until `depth` entries of `pending` remain, or a `return`."""
    while scope.result is None and (scope.leaving or len(scope.pending) > depth):
        if scope.leaving:
            scope.pending = scope.pending[: _innermost_iteration(scope) + 1]
            scope.leaving = False
            continue
        *remaining, rest = scope.pending
        scope.pending = tuple(remaining)
        if rest.execute is not None:
            _count_copy(scope)
            rest.execute()


def _count_copy(scope: Scope) -> None:
    scope.copies += 1
    if scope.copies > _MAX_COPIES:
        msg = (
            "what follows these `if`s is lowered once for every way to get there, and there are "
            "too many ways: give each `if` an `else`, or collect a condition in a variable and "
            "leave at one place"
        )
        raise KernelSyntaxError(msg)


def _differing(left: str, right: str, remedy: str) -> KernelTypeError:
    msg = (
        f"this `if` leads to a `return` of {left} in one branch and of {right} in the other; "
        f"a function returns one type: {remedy}"
    )
    return KernelTypeError(msg)
