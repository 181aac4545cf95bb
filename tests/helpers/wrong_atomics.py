"""Wrong programs of atomic operations, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram, in_kernel
from tilewright.errors import CompileError, KernelTypeError, KernelValueError


def _wrong(name: str, error: type[CompileError], says: tuple[str, ...], line: str) -> WrongProgram:
    return WrongProgram(name, error, says, in_kernel(f"t = tl.arange(0, B)\n{line}"))


PROGRAMS = (
    _wrong(
        "atomic operation on a number",
        KernelTypeError,
        ("`pointer` of tl.atomic_add", "a pointer", "i64 scalar"),
        "tl.atomic_add(n, 1)  # here",
    ),
    _wrong(
        "atomic sum of a tile to one element",
        KernelTypeError,
        ("`val` of tl.atomic_add has shape [64]", "does not broadcast to a scalar"),
        "tl.atomic_add(x, t)  # here",
    ),
    _wrong(
        "bits of floats",
        KernelTypeError,
        ("tl.atomic_xor takes integers, got a pointer to f32",),
        "tl.atomic_xor(x + t, 1)  # here",
    ),
    _wrong(
        "unknown order",
        KernelValueError,
        ("`sem` of tl.atomic_max", "'relaxed', 'acquire', 'release', 'acq_rel'", "'seq_cst'"),
        'tl.atomic_max(x + t, 1, sem="seq_cst")  # here',
    ),
    _wrong(
        "unknown scope",
        KernelValueError,
        ("`scope` of tl.atomic_cas", "'cta', 'gpu', 'sys'", "'system'"),
        'tl.atomic_cas(x, 0, 1, scope="system")  # here',
    ),
    _wrong(
        "mask of numbers",
        KernelTypeError,
        ("`mask` of tl.atomic_xchg", "a bool", "i32 tile [64]"),
        "tl.atomic_xchg(x + t, 1, mask=t)  # here",
    ),
    _wrong(
        "volatile at run time",
        KernelTypeError,
        ("`volatile` of tl.load is True or False, known at compile time", "i1 scalar"),
        "a = tl.load(x, volatile=n > 0)  # here",
    ),
)
