"""The parameters of a kernel, read off the Python function without its source.

Names and defaults come from the function object and `tl.constexpr` from its annotations, so that a
launch of a prebuilt kernel binds its arguments without parsing anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum
from functools import partial
from types import FunctionType

from tilewright.abi.signature import ConstexprValue, SpecializationRule
from tilewright.errors import (
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    SourceLocation,
)
from tilewright.language import captures as names
from tilewright.language.types import constexpr
from tilewright.lazy_dataclass import dataclass

LAUNCH_OPTIONS = ("num_warps", "num_stages", "stream")
"""Keyword arguments of a launch that are no parameters of the kernel."""


class NoDefault(Enum):
    """The type of NO_DEFAULT, because None is a default that a parameter may have."""

    NO_DEFAULT = "no default"


NO_DEFAULT = NoDefault.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter of a kernel; `default` is NO_DEFAULT when the launch must give a value."""

    name: str
    is_constexpr: bool
    default: ConstexprValue | NoDefault = NO_DEFAULT


def check_declaration(fn: FunctionType, rule: SpecializationRule, location: SourceLocation) -> None:
    """Refuse what can be seen without source or annotations, when the decorator runs."""
    if fn.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        msg = f"kernel `{fn.__name__}` has *args or **kwargs; name every parameter"
        raise KernelSyntaxError(msg, (location,))
    known = parameter_names(fn)
    for name in known:
        if name in LAUNCH_OPTIONS:
            msg = f"parameter `{name}` of kernel `{fn.__name__}` is a launch option; rename it"
            raise KernelSyntaxError(msg, (location,))
    for option, listed in (("divisible", rule.divisible), ("unit", rule.unit)):
        for name in listed:
            if name not in known:
                message = f"`{name}` in {option}= is no parameter of kernel `{fn.__name__}`"
                raise names.not_found(message, name, list(known), location)


def read_parameters(
    fn: FunctionType, rule: SpecializationRule, location: SourceLocation
) -> tuple[KernelParameter, ...]:
    """Return the parameters in order of declaration; raises a CompileError for a bad default."""
    given = _defaults(fn)
    annotations = names.annotations_of(fn)
    constexprs = _constexprs(fn, annotations) if annotations else ()
    parameters = tuple(
        KernelParameter(
            name,
            name in constexprs,
            _default(fn, name, given[name], location) if name in given else NO_DEFAULT,
        )
        for name in parameter_names(fn)
    )
    for name in (*rule.divisible, *rule.unit):
        if name in constexprs:
            msg = (
                f"`{name}` of kernel `{fn.__name__}` is a constexpr, whose value the "
                "compiler knows anyway; divisible= and unit= take run-time integers"
            )
            raise KernelValueError(msg, (location,))
    return parameters


def parameter_names(fn: FunctionType) -> tuple[str, ...]:
    """Return the names of the parameters in order of declaration."""
    code = fn.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _constexprs(fn: FunctionType, annotations: Mapping[str, object]) -> frozenset[str]:
    """Return the names that `tl.constexpr` annotates, by whatever name it goes in `fn`."""
    look_up = partial(names.look_up, fn)
    # Most are text and the same few words: each is looked up once.
    texts = {annotation for annotation in annotations.values() if isinstance(annotation, str)}
    known = {text for text in texts if names.is_constexpr_annotation(text, look_up)}
    return frozenset(
        name
        for name, annotation in annotations.items()
        if (
            annotation in known
            if isinstance(annotation, str)
            else names.is_constexpr_annotation(annotation, look_up)
        )
    )


def _defaults(fn: FunctionType) -> dict[str, object]:
    if fn.__defaults__ is None and fn.__kwdefaults__ is None:
        return {}
    positional = parameter_names(fn)[: fn.__code__.co_argcount]
    values = fn.__defaults__ or ()
    last = positional[len(positional) - len(values) :]
    return {**dict(zip(last, values, strict=True)), **(fn.__kwdefaults__ or {})}


def _default(
    fn: FunctionType, name: str, value: object, location: SourceLocation
) -> ConstexprValue:
    try:
        return constexpr(value).value  # type: ignore[arg-type]  # the constructor checks
    except KernelTypeError as error:
        msg = f"default of parameter `{name}` of kernel `{fn.__name__}`: {error.message}"
        raise KernelTypeError(msg, (location,)) from error
