"""The names that a kernel takes from outside: which they are, and the Python object behind each.

Names resolve as Python's do: closure, globals, builtins. A dotted name is followed through modules,
so `tl.exp` and `rows.row_offsets` are single references. What an object may be is decided in
`kernel.py`.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from tilewright.abi.keys import annotation_text
from tilewright.errors import KernelNameError, SourceLocation
from tilewright.language.source import parameter_names
from tilewright.language.types import Tile, constexpr
from tilewright.lazy_dataclass import dataclass

MISSING: Any = object()

_NO_ANNOTATIONS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FreeName:
    """A free name with the attributes that follow it: `tl.exp` is `("tl", "exp")` at its node."""

    path: tuple[str, ...]
    node: ast.expr


def free_names(tree: ast.FunctionDef) -> tuple[FreeName, ...]:
    """Return the free names of a kernel in order of appearance.

    Decorators, defaults and annotations belong to the code around the kernel and are left out.
    """
    bound = set(parameter_names(tree))
    for statement in tree.body:
        bound.update(
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
    found = _names_in(tree.body)
    return tuple(name for name in found if name.path[0] not in bound)


def local_annotations(tree: ast.FunctionDef) -> tuple[str, ...]:
    """Return the dotted names that annotate local variables, in order of appearance."""
    nodes = (node for statement in tree.body for node in ast.walk(statement))
    texts = (annotation_text(node.annotation) for node in nodes if isinstance(node, ast.AnnAssign))
    return tuple(dict.fromkeys(text for text in texts if text))


def look_up(function: FunctionType, name: str) -> object:
    """Return what `name` means inside `function`, or MISSING; an annotated constexpr is wrapped."""
    code = function.__code__
    if name in code.co_freevars and function.__closure__ is not None:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:  # the enclosing function has not assigned it yet
            return MISSING
    if name in function.__globals__:
        return _wrapped(function.__globals__, name)
    return getattr(builtins, name, MISSING)


def attribute_of(module: ModuleType, name: str) -> object:
    """Return a module's attribute, or MISSING; an annotated constexpr is wrapped."""
    if name in vars(module):
        return _wrapped(vars(module), name)
    return getattr(module, name, MISSING)


def not_found(what: str, name: str, known: list[str], location: SourceLocation) -> KernelNameError:
    """Return the error for a name that does not exist, with the nearest ones that do."""
    near = get_close_matches(name, known, n=3)
    hint = f"; did you mean {' or '.join(f'`{candidate}`' for candidate in near)}?" if near else ""
    return KernelNameError(f"{what}{hint}", (location,))


def is_constexpr_annotation(annotation: object, look_up: Callable[[str], object]) -> bool:
    """Return whether an annotation, an object or text to be looked up, is `tl.constexpr`."""
    if annotation is constexpr:
        return True
    text = getattr(annotation, "__forward_arg__", annotation)  # what Python 3.14 could not resolve
    if not isinstance(text, str):
        return False
    text = text.strip(" '\"")
    value = _follow(text, look_up)
    # An import inside the function around the kernel cannot be seen from here; its spelling can.
    return value is constexpr or (value is MISSING and text.endswith("constexpr"))


def is_tile_annotation(text: str, look_up: Callable[[str], object]) -> bool:
    """Return whether the text of an annotation means `tl.tensor`, which says nothing."""
    return _follow(text.strip(" '\""), look_up) is Tile


def _follow(text: str, look_up: Callable[[str], object]) -> object:
    root, *attributes = text.split(".")
    value = look_up(root)
    for attribute in attributes:
        value = MISSING if value is MISSING else getattr(value, attribute, MISSING)
    return value


def annotations_of(function: FunctionType) -> Mapping[str, object]:
    """Return a function's annotations as objects or text.

    Names that only a type checker knows do no harm.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
    return function.__annotations__


def _names_in(statements: list[ast.stmt]) -> Iterator[FreeName]:
    """Yield the names that are read, in order; by a stack of its own, for sums of any length."""
    pending: list[ast.AST] = list(reversed(statements))
    while pending:
        node = inner = pending.pop()
        attributes: list[str] = []
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and isinstance(node, ast.expr):
            if isinstance(inner.ctx, ast.Load):
                yield FreeName((inner.id, *reversed(attributes)), node)
            continue
        children = [
            item
            for field, value in ast.iter_fields(node)
            for item in (value if isinstance(value, list) else [value])
            if isinstance(item, ast.AST) and field != "annotation"
        ]
        pending.extend(reversed(children))


def _wrapped(namespace: Mapping[str, Any], name: str) -> object:
    value = namespace[name]
    if isinstance(value, constexpr):
        return value
    annotation = _module_annotations(namespace).get(name)
    if annotation is None:
        return value
    found = is_constexpr_annotation(annotation, lambda root: namespace.get(root, MISSING))
    return constexpr(value) if found else value


def _module_annotations(namespace: Mapping[str, Any]) -> Mapping[str, object]:
    annotations = namespace.get("__annotations__")
    # Exactly what a module has is told apart without asking an abstract class, once for each name.
    if type(annotations) is dict:
        return annotations
    # Python 3.14 keeps a function that computes them; 1 asks for objects rather than text.
    annotate = namespace.get("__annotate__")
    if annotations is None and annotate is None:
        return _NO_ANNOTATIONS
    if isinstance(annotations, Mapping):
        return annotations
    try:
        result = annotate(1) if annotate is not None else {}
    except NameError:  # a name that only a type checker knows: no constexpr of ours is among them
        return {}
    return result if isinstance(result, Mapping) else {}
