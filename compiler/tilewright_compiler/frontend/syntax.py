"""Python that the tile language does not have, refused before anything is lowered.

Every node of the tree is visited, also those in branches that a signature never takes: whether a
kernel is well formed does not depend on its arguments. Each message says what to write instead.
"""

from __future__ import annotations

import ast

from tilewright.errors import KernelSyntaxError
from tilewright_compiler.frontend.scope import Scope

_REFUSED: dict[type[ast.AST], str] = {
    ast.FunctionDef: "functions inside kernels; define it outside, with @tl.kernel",
    ast.AsyncFunctionDef: "`async def`; a kernel has no coroutines",
    ast.ClassDef: "`class`; a kernel has no objects, use tuples",
    ast.Lambda: "`lambda`; define a function with @tl.kernel",
    ast.Delete: "`del`; a name goes away at the end of the kernel",
    ast.AsyncFor: "`async for`; use `for`",
    ast.With: "`with`; a kernel has no context managers",
    ast.AsyncWith: "`async with`; a kernel has no context managers",
    ast.Match: "`match`; use `if` and `elif`",
    ast.Raise: "`raise`; check with tl.static_assert or tl.device_assert",
    ast.Try: "`try`; a kernel has no exceptions",
    ast.TryStar: "`try`; a kernel has no exceptions",
    ast.Assert: "`assert`; use tl.static_assert for what is known at compile time, and otherwise "
    "tl.device_assert",
    ast.Import: "`import`; import at the top of the file",
    ast.ImportFrom: "`import`; import at the top of the file",
    ast.Global: "`global`; a kernel returns values or writes to memory",
    ast.Nonlocal: "`nonlocal`; a kernel returns values or writes to memory",
    ast.NamedExpr: "`:=`; assign on a line of its own",
    ast.Dict: "dicts; use a tuple",
    ast.Set: "sets; use a tuple",
    ast.ListComp: "comprehensions; use tl.static_range",
    ast.SetComp: "comprehensions; use tl.static_range",
    ast.DictComp: "comprehensions; use tl.static_range",
    ast.GeneratorExp: "generators; use tl.static_range",
    ast.Await: "`await`; a kernel has no coroutines",
    ast.Yield: "`yield`; a kernel returns once, at its end",
    ast.YieldFrom: "`yield`; a kernel returns once, at its end",
}


def check_syntax(scope: Scope, tree: ast.FunctionDef) -> None:
    """Refuse a kernel whose source uses Python that the language lacks."""
    arguments = tree.args
    for argument in (arguments.vararg, arguments.kwarg):
        if argument is not None:
            _refuse(scope, argument, "`*` and `**` parameters; name each parameter")
    # Not by recursion: an expression may be a sum of thousands of terms.
    pending: list[ast.AST] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        _check(scope, node)
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _check(scope: Scope, node: ast.AST) -> None:
    reason = _REFUSED.get(type(node))
    if reason is not None:
        _refuse(scope, node, reason)
    match node:
        case ast.For(orelse=[first, *_]) | ast.While(orelse=[first, *_]):
            _refuse(scope, first, "`else` of a loop; put it after the loop")
        case ast.Starred(ctx=ast.Store()):
            _refuse(scope, node, "`*` in a target; name each element")
        case ast.AugAssign(target=target) if not isinstance(target, ast.Name):
            _refuse(scope, target, "assignment to parts of a tile; write to memory with tl.store")
        case ast.AnnAssign(target=target, value=value) if (
            not isinstance(target, ast.Name) or value is None
        ):
            _refuse(
                scope,
                node,
                "annotations without a name and a value; write `NAME: tl.constexpr = value`",
            )
        case ast.Constant(value=bytes() | complex()):
            _refuse(scope, node, f"{type(node.value).__name__} values; use integers and floats")
        case ast.Constant() if node.value is Ellipsis:
            _refuse(scope, node, "`...`; write `:` for each axis, and `pass` for an empty body")


def _refuse(scope: Scope, node: ast.AST, reason: str) -> None:
    with scope.at(node):
        msg = f"the tile language has no {reason}"
        raise KernelSyntaxError(msg)
