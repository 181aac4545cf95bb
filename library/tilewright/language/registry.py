"""Which functions are the tile language: the one list that the compiler looks up.

A function of the language is a signature and a docstring. `@operation` puts it on the list; its
body is the call `outside_kernel(itself)`, because only the compiler and the interpreter give it a
meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import NoReturn, TypeVar

from tilewright.errors import OutsideKernelError

F = TypeVar("F", bound=Callable[..., object])

_FUNCTIONS: dict[str, Callable[..., object]] = {}

FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(_FUNCTIONS)
"""Every function of the language by its name, such as `exp` for `tl.exp`; complete once
`tilewright.language` is imported."""

BUILTINS: tuple[Callable[..., object], ...] = (abs, bool, float, int, len, max, min, range)
"""The Python builtins that the language gives a meaning."""


def operation(stub: F) -> F:
    """Put a stub on the list of the language's functions; names are unique over all its modules."""
    assert isinstance(stub, FunctionType)
    assert stub.__name__ not in _FUNCTIONS, f"tl.{stub.__name__} is defined twice"
    _FUNCTIONS[stub.__name__] = stub
    return stub


def is_function(candidate: object) -> bool:
    """Return whether `candidate` is a function of the language, not one that has its name."""
    return isinstance(candidate, FunctionType) and _FUNCTIONS.get(candidate.__name__) is candidate


def is_builtin(candidate: object) -> bool:
    """Return whether `candidate` is a Python builtin that the language knows."""
    return any(candidate is builtin for builtin in BUILTINS)


def outside_kernel(stub: Callable[..., object]) -> NoReturn:
    """Raise OutsideKernelError for a function of the language that plain Python called."""
    msg = (
        f"tl.{stub.__name__} was called by plain Python, where it has no meaning: it is a function "
        "of the tile language; call it inside a function decorated with @tl.kernel and launch that "
        "as kernel[grid](...)"
    )
    raise OutsideKernelError(msg)
