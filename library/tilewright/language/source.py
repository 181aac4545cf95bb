"""From a Python function to its syntax tree, with the line numbers of the file.

The whole file is parsed and the function found in it by name and first line, instead of cutting out
and dedenting the function's text as `inspect.getsource` does: so every node carries its real
position, and the function may stand in a class, a test, a closure or `__main__`, under any
decorators.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType

from tilewright.errors import KernelSyntaxError, SourceLocation


def find_tree(function: FunctionType) -> ast.FunctionDef:
    """Return the `def` of `function`; raises KernelSyntaxError when no source fits it."""
    code = function.__code__
    # A module that was imported again has another text than the one that is remembered.
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        msg = (
            f"kernel `{function.__name__}` has no source text: {code.co_filename!r} cannot be "
            "read. Kernels are compiled from source, so define them in a file, not in exec() or a "
            "plain interactive session"
        )
        raise KernelSyntaxError(msg, (location_of_function(function),))
    with bounded_nesting(lambda: location_of_function(function)):
        trees = _functions("".join(lines), code.co_filename)
    for tree in trees:
        if tree.name == code.co_name and first_line(tree) == code.co_firstlineno:
            if (
                parameter_names(tree)
                != code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            ):
                break
            return tree
    msg = (
        f"kernel `{function.__name__}` was not found at line {code.co_firstlineno} of "
        f"{code.co_filename}: the file changed after it was imported; start the process again"
    )
    raise KernelSyntaxError(msg, (location_of_function(function),))


def location_of_function(function: FunctionType) -> SourceLocation:
    """Return the first line of a function, decorators included; reads no file."""
    code = function.__code__
    return SourceLocation(code.co_filename, code.co_firstlineno, 0, 0, function.__name__)


def location_of_node(node: ast.AST, *, file: str, function: str) -> SourceLocation:
    """Return the span of `node`, cut at the end of its first line.

    Python counts columns in UTF-8 bytes, a SourceLocation in characters, because that is where a
    caret goes.
    """
    line = getattr(node, "lineno", 1)
    text = linecache.getline(file, line).rstrip("\n")
    start = _characters(text, getattr(node, "col_offset", 0))
    if getattr(node, "end_lineno", line) != line:
        return SourceLocation(file, line, start, len(text), function)
    return SourceLocation(
        file, line, start, _characters(text, getattr(node, "end_col_offset", 0)), function
    )


@contextmanager
def bounded_nesting(locate: Callable[[], SourceLocation]) -> Iterator[None]:
    """Raise KernelSyntaxError with the user's line where a kernel nests beyond Python's limit.

    Long sums are no such thing: they are walked in loops. What comes here nests in another way:
    parentheses, and branches, of which each `elif` and what follows an early `return` is one.
    """
    try:
        yield
    except RecursionError:
        msg = (
            "this is nested too deeply to be compiled: assign parts of an expression to variables, "
            "look up in memory what a chain of `elif` chooses, or move branches to other kernels"
        )
        # The traceback of a thousand frames says nothing to the reader.
        raise KernelSyntaxError(msg, (locate(),)) from None


def parameter_names(tree: ast.FunctionDef) -> tuple[str, ...]:
    """Return the names of a function's parameters in order, without `*args` and `**kwargs`."""
    arguments = tree.args
    return tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def first_line(tree: ast.FunctionDef) -> int:
    """Return where a function begins by its code object: at the first decorator."""
    return min((decorator.lineno for decorator in tree.decorator_list), default=tree.lineno)


# The text is part of the key, so a file that changed is parsed again. A process compiles from few
# files.
@lru_cache(maxsize=64)
def _functions(text: str, file: str) -> tuple[ast.FunctionDef, ...]:
    try:
        module = ast.parse(text, filename=file)
    except SyntaxError as error:
        msg = f"{file} cannot be parsed any more ({error}): it changed after it was imported"
        raise KernelSyntaxError(msg) from error
    return tuple(node for node in ast.walk(module) if isinstance(node, ast.FunctionDef))


def _characters(text: str, offset: int) -> int:
    encoded = text.encode()
    # Past the end of the text (a file that changed or is gone) bytes are the best count there is.
    return len(encoded[:offset].decode(errors="replace")) if offset <= len(encoded) else offset
