"""Calls of kernels by kernels: specialisation, arguments and results."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from helpers.kernel_source import lower_text, run_text
from tilewright_compiler.ir.core import Module


def _signatures(module: Module) -> dict[str, str]:
    return {
        name: f"({', '.join(str(a.type) for a in function.body.arguments)}) -> "
        f"({', '.join(map(str, function.result_types))})"
        for name, function in module.functions.items()
    }


def test_function_is_lowered_once_for_equal_types(tmp_path: Path) -> None:
    text = """
@tl.kernel
def double(v):
    return v + v

@tl.kernel
def k(x, n, f):
    tl.store(x, double(n))
    tl.store(x + 1, double(n + 1))
    tl.store(x + 2, double(f))
    tl.store(x + tl.arange(0, 4), double(tl.arange(0, 4)))
"""
    module = lower_text(tmp_path, text, x="*f32", n="i64", f="f32")
    assert _signatures(module) == {
        "k": "(ptr<f32>, i64, f32) -> ()",
        "double": "(i64) -> (i64)",
        "double_1": "(f32) -> (f32)",
        "double_2": "(tile<4xi32>) -> (tile<4xi32>)",
    }
    assert module.functions["double"].location is not None
    assert module.kernel.name == "k"


def test_constants_specialise_and_stay_constants(tmp_path: Path) -> None:
    text = """
@tl.kernel
def half(v, factor, WIDTH: tl.constexpr = 8):
    return v * factor + tl.arange(0, WIDTH), WIDTH * 2

@tl.kernel
def k(x, h):
    value, width = half(tl.load(h), 0.5)
    tl.static_assert(width == 16)
    wider, _ = half(tl.load(h), 0.5, WIDTH=width)
    tl.store(x + tl.arange(0, width), wider)
    tl.store(x + tl.arange(0, 8), value)
"""
    module = lower_text(tmp_path, text, x="*f16", h="*f16")
    # 0.5 does not turn f16 into f32, because it is still a number inside.
    assert _signatures(module) == {
        "k": "(ptr<f16>, ptr<f16>) -> ()",
        "half": "(f16) -> (tile<8xf16>)",
        "half_1": "(f16) -> (tile<16xf16>)",
    }


def test_equal_constants_of_different_types_are_different_functions(tmp_path: Path) -> None:
    text = """
@tl.kernel
def plus(v, c):
    return v + c

@tl.kernel
def k(x, c):
    a = plus(c, 1)
    b = plus(c, True)
    d = plus(c, 1.0)
    tl.store(x, a + b + d)
"""
    types = [
        s.split("-> ")[1]
        for s in _signatures(lower_text(tmp_path, text, x="*f32", c="i1")).values()
    ]
    assert types == ["()", "(i32)", "(i32)", "(f32)"]


def test_function_of_the_kernels_name_gets_another(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(v):
    return v + 1

inner = k

@tl.kernel
def k(x, n):
    tl.store(x, inner(n))
"""
    assert list(_signatures(lower_text(tmp_path, text, x="*i64", n="i64"))) == ["k", "k_1"]


def test_tuples_and_pointers_pass_through(tmp_path: Path) -> None:
    text = """
@tl.kernel
def step(pointers, offset):
    first, second = pointers
    return (first + offset, second + offset), offset + 1

@tl.kernel
def k(x, y, n):
    pair = (x, y)
    for i in range(n):
        pair, last = step(pair, 1)
        tl.store(pair[0], last)
        tl.store(pair[1], i)
"""
    x, y = np.zeros(4, np.int64), np.zeros(4, np.int64)
    run_text(tmp_path, text, {"x": x, "y": y, "n": 3})
    assert x.tolist() == [0, 2, 2, 2]
    assert y.tolist() == [0, 0, 1, 2]


def test_kernel_can_be_passed_to_a_kernel(tmp_path: Path) -> None:
    text = """
@tl.kernel
def square(v):
    return v * v

@tl.kernel
def apply(function, v):
    return function(v) + 1

@tl.kernel
def k(x, n):
    tl.store(x, apply(square, n))
"""
    x = np.zeros(1, np.int64)
    run_text(tmp_path, text, {"x": x, "n": 5})
    assert x[0] == 26


def test_function_without_return_gives_none(tmp_path: Path) -> None:
    text = """
@tl.kernel
def write(x, v):
    tl.store(x, v)

@tl.kernel
def k(x, n):
    tl.static_assert(write(x, n) is None)
"""
    x = np.zeros(1, np.int64)
    run_text(tmp_path, text, {"x": x, "n": 5})
    assert x[0] == 5


def test_compile_time_if_may_return_in_both_branches(tmp_path: Path) -> None:
    text = """
@tl.kernel
def pick(v, WIDE: tl.constexpr):
    if WIDE:
        return v.to(tl.float64)
    else:
        return v
    tl.static_assert(False)

@tl.kernel
def guarded(v, SKIP: tl.constexpr):
    if SKIP:
        return v
    return v + 1

@tl.kernel
def k(x, f):
    tl.static_assert(pick(f, True).dtype == tl.float64)
    tl.static_assert(pick(f, WIDE=False).dtype == tl.float32)
    tl.store(x, guarded(f, True) + 10 * guarded(f, False))
"""
    x = np.zeros(1, np.float32)
    run_text(tmp_path, text, {"x": x, "f": 1.0})
    assert x[0] == 21


def test_body_lowered_twice_leaves_no_functions_behind(tmp_path: Path) -> None:
    text = """
@tl.kernel
def plus(v, c):
    return v + c

@tl.kernel
def k(x, n, f):
    total = 0
    for i in range(n):
        total = plus(total, f)
    tl.store(x, total)
"""
    module = lower_text(tmp_path, text, x="*f32", n="i64", f="f32")
    assert [s for name, s in _signatures(module).items() if name != "k"] == ["(f32, f32) -> (f32)"]


def test_constexpr_of_an_outer_function_is_captured(tmp_path: Path) -> None:
    text = """
WIDTH = tl.constexpr(4)

def make(factor):
    SCALE = tl.constexpr(factor)

    @tl.kernel
    def k(x):
        tl.store(x + tl.arange(0, WIDTH), SCALE)

    return k

k = make(3)
"""
    x = np.zeros(5, np.int64)
    run_text(tmp_path, text, {"x": x})
    assert x.tolist() == [3, 3, 3, 3, 0]
