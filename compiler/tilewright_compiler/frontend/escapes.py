"""`return`, `continue` and `break` under a run-time `if`: what comes after it moves into branches.

Structured control flow has no jumps. So where a branch of an `if` may leave early, what would have
run after the `if` is lowered inside each branch that gets there, up to the place where all ways
meet again: the end of the function for `return`, of the iteration for `continue` and `break`. In
the usual form, `if done: return`, the rest is lowered once, in the other branch. A `break` sets a
flag besides, by which its loop decides behind the iteration whether to go on.

Where both branches of an `if` get to its end and a `return` is deeper inside, that would be twice.
There all ways meet behind the `if`, with a flag for what was returned, and a second `if` asks for
it. Not so for `continue` and `break`: behind the iteration all variables are asked for, while after
a `return` none is, so that no type has to fit.

`Scope.pending` says what comes after the statement that is being lowered, innermost last. Each
entry is a `Rest`; an `iteration` is a place that `continue` goes to, with the name of its loop's
flag, a `meeting` one that `return` goes to.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Literal

from tilewright.errors import KernelSyntaxError, KernelTypeError
from tilewright_compiler.frontend.joins import merge_expressions, merge_variables
from tilewright_compiler.frontend.operands import NONE, Constant
from tilewright_compiler.frontend.returns import merge_returns
from tilewright_compiler.frontend.scope import Branch, Rest, Returned, Scope
from tilewright_compiler.ir.core import Value

Escape = Literal["return", "break", "continue"]
_MAX_COPIES = 1 << 9
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
        depth = _innermost(scope, "meeting" if returns else "iteration") + 1
    ways: list[tuple[Branch, tuple[Returned, ...]]] = []
    for body in bodies:
        with scope.nested(description, is_loop=False) as lowered:
            body()
            _continue_to(scope, depth)
            ways.append((lowered, scope.result or ()))
            scope.result = None
    then, otherwise = ways
    if not returns:
        merge_variables(scope, condition, then[0], otherwise[0])
        scope.leaving = bool(escapes)
    elif depth > 0:
        scope.result = merge_returns(scope, condition, then, otherwise)
    else:
        values = [(way.block, found[0].value if found else NONE) for way, found in ways]
        result = merge_expressions(scope, condition, values[0], values[1], _differing)
        scope.result = (Returned(result),)


def meet(
    scope: Scope,
    condition: Value,
    escapes: frozenset[Escape],
    bodies: tuple[Callable[[], None], Callable[[], None]],
    description: str,
) -> None:
    """Build an `if` whose branches meet behind it, and then return if one of them did."""
    pending = scope.pending
    scope.pending = (*pending, Rest("meeting"))
    branch(scope, condition, escapes, bodies, description)
    scope.pending = pending
    returned, scope.result = scope.result, None
    _return(scope, returned or (), description)


def _return(scope: Scope, returned: tuple[Returned, ...], description: str) -> None:
    """Return the first of several results of which one was met, or none."""
    if not returned:
        return
    first, *others = returned

    def found() -> None:
        scope.result = (Returned(first.value),)

    if not isinstance(first.where, Value):
        found()
        return
    bodies = found, partial(_return, scope, tuple(others), description)
    branch(scope, first.where, frozenset({"return"}), bodies, description)


def is_followed_twice(scope: Scope, statement: ast.If) -> bool:
    """Return whether both branches of an `if` with a `return` get to something that follows."""
    rests = scope.pending[_innermost(scope, "meeting") + 1 :]
    return any(rest.statements for rest in rests) and returns_or_goes_on(statement)


def returns_or_goes_on(statement: ast.If) -> bool:
    """Return whether only `return` leaves an `if` early, and both branches may get to its end."""
    branches = statement.body, statement.orelse
    return escapes_of(chain(*branches)) == {"return"} and all(map(_has_end, branches))


def _has_end(statements: Sequence[ast.stmt]) -> bool:
    """Return whether statements can be left at their end."""
    for statement in statements:
        if isinstance(statement, ast.Return | ast.Break | ast.Continue):
            return False
        if isinstance(statement, ast.If) and not (
            _has_end(statement.body) or _has_end(statement.orelse)
        ):
            return False
    return True


def leave(scope: Scope, word: Literal["break", "continue"]) -> None:
    """Lower a `break` or `continue`: what follows it in its iteration is not lowered."""
    if word == "break":
        scope.assign(scope.pending[_innermost(scope, "iteration")].flag, Constant(True))
    scope.leaving = True


def _rest_returns(scope: Scope) -> bool:
    """Return whether what the branches go on with in this iteration may return."""
    rest = scope.pending[_innermost(scope, "iteration") + 1 :]
    return any("return" in escapes_of(later.statements) for later in rest)


def _innermost(scope: Scope, kind: Literal["iteration", "meeting"]) -> int:
    """Return where in `pending` the innermost such place is, -1 if there is none."""
    depths = [depth for depth, rest in enumerate(scope.pending) if rest.kind == kind]
    return depths[-1] if depths else -1


def _continue_to(scope: Scope, depth: int) -> None:
    """Lower what comes next until `depth` entries of `pending` remain, or a `return`."""
    while scope.result is None and (scope.leaving or len(scope.pending) > depth):
        if scope.leaving:
            scope.pending = scope.pending[: _innermost(scope, "iteration") + 1]
            scope.leaving = False
            continue
        *remaining, rest = scope.pending
        scope.pending = tuple(remaining)
        if rest.execute is not None:
            _count_copy(scope, rest)
            rest.execute()


def _count_copy(scope: Scope, rest: Rest) -> None:
    if rest.is_lowered and rest.statements:
        scope.copies += 1
    rest.is_lowered = True
    if scope.copies > _MAX_COPIES:
        msg = (
            "what follows these `if`s is lowered once for every way to get there, and there are "
            f"more than {_MAX_COPIES} ways: in an inner `if` set a variable (`done = True`, and "
            "`done = False` before the outer `if`) instead of leaving, and write `if done: break`, "
            "`if done: continue` or `if done: return` behind the outer one"
        )
        raise KernelSyntaxError(msg)


def _differing(left: str, right: str, remedy: str) -> KernelTypeError:
    msg = (
        f"this `if` leads to a `return` of {left} in one branch and of {right} in the other; "
        f"a function returns one type: {remedy}"
    )
    return KernelTypeError(msg)
