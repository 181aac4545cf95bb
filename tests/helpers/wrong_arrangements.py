"""Wrong programs of mathematics, shapes, random numbers and PTX, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram, in_kernel
from tilewright.errors import CompileError, KernelTypeError, KernelValueError


def _wrong(name: str, error: type[CompileError], says: tuple[str, ...], line: str) -> WrongProgram:
    return WrongProgram(name, error, says, in_kernel(f"t = tl.arange(0, B)\n{line}"))


MATHEMATICS = (
    _wrong(
        "umulhi of floats",
        KernelTypeError,
        ("tl.umulhi", "32- or 64-bit integers", "f32 scalar", "tl.uint32"),
        "a = tl.umulhi(f, f)  # here",
    ),
    _wrong(
        "softmax of a scalar",
        KernelTypeError,
        ("`x` of tl.softmax", "a tile", "f32 scalar"),
        "a = tl.softmax(f)  # here",
    ),
    _wrong(
        "softmax with keep_dims",
        KernelTypeError,
        ("has no `keep_dims`", "shape of `x`"),
        "a = tl.softmax(t, keep_dims=True)  # here",
    ),
    _wrong(
        "run-time propagate_nan",
        KernelTypeError,
        ("`propagate_nan` of tl.maximum", "known at compile time"),
        "a = tl.maximum(f, 0.0, propagate_nan=n)  # here",
    ),
    _wrong(
        "rounding of a cast that widens",
        KernelTypeError,
        ("`fp_downcast_rounding`", "become narrower", "f32 scalar to tl.float64"),
        "a = f.to(tl.float64, fp_downcast_rounding='rtz')  # here",
    ),
    _wrong(
        "unknown rounding",
        KernelValueError,
        ("'rtne', 'rtz'", "'rtn'"),
        "a = tl.cast(f, tl.float16, fp_downcast_rounding='rtn')  # here",
    ),
    _wrong(
        "eight bits towards zero",
        KernelTypeError,
        ("tl.float8e5", "to nearest even only"),
        "a = f.to(tl.float8e5, fp_downcast_rounding='rtz')  # here",
    ),
    _wrong(
        "swizzle of floats",
        KernelTypeError,
        ("tl.swizzle2d takes integers", "f32 scalar"),
        "a, b = tl.swizzle2d(n, f, 4, 4, 2)  # here",
    ),
    _wrong(
        "method that is none",
        KernelTypeError,
        ("no attribute `sort_of`", "dtype, shape, numel, T, to", "as methods"),
        "a = t.sort_of()  # here",
    ),
    _wrong(
        "libdevice of a pointer",
        KernelTypeError,
        ("tl.libdevice.tan takes numbers", "pointer to f32"),
        "a = tl.libdevice.tan(x)  # here",
    ),
)

SHAPES = (
    _wrong(
        "permute without an axis",
        KernelValueError,
        ("each of the 2 axes once", "tuple"),
        "a = tl.permute(t[None, :], 1, 1)  # here",
    ),
    _wrong(
        "split of other than two",
        KernelTypeError,
        ("tl.split", "last axis has extent 2", "i32 tile [64]"),
        "a, b = tl.split(t)  # here",
    ),
    _wrong(
        "split of pointers",
        KernelTypeError,
        ("tl.split takes a tile of numbers", "do it to the offsets"),
        "a, b = tl.split(tl.reshape(x + t, B // 2, 2))  # here",
    ),
    _wrong(
        "join of pointers",
        KernelTypeError,
        ("tl.join takes numbers", "pointers to f32"),
        "a = tl.join(x + t, x + t)  # here",
    ),
    _wrong(
        "cat of other shapes",
        KernelTypeError,
        ("tl.cat takes tiles of one shape", "[64]", "[32]", "powers of two"),
        "a = tl.cat(t, tl.arange(0, 32))  # here",
    ),
    _wrong(
        "flip without an axis",
        KernelTypeError,
        ("needs `dim`", "the axis to reverse"),
        "a = tl.flip(t[None, :])  # here",
    ),
    _wrong(
        "squeeze of an axis that is there",
        KernelTypeError,
        ("extent 1", "axis 0 of i32 tile [64] is no such"),
        "a = tl.squeeze(t, 0)  # here",
    ),
    _wrong(
        "axis inserted twice",
        KernelValueError,
        ("names a place twice",),
        "a = tl.expand_dims(t, (0, 0))  # here",
    ),
    _wrong(
        "view of another size",
        KernelTypeError,
        ("64 elements", "[4, 4]", "16"),
        "a = t.view(4, 4)  # here",
    ),
)

RANDOM = (
    _wrong(
        "seed that is a float",
        KernelTypeError,
        ("`seed` of tl.rand is an integer", "f32 scalar"),
        "a = tl.rand(f, t)  # here",
    ),
    _wrong(
        "offset that is a float",
        KernelTypeError,
        ("`offset` of tl.randint is an integer", "f32 tile [64]"),
        "a = tl.randint(n, t.to(tl.float32))  # here",
    ),
    _wrong(
        "no rounds",
        KernelValueError,
        ("`n_rounds` of tl.randn is 0", "1 to 16"),
        "a = tl.randn(n, t, 0)  # here",
    ),
)

PTX = (
    _wrong(
        "register of another width",
        KernelValueError,
        ("results of i64, 1 at a time", "`r` has 32 bits", "64"),
        "a = tl.inline_asm_elementwise('', '=r,r', [t], tl.int64, True, 1)  # here",
    ),
    _wrong(
        "pointer to inline PTX",
        KernelTypeError,
        ("tl.inline_asm_elementwise takes numbers", "pointer to f32"),
        "a = tl.inline_asm_elementwise('', '=r,l', [x], tl.int32, True, 1)  # here",
    ),
    _wrong(
        "reference that is no kernel",
        KernelTypeError,
        ("`reference`", "is a kernel", "function `tl.exp`"),
        "a = tl.inline_asm_elementwise('', '=r,r', [t], tl.int32, True, 1, tl.exp)  # here",
    ),
    _wrong(
        "statement without its end",
        KernelValueError,
        ("`asm`", "`;` at its end", "'mov.b32 $0, $1'"),
        "a = tl.inline_asm_elementwise('mov.b32 $0, $1', '=r,r', [t], tl.int32, True, 1)  # here",
    ),
    _wrong(
        "brace that is not closed",
        KernelValueError,
        ("`asm`", "`}` for every `{`"),
        "a = tl.inline_asm_elementwise('{mov.b32 $0, $1;', '=r,r', [t], tl.int32, True, 1)  # here",
    ),
    _wrong(
        "register that is no number",
        KernelValueError,
        ("`asm`", "'$x, $1;'", "`$$`"),
        "a = tl.inline_asm_elementwise('abs.s32 $x, $1;', '=r,r', [t], tl.int32, True, 1)  # here",
    ),
    _wrong(
        "register with a modifier",
        KernelValueError,
        ("`asm`", "'${0:u};'", "`${0}`"),
        "a = tl.inline_asm_elementwise('x ${0:u};', '=r,r', [t], tl.int32, True, 1)  # here",
    ),
    _wrong(
        "result that two arguments are tied to",
        KernelValueError,
        ("`constraints`", "`0` ties two arguments to one result"),
        "a = tl.inline_asm_elementwise('', '=r,0,0', [t, t], tl.int32, True, 1)  # here",
    ),
    _wrong(
        "register that is not there",
        KernelValueError,
        ("`asm`", "names the register $7", "'=r,r' has 2", "`$$`"),
        "a = tl.inline_asm_elementwise('mov.b32 $0, $7;', '=r,r', [t], tl.int32, True, 1)  # here",
    ),
)

PROGRAMS = (*MATHEMATICS, *SHAPES, *RANDOM, *PTX)
