"""Which implementation belongs to which stub of the language, and how a call is bound to it.

Signature and defaults are read from the stub alone; an implementation takes the scope and then the
stub's parameters, each as an operand. That they agree is checked when the implementation registers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend.operands import NONE, Constant, Operand, TupleOperand
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value

Stub = Callable[..., Any]
Implementation = Callable[..., Operand | None]
F = TypeVar("F", bound=Implementation)

_IMPLEMENTATIONS: dict[Stub, Implementation] = {}
_REFUSED: dict[Stub, Mapping[str, str]] = {}


def implements(stub: Stub, refused: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """Register what a stub builds; its parameters after the scope must be the stub's.

    `refused` maps keywords that kernels written for Triton may pass, and that the stub lacks on
    purpose, to what to write instead.
    """

    def register(implementation: F) -> F:
        expected = parameters_of(stub)
        found = parameters_of(implementation)[1:]
        assert found == expected, (
            f"{stub.__name__} has the parameters {expected}, its implementation {found}"
        )
        assert stub not in _IMPLEMENTATIONS, f"{stub.__name__} is implemented twice"
        _IMPLEMENTATIONS[stub] = implementation
        _REFUSED[stub] = refused or {}
        return implementation

    return register


def parameters_of(function: Callable[..., Any]) -> tuple[tuple[str, str], ...]:
    """Return names and kinds of a function's parameters; of `*names` the tuple is one operand."""
    parameters = inspect.signature(function).parameters.values()
    return tuple((parameter.name, _kind_of(parameter).description) for parameter in parameters)


def _kind_of(parameter: inspect.Parameter) -> Any:
    is_rest = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    return inspect.Parameter.POSITIONAL_OR_KEYWORD if is_rest else parameter.kind


def is_implemented(stub: Stub) -> bool:
    """Return whether this is a stub of the language that is registered."""
    return stub in _IMPLEMENTATIONS


def implementation_of(stub: Stub) -> Implementation:
    """Return what is registered for a stub."""
    return _IMPLEMENTATIONS[stub]


def call(
    scope: Scope,
    stub: Stub,
    name: str,
    positional: tuple[Operand, ...],
    keywords: dict[str, Operand],
) -> Operand:
    """Build a call of a function of the language."""
    result = implementation_of(stub)(scope, **bind(stub, name, positional, keywords))
    return NONE if result is None else result


def bind(
    stub: Stub, name: str, positional: tuple[Operand, ...], keywords: dict[str, Operand]
) -> dict[str, Operand]:
    """Return the arguments by the stub's parameters, defaults filled in.

    What `*names` takes is a tuple, given as one, by keyword or item by item; without it None.
    """
    signature = inspect.signature(stub)
    rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), "")
    for keyword in keywords:
        if keyword in _REFUSED[stub]:
            msg = f"{name} has no `{keyword}`: {_REFUSED[stub][keyword]}"
            raise KernelTypeError(msg)
    if rest in keywords and len(positional) < len(signature.parameters):
        positional = (*positional, keywords[rest])
        keywords = {key: value for key, value in keywords.items() if key != rest}
    try:
        bound = signature.bind(*positional, **keywords)
    except TypeError as error:
        listed = ", ".join(signature.parameters)
        msg = f"{name}({listed}): {error}"
        raise KernelTypeError(msg) from error
    arguments: dict[str, Operand] = {
        parameter.name: bound.arguments.get(parameter.name, _default(parameter))
        for parameter in signature.parameters.values()
    }
    if rest in bound.arguments:
        items: tuple[Operand, ...] = bound.arguments[rest]
        is_given_whole = len(items) == 1 and not isinstance(items[0], Value)
        arguments[rest] = items[0] if is_given_whole else TupleOperand(items)
    return arguments


def _default(parameter: inspect.Parameter) -> Operand:
    if parameter.default == ():
        return TupleOperand(())
    is_rest = parameter.kind is parameter.VAR_POSITIONAL
    return NONE if is_rest else Constant(parameter.default)
