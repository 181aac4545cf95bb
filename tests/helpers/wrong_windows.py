"""Wrong programs of block pointers, promises, checks and loops' options, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram, in_kernel
from tilewright.errors import CompileError, KernelTypeError, KernelValueError


def _wrong(name: str, error: type[CompileError], says: tuple[str, ...], body: str) -> WrongProgram:
    return WrongProgram(name, error, says, in_kernel(body))


_WINDOW = "a = tl.make_block_ptr(x, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))\n"

BLOCK_POINTERS = (
    _wrong(
        "window of a tile of pointers",
        KernelTypeError,
        ("`base` of tl.make_block_ptr is a pointer", "tile [64] of pointers to f32"),
        "a = tl.make_block_ptr(x + tl.arange(0, B), (n,), (1,), (0,), (16,), (0,))  # here",
    ),
    _wrong(
        "window with too few strides",
        KernelTypeError,
        ("`strides` of tl.make_block_ptr has one integer for each of the 2 axes",),
        "a = tl.make_block_ptr(x, (n, n), (1,), (0, 0), (16, 16), (1, 0))  # here",
    ),
    _wrong(
        "window with a float offset",
        KernelTypeError,
        ("`offsets` of tl.make_block_ptr", "f32 scalar"),
        "a = tl.make_block_ptr(x, (n,), (1,), (f,), (16,), (0,))  # here",
    ),
    _wrong(
        "window of run-time extent",
        KernelTypeError,
        ("extent of `block_shape` of tl.make_block_ptr", "i64 scalar"),
        "a = tl.make_block_ptr(x, (n,), (1,), (0,), (n,), (0,))  # here",
    ),
    _wrong(
        "window of odd extent",
        KernelValueError,
        ("powers of two", "got 24"),
        "a = tl.make_block_ptr(x, (n,), (1,), (0,), (24,), (0,))  # here",
    ),
    _wrong(
        "window order",
        KernelValueError,
        ("`order` of tl.make_block_ptr names each of the 2 axes once",),
        "a = tl.make_block_ptr(x, (n, n), (n, 1), (0, 0), (16, 16), (1, 1))  # here",
    ),
    _wrong(
        "boundary check of an axis that is not there",
        KernelValueError,
        ("`boundary_check` of tl.load is 2", "rank 2"),
        _WINDOW + "b = tl.load(a, boundary_check=(0, 2))  # here",
    ),
    _wrong(
        "mask of a window",
        KernelTypeError,
        ("tl.load of a block pointer takes no `mask`", "boundary_check"),
        _WINDOW + "b = tl.load(a, mask=n > 0)  # here",
    ),
    _wrong(
        "boundary check without a window",
        KernelTypeError,
        ("`boundary_check` of tl.store is for block pointers", "`mask`"),
        "tl.store(x, 1.0, boundary_check=(0,))  # here",
    ),
    _wrong(
        "padding word",
        KernelValueError,
        ("`padding_option` of tl.load", "'zero', 'nan'", "'inf'"),
        _WINDOW + "b = tl.load(a, boundary_check=(0,), padding_option='inf')  # here",
    ),
    _wrong(
        "advance of a pointer",
        KernelTypeError,
        ("`base` of tl.advance is a block pointer", "pointer to f32"),
        "a = tl.advance(x, (1,))  # here",
    ),
    _wrong(
        "advance by too much",
        KernelTypeError,
        ("`offsets` of tl.advance has one integer for each of the 2 axes",),
        _WINDOW + "b = tl.advance(a, (1, 2, 3))  # here",
    ),
    _wrong(
        "arithmetic on a window",
        KernelTypeError,
        ("`+`", "block pointer [16, 16] to f32"),
        _WINDOW + "b = a + 1  # here",
    ),
    _wrong(
        "windows of two shapes",
        KernelTypeError,
        ("block pointer [16, 16] to f32", "block pointer [8] to f32"),
        _WINDOW + "if n > 0:  # here\n"
        "    a = tl.make_block_ptr(x, (n,), (1,), (0,), (8,), (0,))\nb = a",
    ),
    _wrong(
        "storing too much through a window",
        KernelTypeError,
        ("`value` of tl.store has shape [64]", "[16, 16]"),
        _WINDOW + "tl.store(a, tl.zeros(B, tl.float32))  # here",
    ),
)

HINTS_AND_CHECKS = (
    _wrong(
        "promise of a float",
        KernelTypeError,
        ("tl.multiple_of takes integers or pointers", "f32 scalar"),
        "a = tl.multiple_of(f, 4)  # here",
    ),
    _wrong(
        "promise of nothing",
        KernelValueError,
        ("`divisor` of tl.multiple_of is at least 1, got 0",),
        "a = tl.multiple_of(n, 0)  # here",
    ),
    _wrong(
        "promise at run time",
        KernelTypeError,
        ("`divisor` of tl.multiple_of is an integer known at compile time", "i64 scalar"),
        "a = tl.multiple_of(n, n)  # here",
    ),
    _wrong(
        "promise of too many axes",
        KernelTypeError,
        ("`run` of tl.max_contiguous has a number for each of the 1 axes", "got 2"),
        "a = tl.max_contiguous(tl.arange(0, B), (8, 8))  # here",
    ),
    _wrong(
        "runs of a scalar",
        KernelTypeError,
        ("tl.max_contiguous takes a tile", "i64 scalar"),
        "a = tl.max_contiguous(n, 8)  # here",
    ),
    _wrong(
        "assumption that is false",
        KernelValueError,
        ("tl.assume", "false at compile time"),
        "tl.assume(B < 64)  # here",
    ),
    _wrong(
        "assumption of a tile",
        KernelTypeError,
        ("tl.assume takes one bool for the whole program", "i1 tile [64]"),
        "tl.assume(tl.arange(0, B) >= 0)  # here",
    ),
    _wrong(
        "room for more programs than any GPU has",
        KernelValueError,
        ("`programs` of tl.resident is 1 to 32", "got 33"),
        "tl.resident(33)  # here",
    ),
    _wrong(
        "room for as many programs as a launch says",
        KernelTypeError,
        ("`programs` of tl.resident is an integer known at compile time", "i64 scalar"),
        "tl.resident(n)  # here",
    ),
    _wrong(
        "check of a pointer",
        KernelTypeError,
        ("`condition` of tl.device_assert", "pointer to f32"),
        "tl.device_assert(x)  # here",
    ),
    _wrong(
        "print of nothing",
        KernelTypeError,
        ("tl.device_print takes values after the prefix", "tl.static_print"),
        "tl.device_print('here')  # here",
    ),
    _wrong(
        "print of a pointer",
        KernelTypeError,
        ("tl.device_print prints numbers", "pointer to f32"),
        "tl.device_print('x', x)  # here",
    ),
    _wrong(
        "message that is no text",
        KernelTypeError,
        ("`message` of tl.device_assert is a string", "constexpr 3"),
        "tl.device_assert(n > 0, 3)  # here",
    ),
    _wrong(
        "unrolling by a run-time factor",
        KernelTypeError,
        ("`loop_unroll_factor` of tl.range is an integer known at compile time", "i64 scalar"),
        "for i in tl.range(n, loop_unroll_factor=n):  # here\n    pass",
    ),
    _wrong(
        "unrolling by zero",
        KernelValueError,
        ("`loop_unroll_factor` of tl.range is at least 1, got 0",),
        "for i in tl.range(n, loop_unroll_factor=0):  # here\n    pass",
    ),
    _wrong(
        "zero stages",
        KernelValueError,
        ("`num_stages` of tl.range is at least 1, got 0",),
        "for i in tl.range(n, num_stages=0):  # here\n    pass",
    ),
    _wrong(
        "flag of a loop that is no flag",
        KernelTypeError,
        ("`flatten` of tl.range is True or False", "constexpr 1"),
        "for i in tl.range(n, flatten=1):  # here\n    pass",
    ),
    _wrong(
        "unknown option of a loop",
        KernelTypeError,
        ("tl.range", "'unroll'"),
        "for i in tl.range(n, unroll=2):  # here\n    pass",
    ),
    _wrong(
        "item of many",
        KernelTypeError,
        ("x.item() takes a tile of one element", "i32 tile [64] has 64"),
        "a = tl.arange(0, B).item()  # here",
    ),
    _wrong(
        "range of a dtype",
        KernelTypeError,
        ("dtype f32 has no attribute `shape`",),
        "a = x.dtype.shape  # here",
    ),
)

PROGRAMS = (*BLOCK_POINTERS, *HINTS_AND_CHECKS)
