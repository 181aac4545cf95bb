"""`return`, `continue` and `break` under a run-time `if`: what comes after it moves into branches.

Structured control flow has no jumps. So where a branch of an `if` may leave early, what would have
run after the `if` is lowered inside each branch that gets there, up to the place where all ways
meet again: the end of the function for `return`, of the loop for `break`, of the iteration for
`continue`. In the usual form, `if done: return`, the rest is lowered once, in the other branch.

`Scope.pending` says what comes after the statement that is being lowered, innermost last. Each
entry is a `Rest`; an `iteration` is a place that `continue` goes to, and the `loop` below it does
the iterations that are left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Literal

from tilewright.errors import KernelSyntaxError, KernelTypeError
from tilewright_compiler.frontend.joins import merge_expressions, merge_variables
from tilewright_compiler.frontend.operands import NONE
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
    """Build an `if` whose branches may leave early, with all that follows up to where they meet."""
    farthest = _farthest(scope, escapes)
    target = _meeting_depth(scope, farthest)
    branches: list[Branch] = []
    results = []
    for body in bodies:
        with scope.nested(description, is_loop=False) as lowered:
            body()
            _continue_to(scope, target)
            results.append(NONE if scope.result is None else scope.result)
            scope.result = None
        branches.append(lowered)
    then, otherwise = branches
    if farthest != "return":
        merge_variables(scope, condition, then, otherwise)
        scope.leaving = farthest
        return
    scope.result = merge_expressions(
        scope, condition, (then.block, results[0]), (otherwise.block, results[1]), _differing
    )


def leave(scope: Scope, word: Literal["break", "continue"]) -> None:
    """Lower a `break` or `continue`: what follows it in its iteration is not lowered."""
    depth = _innermost(scope, "iteration")
    if depth is None:
        msg = f"`{word}` stands outside any loop"
        raise KernelSyntaxError(msg)
    is_static = depth > 0 and scope.pending[depth - 1].kind == "loop"
    if word == "break" and not is_static:
        msg = (
            f"`break` inside {scope.enclosing[-1]}, which runs on the device: make the condition "
            "part of a `while`, or put the remaining work under an `if`"
        )
        raise KernelSyntaxError(msg)
    scope.leaving = word


def _farthest(scope: Scope, escapes: frozenset[Escape]) -> Escape:
    """Return the farthest of these ways out and of those in what the branches go on with."""
    found = set(escapes)
    if "return" not in found:
        depth = _innermost(scope, "iteration")
        assert depth is not None, "Python refuses `break` and `continue` outside loops"
        for rest in scope.pending[depth + 1 :]:
            found |= escapes_of(rest.statements)
        if "break" in found and depth > 0:
            # The branch that stays goes on with the loop's remaining iterations.
            found |= escapes_of(scope.pending[depth - 1].statements) & {"return"}
    return "return" if "return" in found else "break" if "break" in found else "continue"


def _meeting_depth(scope: Scope, farthest: Escape) -> int:
    """Return how many entries of `pending` remain where the branches meet."""
    depth = _innermost(scope, "loop" if farthest == "break" else "iteration")
    if farthest == "return" or depth is None:
        return 0
    return depth if farthest == "break" else depth + 1


def _innermost(scope: Scope, kind: str) -> int | None:
    depths = [depth for depth, rest in enumerate(scope.pending) if rest.kind == kind]
    return depths[-1] if depths else None


def _continue_to(scope: Scope, target: int) -> None:
    """Lower what comes next until `target` entries of `pending` remain, or a `return`."""
    while scope.result is None and len(scope.pending) > target:
        if scope.leaving is not None:
            kind = "loop" if scope.leaving == "break" else "iteration"
            depth = _innermost(scope, kind)
            assert depth is not None, "`leave` found the loop"
            scope.pending = scope.pending[: depth + (kind == "iteration")]
            scope.leaving = None
            continue
        *remaining, rest = scope.pending
        scope.pending = tuple(remaining)
        if rest.execute is not None:
            _count_copy(scope)
            rest.execute()
    scope.leaving = None


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
