"""The names that a kernel takes from outside: which they are, and the Python object behind each.

Names resolve as Python's do: closure, globals, builtins. A dotted name is followed through modules, so
`tl.exp` and `rows.row_offsets` are single references. What an object may be is decided in `kernel.py`.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import FunctionType, ModuleType
from typing import Any

from tilewright.errors import KernelNameError, SourceLocation
from tilewright.language.source import parameter_names
from tilewright.language.types import constexpr

MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class FreeName:
    """A free name with the attributes that follow it: `tl.exp` is `("tl", "exp")` at its node."""

    path: tuple[str, ...]
    node: ast.expr


def free_names(tree: ast.FunctionDef) -> tuple[FreeName, ...]:
    """Return the free names of a kernel in order of appearance.

    Decorators, defaults and annotations belong to the code around the kernel and are left out, but for the
    annotation of a local variable, which may say `tl.constexpr`.
    """
    bound = set(parameter_names(tree))
    for statement in tree.body:
        bound.update(
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
    return tuple(
        name for statement in tree.body for name in _walk(statement) if name.path[0] not in bound
    )


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


def _walk(node: ast.AST) -> Iterator[FreeName]:
    attributes: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name) and isinstance(node, ast.expr):
        if isinstance(inner.ctx, ast.Load):
            yield FreeName((inner.id, *reversed(attributes)), node)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _wrapped(namespace: Mapping[str, Any], name: str) -> object:
    value = namespace[name]
    if isinstance(value, constexpr) or not is_constexpr_annotation(
        _annotations(namespace).get(name), namespace
    ):
        return value
    return constexpr(value)


def is_constexpr_annotation(annotation: object, namespace: Mapping[str, Any]) -> bool:
    """Return whether an annotation, as an object or as text in `namespace`, is `tl.constexpr`."""
    if not isinstance(annotation, str):
        return annotation is constexpr
    head, *attributes = annotation.split(".")
    value = namespace.get(head.strip())
    for attribute in attributes:
        value = getattr(value, attribute.strip(), None)
    return value is constexpr


def _annotations(namespace: Mapping[str, Any]) -> Mapping[str, object]:
    annotations = namespace.get("__annotations__")
    if isinstance(annotations, Mapping):
        return annotations
    annotate = namespace.get("__annotate__")
    if annotate is None:
        return {}
    return _call_annotate(annotate)


def _call_annotate(annotate: Any) -> Mapping[str, object]:
    # Python 3.14 computes annotations when asked; unknown names in them are not our business.
    try:
        result = annotate(1)
    except (NameError, AttributeError):
        return {}
    return result if isinstance(result, Mapping) else {}


def annotations_of(function: FunctionType) -> Mapping[str, object]:
    """Return a function's annotations as objects or text, without failing on names only a type checker has."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
    return function.__annotations__
