"""Programs that are wrong, each with what the error must say: data for `test_errors`.

A kernel is called with `x: *f32`, `h: *f16`, `n: i64`, `f: f32` and `B: tl.constexpr = 64`, as far
as it has those parameters. The comment `# here` marks the line that the error must show.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import (
    CompileError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
)


@dataclass(frozen=True, slots=True)
class WrongProgram:
    """A body (or a whole file) with the error's class and the parts of its message."""

    name: str
    error: type[CompileError]
    says: tuple[str, ...]
    text: str
    caret: str = ""


def in_kernel(body: str) -> str:
    """Return a kernel with these lines as its body."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return f"@tl.kernel\ndef wrong(x, h, n, f, B: tl.constexpr):\n{lines}\n"


def _wrong(
    name: str, error: type[CompileError], says: tuple[str, ...], body: str, caret: str = ""
) -> WrongProgram:
    return WrongProgram(name, error, says, in_kernel(body), caret)


SYNTAX = (
    _wrong(
        "assert", KernelSyntaxError, ("no `assert`", "tl.static_assert"), "assert n > 0  # here"
    ),
    _wrong("raise", KernelSyntaxError, ("no `raise`",), "raise ValueError  # here"),
    _wrong("try", KernelSyntaxError, ("no `try`",), "try:  # here\n    pass\nfinally:\n    pass"),
    _wrong("with", KernelSyntaxError, ("no `with`",), "with n:  # here\n    pass"),
    _wrong("import", KernelSyntaxError, ("no `import`", "top of the file"), "import math  # here"),
    _wrong(
        "lambda",
        KernelSyntaxError,
        ("no `lambda`", "@tl.kernel"),
        "g = lambda a: a  # here",
        "lambda a: a",
    ),
    _wrong(
        "inner function",
        KernelSyntaxError,
        ("no functions inside kernels",),
        "def g(a):  # here\n    pass",
    ),
    _wrong("class", KernelSyntaxError, ("no `class`",), "class C:  # here\n    pass"),
    _wrong("delete", KernelSyntaxError, ("no `del`",), "del n  # here"),
    _wrong("global", KernelSyntaxError, ("no `global`",), "global count  # here"),
    _wrong(
        "comprehension",
        KernelSyntaxError,
        ("comprehension", "tl.static_range"),
        "a = [i for i in (1, 2)]  # here",
    ),
    _wrong("dict", KernelSyntaxError, ("no dicts", "tuple"), "a = {1: 2}  # here"),
    _wrong(
        "format of a value",
        KernelValueError,
        ("`B` is constexpr 64", "'x.z'"),
        "tl.static_print(f'{B:x.z}')  # here",
    ),
    _wrong("walrus", KernelSyntaxError, ("`:=`",), "if (a := n) > 0:  # here\n    pass"),
    _wrong(
        "star target",
        KernelSyntaxError,
        ("no `*` in a target",),
        "a, *b = (1, 2, 3)  # here",
        "*b",
    ),
    _wrong(
        "star star argument", KernelSyntaxError, ("`**`",), "a = tl.arange(0, **(1, 2))  # here"
    ),
    _wrong(
        "loop else",
        KernelSyntaxError,
        ("`else` of a loop",),
        "for i in range(n):\n    pass\nelse:\n    a = 1  # here",
    ),
    _wrong(
        "for over tuple",
        KernelSyntaxError,
        ("`for` runs over range", "tl.static_range"),
        "for a in (1, 2):  # here\n    pass",
    ),
    _wrong(
        "two loop variables",
        KernelSyntaxError,
        ("one name", "a, b"),
        "for a, b in range(n):  # here\n    pass",
    ),
    _wrong(
        "range as value", KernelSyntaxError, ("not a value", "`for`"), "r = tl.range(0, 4)  # here"
    ),
    _wrong(
        "subscript assignment",
        KernelSyntaxError,
        ("cannot assign", "tl.store"),
        "a = tl.zeros(B, tl.float32)\na[0] = 1  # here",
        "a[0]",
    ),
    _wrong(
        "subscript augmented",
        KernelSyntaxError,
        ("tl.store",),
        "a = tl.zeros(B, tl.float32)\na[0] += 1  # here",
    ),
    _wrong("annotation", KernelSyntaxError, ("only tl.constexpr",), "a: tl.float32 = 1.0  # here"),
    _wrong(
        "tile index",
        KernelSyntaxError,
        ("only `:` and None", "constexpr 0"),
        "a = tl.arange(0, B)[0]  # here",
    ),
    _wrong("slice", KernelSyntaxError, ("`:` and None",), "a = tl.arange(0, B)[1:]  # here", "1:"),
    _wrong("matmul operator", KernelSyntaxError, ("`@`",), "a = x @ x  # here"),
    _wrong("complex number", KernelSyntaxError, ("complex",), "a = 1j  # here"),
    _wrong(
        "return in loop",
        KernelSyntaxError,
        ("`return` inside the `for` loop at line 3", "after the loop"),
        "for i in range(n):\n    return  # here",
    ),
    _wrong(
        "return in while under if",
        KernelSyntaxError,
        ("`return` inside the `while` loop at line 3",),
        "while n > 0:\n    if n == 3:\n        return  # here\n    n = n - 1",
    ),
)

NAMES = (
    _wrong(
        "undefined",
        KernelNameError,
        ("`masq` is not defined", "`mask`"),
        "mask = n > 0\na = masq  # here",
        "masq",
    ),
    _wrong(
        "undefined function", KernelNameError, ("no `laod`", "`load`"), "a = tl.laod(x)  # here"
    ),
    _wrong("before assignment", KernelNameError, ("`a`", "before"), "b = a  # here\na = 1"),
    _wrong("python function", KernelNameError, ("`print`",), "print(n)  # here"),
    _wrong(
        "only in one branch",
        KernelNameError,
        ("`a` has a value only in one branch", "line 3"),
        "if n > 0:\n    a = 1\nb = a  # here",
    ),
    _wrong(
        "only in loop",
        KernelNameError,
        ("`a` has a value only inside the `for` loop at line 3",),
        "for i in range(n):\n    a = i\nb = a  # here",
    ),
    _wrong(
        "loop variable after",
        KernelNameError,
        ("`i` is the variable of the `for` loop at line 3",),
        "for i in range(n):\n    pass\nb = i  # here",
    ),
    WrongProgram(
        "plain global",
        KernelNameError,
        ("`WIDTH`", "tl.constexpr(4)"),
        "WIDTH = 4\n@tl.kernel\ndef wrong(n):\n    a = n + WIDTH  # here\n",
    ),
)

TYPES = (
    _wrong(
        "float offset",
        KernelTypeError,
        ("moves by integers", "f32 scalar"),
        "a = x + f  # here",
        "x + f",
    ),
    _wrong(
        "pointer sum",
        KernelTypeError,
        ("pointer to f32", "pointers only move"),
        "a = x + x  # here",
    ),
    _wrong("pointer product", KernelTypeError, ("`*`", "pointers only move"), "a = x * 2  # here"),
    _wrong(
        "pointer in math", KernelTypeError, ("tl.exp", "pointer to f32"), "a = tl.exp(x)  # here"
    ),
    _wrong("pointer comparison", KernelTypeError, ("`==`", "pointer to f32"), "a = x == 0  # here"),
    _wrong("pointer negation", KernelTypeError, ("unary `-`", "pointer to f32"), "a = -x  # here"),
    _wrong("pointer cast", KernelTypeError, ("cannot be cast",), "a = x.to(tl.int32)  # here"),
    _wrong("bits of floats", KernelTypeError, ("`&`", "f32"), "a = f & 1  # here"),
    _wrong("shift of floats", KernelTypeError, ("`<<`", "f32"), "a = f << 1  # here"),
    _wrong(
        "floor division of floats", KernelTypeError, ("`//`", "tl.floor"), "a = f // 2.0  # here"
    ),
    _wrong("inversion of floats", KernelTypeError, ("`~`", "f32 scalar"), "a = ~f  # here"),
    _wrong(
        "shapes",
        KernelTypeError,
        ("[64]", "[32]", "do not broadcast", "[:, None]"),
        "a = tl.arange(0, 64) + tl.arange(0, 32)  # here",
    ),
    _wrong(
        "too many colons",
        KernelTypeError,
        ("too many `:`", "i32 tile [64]"),
        "a = tl.arange(0, B)[:, :]  # here",
    ),
    _wrong(
        "tile in if",
        KernelTypeError,
        ("`if`", "i1 tile [64]", "tl.where"),
        "if tl.arange(0, B) > 3:  # here\n    pass",
        "tl.arange(0, B) > 3",
    ),
    _wrong(
        "tile in while",
        KernelTypeError,
        ("`while`", "i1 tile [64]"),
        "while tl.arange(0, B) > 3:  # here\n    pass",
    ),
    _wrong(
        "tile in and",
        KernelTypeError,
        ("`and`", "i1 tile [64]"),
        "a = (tl.arange(0, B) > 3) and n > 0  # here",
    ),
    _wrong(
        "tile in not",
        KernelTypeError,
        ("`not`", "i1 tile [64]"),
        "a = not (tl.arange(0, B) > 3)  # here",
    ),
    _wrong(
        "tile in chain",
        KernelTypeError,
        ("chained comparison", "i1 tile [64]"),
        "a = 0 <= tl.arange(0, B) < n  # here",
    ),
    _wrong(
        "tile in range",
        KernelTypeError,
        ("end of range", "i32 tile [64]"),
        "for i in range(tl.arange(0, B)):  # here\n    pass",
    ),
    _wrong(
        "float in range",
        KernelTypeError,
        ("end of range", "f32 scalar"),
        "for i in range(f):  # here\n    pass",
    ),
    _wrong(
        "run-time static_range",
        KernelTypeError,
        ("tl.static_range", "i64 scalar"),
        "for i in tl.static_range(n):  # here\n    pass",
    ),
    _wrong(
        "run-time shape",
        KernelTypeError,
        ("extent of `shape` of tl.zeros", "i64 scalar"),
        "a = tl.zeros((n,), tl.float32)  # here",
    ),
    _wrong(
        "run-time arange",
        KernelTypeError,
        ("`end` of tl.arange", "i64 scalar"),
        "a = tl.arange(0, n)  # here",
    ),
    _wrong(
        "run-time static_assert",
        KernelTypeError,
        ("known at compile time", "i1 scalar"),
        "tl.static_assert(n > 0)  # here",
    ),
    _wrong(
        "run-time constexpr",
        KernelTypeError,
        ("`a` is annotated tl.constexpr", "i64 scalar"),
        "a: tl.constexpr = n  # here",
    ),
    _wrong(
        "load of number",
        KernelTypeError,
        ("`pointer` of tl.load", "i64 scalar"),
        "a = tl.load(n)  # here",
        "tl.load(n)",
    ),
    _wrong(
        "mask too large",
        KernelTypeError,
        ("`mask` of tl.load", "[64]", "a scalar"),
        "a = tl.load(x, mask=tl.arange(0, B) < n)  # here",
    ),
    _wrong(
        "mask of integers",
        KernelTypeError,
        ("`mask` of tl.load", "i32 tile [64]", "!= 0"),
        "a = tl.load(x + tl.arange(0, B), mask=tl.arange(0, B))  # here",
    ),
    _wrong("other without mask", KernelTypeError, ("no mask",), "a = tl.load(x, other=0)  # here"),
    _wrong(
        "stored value too large",
        KernelTypeError,
        ("`value` of tl.store", "[64]"),
        "tl.store(x, tl.arange(0, B))  # here",
    ),
    _wrong("missing argument", KernelTypeError, ("tl.store", "'value'"), "tl.store(x)  # here"),
    _wrong(
        "unknown keyword",
        KernelTypeError,
        ("tl.load", "'masc'"),
        "a = tl.load(x, masc=True)  # here",
    ),
    _wrong(
        "dtype as text",
        KernelTypeError,
        ("`dtype` of tl.zeros", "tl.float32"),
        "a = tl.zeros(B, 'float32')  # here",
    ),
    _wrong(
        "unknown attribute",
        KernelTypeError,
        ("no attribute `size`", "shape"),
        "a = tl.arange(0, B).size  # here",
    ),
    _wrong(
        "where condition",
        KernelTypeError,
        ("`condition` of tl.where", "i64 scalar"),
        "a = tl.where(n, 1, 2)  # here",
    ),
    _wrong(
        "reduce of scalar",
        KernelTypeError,
        ("tl.sum takes a tile", "i64 scalar"),
        "a = tl.sum(n, 0)  # here",
    ),
    _wrong(
        "transpose of vector", KernelTypeError, ("last two axes",), "a = tl.arange(0, B).T  # here"
    ),
    _wrong(
        "reshape size",
        KernelTypeError,
        ("64 elements", "[8, 16]", "128"),
        "a = tl.reshape(tl.arange(0, 64), (8, 16))  # here",
    ),
    _wrong(
        "star argument",
        KernelTypeError,
        ("`*` takes a tuple apart", "i64 scalar"),
        "a = tl.zeros(*n)  # here",
        "*n",
    ),
    _wrong("unpacking", KernelTypeError, ("2 names", "tuple"), "a, b = (1, 2, 3)  # here"),
    _wrong(
        "calling a tile",
        KernelTypeError,
        ("cannot be called",),
        "a = tl.arange(0, B)\nb = a(1)  # here",
    ),
    _wrong(
        "calling a dtype",
        KernelTypeError,
        ("a dtype is not called", "tl.cast(x, tl.float32)"),
        "a = tl.float32(n)  # here",
    ),
    _wrong("is", KernelTypeError, ("`is`", "None only"), "a = n is 3  # here"),
    _wrong("power", KernelTypeError, ("`**`", "tl.exp"), "a = f ** f  # here"),
    _wrong("text in arithmetic", KernelTypeError, ("`+`", "'a'"), "a = n + 'a'  # here"),
    _wrong(
        "branch types",
        KernelTypeError,
        ("`a` is i64 scalar", "line 5", "f32 scalar", "line 7", "one type"),
        "a = n\nif n > 0:  # here\n    a = n + 1\nelse:\n    a = f\nb = a",
    ),
    _wrong(
        "branch shapes",
        KernelTypeError,
        ("i32 tile [64]", "i32 tile [32]", "one shape"),
        "if n > 0:  # here\n    a = tl.arange(0, 64)\nelse:\n    a = tl.arange(0, 32)",
    ),
    _wrong(
        "conditional types",
        KernelTypeError,
        ("branches of a conditional expression", "i64 scalar", "f32 scalar"),
        "a = n if n > 0 else f  # here",
    ),
    _wrong(
        "loop types",
        KernelTypeError,
        ("`a` is f32 tile [64] before the loop (line 3)", "f32 tile [64, 64]", "line 5"),
        "a = tl.zeros(B, tl.float32)\nfor i in range(n):  # here\n    a = a + a[:, None]",
    ),
    _wrong(
        "loop dtype",
        KernelTypeError,
        ("`a` is f16 scalar before the loop (line 3)", "f32 scalar", "line 5", ".to(tl.float16)"),
        "a = tl.load(h)\nfor i in range(n):  # here\n    a = a + f",
    ),
    _wrong(
        "while types",
        KernelTypeError,
        ("`a` is i64 scalar before the loop (line 3)", "f32 scalar"),
        "a = n\nwhile a > 0:  # here\n    a = a / 2",
    ),
    _wrong(
        "constexpr in loop",
        KernelTypeError,
        ("tl.static_range",),
        "a: tl.constexpr = 1\nfor i in range(n):  # here\n    a = a + 1",
    ),
    _wrong(
        "dtype in loop",
        KernelTypeError,
        ("`a` is dtype f32", "dtype f16"),
        "a = tl.float32\nfor i in range(n):  # here\n    a = tl.float16",
    ),
    _wrong(
        "returns a value on one path",
        KernelTypeError,
        ("is launched", "i64 scalar"),
        "if B == 64:\n    return n  # here",
    ),
    WrongProgram(
        "two return types",
        KernelTypeError,
        ("`return` of i64 scalar in one branch and of f32 scalar in the other", ".to(tl.int64)"),
        "@tl.kernel\ndef f(n, f):\n    if n > 0:  # here\n        return n\n    return f\n"
        "@tl.kernel\ndef wrong(n, f):\n    a = f_(n, f)\n".replace("def f(", "def f_("),
    ),
    WrongProgram(
        "return and no return",
        KernelTypeError,
        ("`return` of i64 scalar in one branch and of None in the other",),
        "@tl.kernel\ndef g(n):\n    if n > 0:  # here\n        return n\n"
        "@tl.kernel\ndef wrong(n):\n    a = g(n)\n",
    ),
    WrongProgram(
        "return of tuples of two lengths",
        KernelTypeError,
        ("`return` of tuple (i64 scalar, i64 scalar) in one branch and of i64 scalar",),
        "@tl.kernel\ndef g(n):\n    if n > 0:  # here\n        return n, n\n    return n\n"
        "@tl.kernel\ndef wrong(n):\n    a = g(n)\n",
    ),
    _wrong("returns a value", KernelTypeError, ("is launched", "i64 scalar"), "return n  # here"),
)

VALUES = (
    _wrong(
        "arange extent",
        KernelValueError,
        ("tl.arange(0, 48)", "power of two"),
        "a = tl.arange(0, 48)  # here",
    ),
    _wrong(
        "shape extent",
        KernelValueError,
        ("powers of two", "got 3"),
        "a = tl.zeros((B, 3), tl.float32)  # here",
    ),
    _wrong(
        "tile too large",
        KernelValueError,
        ("4194304 elements", "1048576"),
        "a = tl.zeros((2048, 2048), tl.float32)  # here",
    ),
    _wrong(
        "broadcast too large",
        KernelValueError,
        ("at most 1048576",),
        "a = tl.arange(0, 2048)\nb = a[:, None] + a[None, :]  # here",
    ),
    _wrong(
        "axis",
        KernelValueError,
        ("`axis` of tl.sum is 1", "rank 1"),
        "a = tl.sum(tl.arange(0, B), axis=1)  # here",
    ),
    _wrong(
        "program axis", KernelValueError, ("0, 1 or 2", "got 3"), "a = tl.program_id(3)  # here"
    ),
    _wrong(
        "integer too large",
        KernelValueError,
        ("300", "does not fit in u8"),
        "a = n.to(tl.uint8) + 300  # here",
    ),
    _wrong("shift too far", KernelValueError, ("`<<` by 64", "0 to 63"), "a = n << 64  # here"),
    _wrong("division by zero", KernelValueError, ("`64 // 0`",), "a = B // 0  # here"),
    _wrong(
        "zero step",
        KernelValueError,
        ("step of range is 0",),
        "for i in range(0, n, 0):  # here\n    pass",
    ),
    _wrong(
        "unrolled too often",
        KernelValueError,
        ("100000 iterations", "4096"),
        "for i in tl.static_range(100000):  # here\n    pass",
    ),
    _wrong(
        "copy ahead of a single element",
        KernelTypeError,
        ("`pointer` of tl.async_copy is a tile of pointers", "use tl.load"),
        "for i in range(n):\n    a = tl.async_copy(x + i)  # here",
    ),
    _wrong(
        "unrolled by a step of run time",
        KernelValueError,
        ("`loop_unroll_factor`", "known at compile time", "i64 scalar"),
        "for i in tl.range(0, 64, n, loop_unroll_factor=2):  # here\n    pass",
    ),
    _wrong(
        "unrolled with a way out",
        KernelValueError,
        ("`loop_unroll_factor`", "`break`"),
        "for i in tl.range(0, n, loop_unroll_factor=2):  # here\n    if i > 3:\n        break",
    ),
    _wrong(
        "endless while", KernelValueError, ("never ends",), "while True:  # here\n    n = n + 1"
    ),
    _wrong(
        "static_assert",
        KernelValueError,
        ("tl.static_assert failed: only wide blocks",),
        "tl.static_assert(B > 64, 'only wide blocks')  # here",
    ),
    _wrong(
        "cache word",
        KernelValueError,
        ("`cache_modifier` of tl.load", "'.cg'", "'fast'"),
        "a = tl.load(x, cache_modifier='fast')  # here",
    ),
    _wrong("tuple index", KernelValueError, ("index 2", "2 elements"), "a = (1, 2)[2]  # here"),
    _wrong("float of text", KernelValueError, ("'inf'", "'1.5'"), "a = float('1.5')  # here"),
)

CALLS = (
    WrongProgram(
        "recursion",
        KernelSyntaxError,
        ("recursive: f -> g -> f",),
        "@tl.kernel\ndef f(n):\n    return g(n)\n@tl.kernel\ndef g(n):\n    return f(n)  # "
        "here\n@tl.kernel\ndef wrong(n):\n    a = f(n)\n",
    ),
    WrongProgram(
        "constexpr that is None",
        KernelTypeError,
        ("`+`", "got None", "a constexpr that is None"),
        "@tl.kernel\ndef wrong(n, b: tl.constexpr = None):\n    a = n + b  # here\n",
    ),
    WrongProgram(
        "result of a kernel that returns nothing",
        KernelTypeError,
        ("`+`", "got None", "a kernel without `return`"),
        "@tl.kernel\ndef f(x):\n    tl.store(x, 1.0)\n@tl.kernel\ndef wrong(x):\n    a = f(x)\n    "
        "b = a + 1.0  # here\n",
    ),
    WrongProgram(
        "run-time argument for constexpr",
        KernelTypeError,
        ("`W` of kernel `f` is tl.constexpr", "i64 scalar"),
        "@tl.kernel\ndef f(W: tl.constexpr):\n    return W\n@tl.kernel\ndef wrong(n):\n    a = "
        "f(n)  # here\n",
    ),
    WrongProgram(
        "missing kernel argument",
        KernelTypeError,
        ("f(a, b) lacks a value for `b`",),
        "@tl.kernel\ndef f(a, b):\n    return a\n@tl.kernel\ndef wrong(n):\n    a = f(n)  # here\n",
    ),
    WrongProgram(
        "kernel launched in kernel",
        KernelTypeError,
        ("cannot launch another", "`f(...)`"),
        "@tl.kernel\ndef f(a):\n    return a\n@tl.kernel\ndef wrong(n):\n    a = f[1](n)  # here\n",
    ),
)

DOTS = (
    _wrong(
        "dot extents",
        KernelTypeError,
        (
            "f32 tile [16, 64] and f32 tile [32, 64]",
            "last extent of `a` is 64, the first of `b` 32",
            ".T",
        ),
        "a = tl.dot(tl.zeros((16, B), tl.float32), tl.zeros((32, B), tl.float32))  # here",
    ),
    _wrong(
        "dot rank",
        KernelTypeError,
        ("`b` of tl.dot is a tile of rank 2", "f32 tile [64]"),
        "a = tl.dot(tl.zeros((16, B), tl.float32), tl.zeros(B, tl.float32))  # here",
    ),
    _wrong(
        "dot of a scalar",
        KernelTypeError,
        ("`a` of tl.dot takes a tile", "i64 scalar"),
        "a = tl.dot(n, tl.zeros((B, B), tl.float32))  # here",
    ),
    _wrong(
        "dot of pointers",
        KernelTypeError,
        ("`a` of tl.dot is a tile of numbers", "pointers to f32", "tl.load"),
        "a = tl.dot(x + tl.zeros((B, B), tl.int32), tl.zeros((B, B), tl.float32))  # here",
    ),
    _wrong(
        "dot of two dtypes",
        KernelTypeError,
        ("f16 tile [64, 64] and f32 tile [64, 64]", ".to("),
        "a = tl.dot(tl.zeros((B, B), tl.float16), tl.zeros((B, B), tl.float32))  # here",
    ),
    _wrong(
        "dot of wide integers",
        KernelTypeError,
        ("i32 tile [64, 64]", "8-bit integers"),
        "a = tl.dot(tl.zeros((B, B), tl.int32), tl.zeros((B, B), tl.int32))  # here",
    ),
    _wrong(
        "dot accumulator dtype",
        KernelTypeError,
        ("`acc` of tl.dot is f16 tile [64, 64]", "summed in tl.float32", "tl.zeros((64, 64), "),
        "a = tl.zeros((B, B), tl.float16)\nb = tl.dot(a, a, acc=a)  # here",
        "tl.dot(a, a, acc=a)",
    ),
    _wrong(
        "dot accumulator shape",
        KernelTypeError,
        ("`acc` of tl.dot is f32 tile [16, 64]", "shape [64, 64]"),
        "a = tl.zeros((B, B), tl.float16)\nb = tl.dot(a, a, tl.zeros((16, B), tl.float32))  # here",
    ),
    _wrong(
        "dot accumulator number",
        KernelTypeError,
        ("`acc` of tl.dot takes a tile", "0.0"),
        "a = tl.zeros((B, B), tl.float16)\nb = tl.dot(a, a, 0.0)  # here",
    ),
    _wrong(
        "dot precision",
        KernelValueError,
        ("`input_precision` of tl.dot", "'ieee', 'tf32', 'tf32x3'", "'bf16x6'"),
        "a = tl.zeros((B, B), tl.float32)\nb = tl.dot(a, a, input_precision='bf16x6')  # here",
    ),
    _wrong(
        "dot allow_tf32",
        KernelTypeError,
        ("tl.dot has no `allow_tf32`", 'input_precision="tf32"'),
        "a = tl.zeros((B, B), tl.float32)\nb = tl.dot(a, a, allow_tf32=True)  # here",
    ),
    _wrong(
        "dot result dtype",
        KernelTypeError,
        ("`out_dtype` of tl.dot is one of", "tl.bfloat16", "constexpr 16"),
        "a = tl.zeros((B, B), tl.float32)\nb = tl.dot(a, a, out_dtype=16)  # here",
    ),
    _wrong(
        "transpose of a row",
        KernelTypeError,
        ("`.T` swaps the last two axes", "rank 1"),
        "a = tl.zeros(B, tl.float32).T  # here",
    ),
)

BITCASTS = (
    _wrong(
        "bitcast to another width",
        KernelTypeError,
        ("x.to(tl.int32, bitcast=True)", "f16 tile [64]", "16 of them, i32 has 32"),
        "a = tl.zeros(B, tl.float16).to(tl.int32, bitcast=True)  # here",
    ),
    _wrong(
        "bitcast that is no flag",
        KernelTypeError,
        ("`bitcast` of x.to is True or False",),
        "a = n.to(tl.float64, 1)  # here",
    ),
)

_NARROW = "a = tl.zeros(B, tl.float8e4nv)\n"

EIGHT_BIT_FLOATS = (
    _wrong(
        "sum of eight-bit floats",
        KernelTypeError,
        ("`+` does not compute in f8e4m3", "tl.dot", ".to(tl.float16)"),
        _NARROW + "b = a + a  # here",
        "a + a",
    ),
    _wrong(
        "eight-bit float times number",
        KernelTypeError,
        ("`*` does not compute in f8e4m3",),
        _NARROW + "b = a * 2.0  # here",
    ),
    _wrong(
        "eight-bit float with another",
        KernelTypeError,
        ("`+` does not compute in f8e5m2",),
        "b = tl.zeros(B, tl.float16) + tl.zeros(B, tl.float8e5)  # here",
    ),
    _wrong(
        "negated eight-bit float",
        KernelTypeError,
        ("unary `-` does not compute in f8e4m3",),
        _NARROW + "b = -a  # here",
    ),
    _wrong(
        "compared eight-bit floats",
        KernelTypeError,
        ("`<` does not compute in f8e4m3",),
        _NARROW + "b = a < 1.0  # here",
    ),
    _wrong(
        "function of eight-bit floats",
        KernelTypeError,
        ("tl.exp does not compute in f8e4m3",),
        _NARROW + "b = tl.exp(a)  # here",
    ),
    _wrong(
        "maximum of eight-bit floats",
        KernelTypeError,
        ("tl.max does not compute in f8e4m3",),
        _NARROW + "b = tl.max(a)  # here",
    ),
    _wrong(
        "choice of two eight-bit floats",
        KernelTypeError,
        ("tl.where does not compute in f8e",),
        _NARROW + "b = tl.where(n > 0, a, tl.zeros(B, tl.float8e5))  # here",
    ),
    _wrong(
        "truth of an eight-bit float",
        KernelTypeError,
        ("does not compute in f8e4m3",),
        "if n.to(tl.float8e4nv):  # here\n    a = 1",
    ),
)

PROGRAMS = (*SYNTAX, *NAMES, *TYPES, *VALUES, *CALLS, *DOTS, *BITCASTS, *EIGHT_BIT_FLOATS)
