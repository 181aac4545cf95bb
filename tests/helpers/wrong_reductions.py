"""Wrong programs of reductions, scans, sorts and look-ups, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram, in_kernel
from tilewright.errors import CompileError, KernelSyntaxError, KernelTypeError, KernelValueError

_FUNCTIONS = """\
@tl.kernel
def plus(a, b):
    return a + b

@tl.kernel
def pair(a, b):
    return a, b

@tl.kernel
def wide(a, b):
    return a.to(tl.float64) + b
"""


def _wrong(name: str, error: type[CompileError], says: tuple[str, ...], line: str) -> WrongProgram:
    head = "t = tl.arange(0, B)\nm = tl.reshape(t, (4, 16))\nv = tl.load(x + t)\n"
    return WrongProgram(name, error, says, f"{_FUNCTIONS}\n{in_kernel(head + line)}")


PROGRAMS = (
    _wrong(
        "argmax of a scalar",
        KernelTypeError,
        ("tl.argmax takes a tile", "i64 scalar"),
        "a = tl.argmax(n, 0)  # here",
    ),
    _wrong(
        "argmin along an axis that is not there",
        KernelValueError,
        ("`axis` of tl.argmin is 2", "rank 2"),
        "a = tl.argmin(m, 2)  # here",
    ),
    _wrong(
        "indices asked for at run time",
        KernelTypeError,
        ("`return_indices` of tl.max is True or False", "i1 scalar"),
        "a = tl.max(t, 0, return_indices=n > 0)  # here",
    ),
    _wrong(
        "bits of floats",
        KernelTypeError,
        ("tl.xor_sum takes integers or bools", "f32 tile [64]", ".to(...)"),
        "a = tl.xor_sum(v, 0)  # here",
    ),
    _wrong(
        "reduction without a function",
        KernelTypeError,
        ("`combine_fn` of tl.reduce", "@tl.kernel", "tl.maximum", "constexpr 3"),
        "a = tl.reduce(t, 0, 3)  # here",
    ),
    _wrong(
        "reduction of a number",
        KernelTypeError,
        ("`x` of tl.reduce takes a tile", "f32 scalar"),
        "a = tl.reduce(f, 0, plus)  # here",
    ),
    _wrong(
        "reduction of tiles of two shapes",
        KernelTypeError,
        ("tiles of one shape", "i32 tile [64]", "i32 tile [4, 16]", "tl.broadcast_to"),
        "a = tl.reduce((t, m), 0, pair)  # here",
    ),
    _wrong(
        "reduction of pointers",
        KernelTypeError,
        ("`x` of tl.reduce are tiles of numbers", "pointers to f32"),
        "a = tl.reduce(x + t, 0, plus)  # here",
    ),
    _wrong(
        "function that returns too much",
        KernelTypeError,
        ("`pair` combines 1 tiles in tl.reduce", "tuple (i32 scalar, i32 scalar)"),
        "a = tl.reduce(t, 0, pair)  # here",
    ),
    _wrong(
        "function that returns another dtype",
        KernelTypeError,
        ("`wide` returns f64 scalar", "tl.associative_scan of a tile of f32", "tl.float32"),
        "a = tl.associative_scan(v, 0, wide)  # here",
    ),
    _wrong(
        "function of too few tiles",
        KernelTypeError,
        ("plus(a, b) takes 2 arguments, got 4",),
        "a = tl.reduce((t, t), 0, plus)  # here",
    ),
    _wrong(
        "scan along an axis that is not there",
        KernelValueError,
        ("`axis` of tl.cumsum is 1", "rank 1"),
        "a = tl.cumsum(t, 1)  # here",
    ),
    _wrong(
        "scan in a direction of run time",
        KernelTypeError,
        ("`reverse` of tl.cumprod is True or False", "i1 scalar"),
        "a = tl.cumprod(t, 0, n > 0)  # here",
    ),
    _wrong(
        "sum of a dtype that is none",
        KernelTypeError,
        ("`dtype` of tl.cumsum is one of", "constexpr 'f32'"),
        "a = tl.cumsum(t, 0, dtype='f32')  # here",
    ),
    _wrong(
        "sort of pointers",
        KernelTypeError,
        ("tl.sort takes a tile of numbers", "pointers to f32"),
        "a = tl.sort(x + t)  # here",
    ),
    _wrong(
        "sort of eight-bit floats",
        KernelTypeError,
        ("tl.sort does not compute in f8e5m2", ".to(tl.float16)"),
        "a = tl.sort(tl.zeros(B, tl.float8e5))  # here",
    ),
    _wrong(
        "more than there are",
        KernelValueError,
        ("`k` of tl.topk", "1 to the extent 64", "got 128"),
        "a = tl.topk(t, 128)  # here",
    ),
    _wrong(
        "a number of elements that is no power of two",
        KernelValueError,
        ("`k` of tl.topk is a power of two", "got 5"),
        "a = tl.topk(t, 5)  # here",
    ),
    _wrong(
        "gather by floats",
        KernelTypeError,
        ("`index` of tl.gather is a tile of integers", "f32 tile [64]"),
        "a = tl.gather(t, v, 0)  # here",
    ),
    _wrong(
        "gather across ranks",
        KernelTypeError,
        ("tl.gather along axis 1", "agree along the other axes", "i32 tile [4, 16]", "[64]"),
        "a = tl.gather(m, t, 1)  # here",
    ),
    _wrong(
        "gather of pointers",
        KernelTypeError,
        ("tl.gather takes a tile of numbers", "gather the offsets"),
        "a = tl.gather(x + t, t, 0)  # here",
    ),
    _wrong(
        "histogram of floats",
        KernelTypeError,
        ("`x` of tl.histogram is a tile of integers", "f32 tile [64]"),
        "a = tl.histogram(v, 8)  # here",
    ),
    _wrong(
        "a number of bins that is no power of two",
        KernelValueError,
        ("`num_bins` of tl.histogram is a power of two, got 10",),
        "a = tl.histogram(t, 10)  # here",
    ),
    _wrong(
        "a histogram's mask of numbers",
        KernelTypeError,
        ("`mask` of tl.histogram is a tile of bools", "i32 tile [64]"),
        "a = tl.histogram(t, 8, mask=t)  # here",
    ),
    _wrong(
        "a triangular matrix that is not square",
        KernelTypeError,
        ("`a` of tl.solve_tril is a tile [..., N, N]", "f32 tile [4, 16]"),
        "a = tl.solve_tril(m.to(tl.float32))  # here",
    ),
    _wrong(
        "a triangular matrix of integers",
        KernelTypeError,
        ("`a` of tl.solve_tril", "tl.float64", "i32 tile [4, 16]", ".to(...)"),
        "a = tl.solve_tril(m)  # here",
    ),
    _wrong(
        "a right side that does not fit",
        KernelTypeError,
        ("`b` of tl.solve_tril is a tile [N, M]", "f32 tile [4, 16]", "f32 tile [8, 8]"),
        "a = tl.solve_tril(tl.reshape(v, 8, 8), m.to(tl.float32))  # here",
    ),
    WrongProgram(
        "function that uses memory",
        KernelTypeError,
        ("`reads` uses memory", "tl.reduce only computes with scalars"),
        "@tl.kernel\ndef reads(a, b):\n    tl.debug_barrier()  # here\n    return a + b\n"
        "@tl.kernel\ndef wrong(x):\n    a = tl.reduce(tl.arange(0, 8), 0, reads)\n",
    ),
    WrongProgram(
        "function that makes a tile",
        KernelTypeError,
        ("`makes` has a tile", "tl.associative_scan only computes with scalars"),
        "@tl.kernel\ndef makes(a, b):\n    return a + tl.sum(tl.arange(0, 8))  # here\n"
        "@tl.kernel\ndef wrong(x):\n    a = tl.associative_scan(tl.arange(0, 8), 0, makes)\n",
        "tl.arange(0, 8)",
    ),
    WrongProgram(
        "function that is recursive",
        KernelSyntaxError,
        ("kernels cannot be recursive: again -> again",),
        "@tl.kernel\ndef again(a, b):\n    return tl.reduce(tl.arange(0, 8), 0, again)  # here\n"
        "@tl.kernel\ndef wrong(x):\n    a = tl.reduce(tl.arange(0, 8), 0, again)\n",
        "tl.reduce(tl.arange(0, 8), 0, again)",
    ),
)
