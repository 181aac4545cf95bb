"""What Triton has and the language lacks, each with what to write instead: the words of its errors.

Only a kernel that is wrong asks for these; `docs/from-triton.md` lists the differences that
kernels meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from tilewright.errors import KernelTypeError, SourceLocation

__all__ = [
    "ATTRIBUTES",
    "AUTOTUNE",
    "CONFIG",
    "DECORATOR",
    "NAMES",
    "refuse_keywords",
    "with_remedy",
]

_EIGHT_BITS = (
    "of the 8-bit floats there are tl.float8e4nv and tl.float8e5; load others as tl.uint8 and "
    "compute their values"
)
_OF_TL = "its functions are names of tl itself"
_TWO_FORMS = (
    "leave it out: a kernel has two forms whatever it is launched with, and divisible= and unit= "
    "say what the fast one assumes"
)

NAMES: Mapping[str, str] = {
    "pointer_type": (
        "pointers come from arguments of the kernel, not from integers or other pointers; pass an "
        "array and offsets into it, and for other elements a view of it, or cast what is loaded "
        "with .to(dtype, bitcast=True)"
    ),
    "map_elementwise": "call the function on the tiles, with tl.where for what it decides",
    "add": "write `x + y`",
    "sub": "write `x - y`",
    "mul": "write `x * y`",
    "float8e4b8": _EIGHT_BITS,
    "float8e4b15": _EIGHT_BITS,
    "float8e5b16": _EIGHT_BITS,
    "dot_scaled": "multiply the operands by their scales, cast them, and use tl.dot",
    "to_tensor": "write tl.cast(x, dtype) for a number that needs a dtype now",
    "dtype": "a dtype is a tl.constexpr parameter, or x.dtype",
    "tuple": "write `(a, b)`",
    "condition": "write `while condition:`",
    "PropagateNan": "write propagate_nan=True or propagate_nan=False",
    "core": _OF_TL,
    "standard": _OF_TL,
}
"""Names of the module `triton.language`."""

DECORATOR: Mapping[str, str] = {
    "do_not_specialize": _TWO_FORMS,
    "do_not_specialize_on_alignment": _TWO_FORMS,
    "noinline": "leave it out: what is inlined changes no result, and the compiler decides it",
    "debug": (
        "leave it out: tl.device_assert is always compiled, and an `if` on a tl.constexpr around "
        "it leaves it out"
    ),
    "repr": "leave it out: a kernel is called what its function is",
    "launch_metadata": "leave it out: profilers see the kernel's name",
    "version": "leave it out: a kernel that changed is another kernel",
}
"""Keywords of `triton.jit`."""

CONFIG: Mapping[str, str] = {
    "maxnreg": "write tl.resident(n) in the kernel, which bounds the registers of a thread",
    "pre_hook": "write reset_to_zero= or restore_value= of tl.autotune, or do it before the launch",
    "ir_override": "leave it out: a kernel is compiled from its source",
}
"""Keywords of `triton.Config`."""

_NO_TIMING = "leave it out: kernel.tune(grid, ...) times the configurations, when you call it"
_HOOKS = "write reset_to_zero= or restore_value=, or do it around kernel.tune(grid, ...)"

AUTOTUNE: Mapping[str, str] = {
    "warmup": _NO_TIMING,
    "rep": _NO_TIMING,
    "use_cuda_graph": _NO_TIMING,
    "do_bench": _NO_TIMING,
    "pre_hook": _HOOKS,
    "post_hook": _HOOKS,
    "cache_results": "leave it out: what kernel.tune(grid, ...) finds is kept in the cache",
}
"""Keywords of `triton.autotune`."""

ATTRIBUTES: Mapping[str, str] = {
    "warmup": (
        "launch it once, which compiles what is in no bundle and no cache, or bundle it "
        "(docs/kernel-package.md); tilewright.preload loads what is bundled"
    ),
    "run": "write kernel[grid](...)",
}
"""Attributes of a kernel."""


def with_remedy(message: str, name: str, known: Mapping[str, str]) -> str:
    """Return a message about a name, with what to write instead if it is known."""
    return f"{message}: {known[name]}" if name in known else message


def refuse_keywords(
    what: str,
    given: Iterable[str],
    known: Mapping[str, str],
    allowed: str,
    locations: tuple[SourceLocation, ...] = (),
) -> NoReturn:
    """Raise KernelTypeError for keywords that `what` does not have."""
    name = next(iter(given))
    remedy = known.get(name, f"it takes {allowed}")
    msg = f"{what} has no `{name}`: {remedy}"
    raise KernelTypeError(msg, locations)
