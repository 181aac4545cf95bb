"""`if`, `for`, `while` and conditional expressions: what they compute and how variables join."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import load_kernel, lower_text, run_text, signature_of
from tilewright.abi.signature import ConstexprValue
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.passes import optimize


def _operations(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name == name]


def _scalar(directory: Path, body: str, **arguments: int | float | bool) -> float:
    """Run a body that assigns `r` for scalar arguments, and return `r` as f64."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    text = (
        f"@tl.kernel\ndef k(out, {', '.join(arguments)}):\n{lines}\n"
        "    tl.store(out, r.to(tl.float64))\n"
    )
    out = np.full(1, np.nan)
    run_text(directory, text, {"out": out, **arguments})
    return float(out[0])


LOOP = """
r = 0
for i in range({bounds}):
    r = r * 10 + i + 20
"""


@pytest.mark.parametrize(
    ("bounds", "values"),
    [
        ("4", range(4)),
        ("n", range(3)),
        ("0", range(0)),
        ("2, n + 2", range(2, 5)),
        ("n, 1", range(3, 1)),
        ("1, 8, n", range(1, 8, 3)),
        ("n, -1, -1", range(3, -1, -1)),
        ("9, n, -2", range(9, 3, -2)),
        ("9, n, -3", range(9, 3, -3)),
        ("n, 9, -1", range(3, 9, -1)),
        ("-n, n, 2", range(-3, 3, 2)),
    ],
)
@pytest.mark.parametrize("function", ["range", "tl.range"])
def test_for_counts_as_python_does(
    bounds: str, values: range, function: str, tmp_path: Path
) -> None:
    expected = 0
    for i in values:
        expected = expected * 10 + i + 20
    body = LOOP.format(bounds=bounds).replace("range(", f"{function}(")
    assert _scalar(tmp_path, body, n=3) == expected


def test_reversed_range_of_unsigned_bounds_does_not_wrap(tmp_path: Path) -> None:
    body = """
r = 0
for i in range(n.to(tl.uint32), m.to(tl.uint32), -1):
    r = r + 1
"""
    assert _scalar(tmp_path, body, n=2, m=5) == 0
    assert _scalar(tmp_path, body, n=5, m=2) == 3


def test_loop_variable_takes_the_promoted_dtype_of_the_bounds(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(n):
    for i in range(4):
        pass
    for j in range(0, n.to(tl.uint32)):
        pass
    for l in range(0, n, 4):
        pass
"""
    loops = _operations(lower_text(tmp_path, text, n="i64"), "for")
    types = [str(loop.regions[0].arguments[0].type) for loop in loops]
    assert types == ["i32", "u32", "i64"]


def test_num_stages_of_a_range_stays_with_the_loop(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(n):\n    for i in tl.range(0, n, num_stages=5):\n        pass\n"
    (loop,) = _operations(lower_text(tmp_path, text, n="i64"), "for")
    assert loop.attributes == {"num_stages": 5}


def test_nested_loops_carry_inner_and_outer_variables(tmp_path: Path) -> None:
    body = """
r = 0
for i in range(n):
    row = 0
    for j in range(i + 1):
        row = row + j
        r = r + 1
    r = r + 100 * row
"""
    assert _scalar(tmp_path, body, n=4) == 10 + 100 * (0 + 1 + 3 + 6)


def test_variables_can_swap_in_a_loop(tmp_path: Path) -> None:
    body = """
a = 0
b = 1
for i in range(n):
    a, b = b, a + b
r = a
"""
    assert _scalar(tmp_path, body, n=10) == 55


def test_tuples_are_carried_by_element(tmp_path: Path) -> None:
    body = """
pair = (0, 1.5)
for i in range(n):
    pair = (pair[0] + 1, pair[1] * 2.0)
r = pair[0] + pair[1]
"""
    assert _scalar(tmp_path, body, n=3) == 3 + 12.0


def test_while_runs_until_its_condition_fails(tmp_path: Path) -> None:
    body = """
r = 0
while n > 1:
    if n % 2 == 0:
        n = n // 2
    else:
        n = 3 * n + 1
    r = r + 1
"""
    assert _scalar(tmp_path, body, n=27) == 111
    assert _scalar(tmp_path, body, n=1) == 0


def test_while_on_a_carried_bool(tmp_path: Path) -> None:
    body = """
r = 0
go = True
while go:
    r = r + n
    go = r < 10
"""
    assert _scalar(tmp_path, body, n=4) == 12


def test_while_false_lowers_nothing(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(n, B: tl.constexpr):\n    while B > 100:\n        n = n + 1.5\n"
    module = lower_text(tmp_path, text, n="i64", B=64)
    assert [operation.name for operation in module.kernel.body.operations] == ["return"]


@pytest.mark.parametrize(
    ("initial", "update", "expected"),
    [
        ("0", "r + 1", "i32"),
        ("0", "r + i", "i64"),
        ("5000000000", "r + 1", "i64"),
        ("0", "r + f", "f32"),
        ("0.0", "r + tl.load(h)", "f32"),
        ("0", "r + tl.load(h) if i > 2 else r", "f16"),
        ("0", "r + 0.5", "f32"),
        ("0", "r + tl.load(x + tl.arange(0, 8))", "tile<8xf32>"),
        ("False", "r | (i > 3)", "i1"),
    ],
)
def test_number_before_a_loop_takes_the_type_that_the_body_gives(
    initial: str, update: str, expected: str, tmp_path: Path
) -> None:
    text = (
        f"@tl.kernel\ndef k(x, h, n, f):\n    r = {initial}\n"
        f"    for i in range(n):\n        r = {update}\n"
    )
    module = lower_text(tmp_path, text, x="*f32", h="*f16", n="i64", f="f32")
    (loop,) = _operations(module, "for")
    assert [str(result.type) for result in loop.results] == [expected]


def test_type_that_never_settles_is_refused(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(h, n, f):
    r = 0
    for i in range(n):
        r = tl.load(h) if r.dtype == tl.float32 else f
"""
    kernel = load_kernel(tmp_path, text)
    with pytest.raises(KernelTypeError, match="`r` is constexpr 0 before the loop"):
        lower_kernel(kernel, signature_of(kernel, {"h": "*f16", "n": "i64", "f": "f32"}))


def test_number_that_the_body_leaves_alone_stays_a_constant(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n, DEEP: tl.constexpr):
    width = 8
    name = "a"
    for i in range(n):
        if DEEP:
            width = 16
            name = "b"
        tl.store(x + tl.arange(0, width), i)
    tl.static_assert(width == 8 and name == "a")
"""
    (loop,) = _operations(lower_text(tmp_path, text, x="*i64", n="i64", DEEP=False), "for")
    assert loop.results == ()


def test_number_assigned_under_a_run_time_if_is_carried(tmp_path: Path) -> None:
    body = """
r = 0
found = 0
first = True
while found < 3:
    if r % 5 == n:
        found = found + 1
        first = False
    if first and r > 100:
        found = 9
    r = r + 1
"""
    assert _scalar(tmp_path, body, n=2) == 13
    assert _scalar(tmp_path, body, n=7) == 102


def test_types_settle_through_nested_loops_and_branches(tmp_path: Path) -> None:
    body = """
total = 0
for i in range(n):
    for j in range(2):
        if i > j:
            total = total + f
r = total
"""
    assert _scalar(tmp_path, body, n=4, f=0.5) == 2.5


def test_value_that_the_body_leaves_alone_is_not_carried(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n, DEEP: tl.constexpr):
    a = tl.load(x)
    b = a
    while n > 0:
        if DEEP:
            a = a + 1
        n = n - 1
        b = a
    tl.store(x, a + b)
"""
    (loop,) = _operations(lower_text(tmp_path, text, x="*i64", n="i64", DEEP=False), "while")
    assert [result.name for result in loop.results] == ["n", "b"]


def test_untouched_branch_values_stay_constants(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n):
    a = 1
    if n > 0:
        b = 4
        tl.store(x, 0)
    else:
        b = 4
    tl.static_assert(a + b == 5)
"""
    (branch,) = _operations(lower_text(tmp_path, text, x="*i64", n="i64"), "if")
    assert branch.results == ()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("1", "2", "i32"),
        ("1", "2.5", "f32"),
        ("True", "False", "i1"),
        ("n", "1", "i64"),
        ("0.5", "tl.load(h)", "f16"),
        ("tl.zeros((4, 8), tl.float32)", "1", "tile<4x8xf32>"),
        ("x", "x + n", "ptr<f32>"),
    ],
)
def test_branches_join_in_one_type(first: str, second: str, expected: str, tmp_path: Path) -> None:
    text = (
        "@tl.kernel\ndef k(x, h, n):\n"
        f"    if n > 0:\n        r = {first}\n    else:\n        r = {second}\n"
    )
    module = lower_text(tmp_path, text, x="*f32", h="*f16", n="i64")
    (branch,) = _operations(module, "if")
    assert [str(result.type) for result in branch.results] == [expected]
    assert branch.results[0].name == "r"


def test_elif_chain_chooses_one_branch(tmp_path: Path) -> None:
    body = """
if n < 0:
    r = 1
elif n == 0:
    r = 2
elif n < 10:
    r = 3
else:
    r = 4
"""
    assert [_scalar(tmp_path, body, n=n) for n in (-5, 0, 5, 50)] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [-1, 0, 2])
def test_number_as_condition_is_compared_with_zero(value: int, tmp_path: Path) -> None:
    assert _scalar(tmp_path, "r = 1 if n else 2", n=value) == (1 if value else 2)
    assert _scalar(tmp_path, "r = 1 if f else 2", f=float(value)) == (1 if value else 2)


def test_compile_time_if_lowers_one_branch(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, MODE: tl.constexpr):
    if MODE == "left":
        value = 1
    elif MODE == "right":
        value = 2
    else:
        tl.static_assert(False, "unknown mode")
    tl.store(x, value)
"""
    module = lower_text(tmp_path, text, x="*i32", MODE="right")
    assert _operations(module, "if") == []
    (constant,) = _operations(module, "constant")
    assert constant.attributes["value"] == 2


def test_unit_parameter_is_the_constant_one_of_its_dtype(tmp_path: Path) -> None:
    text = """
@tl.kernel(unit=("stride",))
def k(x, stride):
    tl.store(x + tl.arange(0, 8) * stride, 0)
"""
    general = lower_text(tmp_path, text, x="*i32", stride="i64")
    assert "constant {value = 1}" not in print_module(general)
    fast = lower_text(tmp_path, text, specialization="fast", x="*i32", stride="i64")
    first = fast.kernel.body.operations[0]
    assert (first.name, first.attributes["value"], str(first.result.type)) == ("constant", 1, "i64")
    assert len(fast.kernel.body.arguments) == 2
    assert [str(op.result.type) for op in _operations(fast, "mul")] == ["tile<8xi64>"]


def test_conditional_expression_of_scalars_is_a_select(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(x, n):\n    tl.store(x, n + 1 if n > 0 else 7)\n"
    module = lower_text(tmp_path, text, x="*i64", n="i64")
    assert len(_operations(module, "select")) == 1
    assert _operations(module, "if") == []


def test_conditional_expression_reads_only_the_chosen_side(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(x, n):\n    tl.store(x, tl.load(x + n) if n < 4 else 7)\n"
    x = np.array([1, 2, 3, 4])
    run_text(tmp_path, text, {"x": x, "n": 1 << 40})
    assert x[0] == 7
    run_text(tmp_path, text, {"x": x, "n": 3})
    assert x[0] == 4


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n < 4 and tl.load(x + n) == 2", [False, True, False]),
        ("n >= 4 or tl.load(x + n) == 2", [False, True, True]),
        ("n > 0 and n < 4", [False, True, False]),
        ("not n < 4", [False, False, True]),
        ("0 < n < 4", [False, True, False]),
        ("n and True", [False, True, True]),
    ],
)
def test_and_or_evaluate_the_right_side_only_if_needed(
    expression: str, expected: list[bool], tmp_path: Path
) -> None:
    text = f"@tl.kernel\ndef k(x, out, n):\n    tl.store(out, {expression})\n"
    found = []
    for n in (0, 1, 1 << 40):
        out = np.zeros(1, bool)
        run_text(tmp_path, text, {"x": np.array([1, 2, 3, 4]), "out": out, "n": n})
        found.append(bool(out[0]))
    assert found == expected


def test_static_range_unrolls_with_constant_variable(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, N: tl.constexpr):
    total = 0
    for i in tl.static_range(N - 1, -1, -2):
        extent: tl.constexpr = 1 << i
        tl.store(x + i, tl.sum(tl.full((extent,), 1, tl.int32)))
        total = total + i
    tl.store(x + total, i)
"""
    module = lower_text(tmp_path, text, x="*i32", N=5)
    assert _operations(module, "for") == []
    x = np.full(7, -1, np.int32)
    run_text(tmp_path, text, {"x": x}, N=5)
    assert x.tolist() == [1, -1, 4, -1, 16, -1, 0]


def test_pointers_can_be_carried(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n):
    p = x
    for i in range(n):
        tl.store(p, i)
        p += 2
"""
    x = np.full(6, -1)
    run_text(tmp_path, text, {"x": x, "n": 3})
    assert x.tolist() == [0, -1, 1, -1, 2, -1]


def test_every_operation_has_a_place_in_the_source(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n, f):
    total = 0
    for i in range(n, 0, -1):
        total = total + f if i > 3 else total
        while i < 2 and n > 0:
            n = n - 1
    if n > 0:
        total = 1.0
    tl.store(x, total)
"""
    module = lower_text(tmp_path, text, x="*f32", n="i64", f="f32")
    for operation in module.kernel.body.walk():
        assert operation.location is not None
        assert operation.location.function == "k"
        assert 1 <= operation.location.line <= 10


@pytest.mark.parametrize("factor", [1, 2, 3, 8])
@pytest.mark.parametrize("bounds", ["n", "2, n", "0, n, 3", "-n, n, 2", "n, 0, -1", "n, n"])
def test_unrolled_loop_gives_what_the_loop_gives(factor: int, bounds: str, tmp_path: Path) -> None:
    text = f"""
@tl.kernel
def k(out, n):
    total = 0
    last = -1
    for i in tl.range({bounds}, loop_unroll_factor={factor}):
        total = total * 3 + i
        last = i
    tl.store(out + n, total + 100000 * last)
"""
    kernel = load_kernel(tmp_path, text)
    module = lower_kernel(kernel, signature_of(kernel, {"out": "*i64", "n": "i64"}))
    optimized = optimize(module)
    loops = _operations(optimized, "for")
    assert len(loops) == (1 if factor == 1 else 2)
    assert not any("unroll" in loop.attributes for loop in loops)
    for n in range(9):
        out, expected = np.zeros((2, 9), np.int64)
        run(module, grid=(1, 1, 1), arguments={"out": expected, "n": n})
        run(optimized, grid=(1, 1, 1), arguments={"out": out, "n": n})
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["i32", "u32", "u8", "i64"])
def test_unrolled_loop_ends_at_the_ends_of_its_dtype(dtype: str, tmp_path: Path) -> None:
    word = {"i": "tl.int", "u": "tl.uint"}[dtype[0]] + dtype[1:]
    text = f"""
@tl.kernel
def k(out, low, high):
    count = 0
    for i in tl.range(low.to({word}), high.to({word}), 2, loop_unroll_factor=4):
        count += 1
    tl.store(out, count)
"""
    kernel = load_kernel(tmp_path, text)
    types: dict[str, ConstexprValue] = {"out": "*i64", "low": "i64", "high": "i64"}
    module = optimize(lower_kernel(kernel, signature_of(kernel, types)))
    bits, is_signed = int(dtype[1:]), dtype[0] == "i"
    lowest = -(1 << bits - 1) if is_signed else 0
    for low, high in [(0, 3), (0, 6), (0, 7), (0, 8), (lowest, lowest + 5), (lowest, lowest + 20)]:
        out = np.zeros(1, np.int64)
        run(module, grid=(1, 1, 1), arguments={"out": out, "low": low, "high": high})
        assert out[0] == len(range(low, high, 2))


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(n):\n    for j in range(n):\n        if j > i:\n            r = r + j",
        "for i in range(n):\n    if i > 1:\n        r = r + 1\n    if i > 2:\n        r = r + i",
        "for i in range(n):\n    r = r + 1 if i > 1 else r\n    if i > 2:\n        r = r + i",
        "for i in range(n):\n    if i > 1:\n        if i > 2:\n            r = r + 1\n"
        "        else:\n            r = r * 2\n    else:\n        r = r + 0.5",
        "while n > 0:\n    n = n - 1\n    for j in range(n):\n"
        "        if j > 1:\n            r = r + n",
    ],
)
def test_number_takes_a_type_that_shows_inside_branches_of_inner_loops(
    body: str, tmp_path: Path
) -> None:
    names: dict[str, object] = {"n": 6, "r": 0}
    exec(body, names)
    assert _scalar(tmp_path, f"r = 0\n{body}", n=6) == names["r"]


def test_a_chain_of_comparisons_ends_at_the_first_that_is_false(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, n):
    place = n
    while 0 <= place < tl.load(x + place):
        place -= 1
    tl.store(out, place)
"""
    out = np.zeros(1, np.int64)
    run_text(tmp_path, text, {"x": np.full(3, 5, np.int64), "out": out, "n": 2})
    assert out[0] == -1


def test_a_chain_with_a_false_number_evaluates_no_more(tmp_path: Path) -> None:
    text = """
@tl.kernel
def counted(count):
    tl.store(count, tl.load(count) + 1)
    return tl.load(count)

@tl.kernel
def k(count, out, n):
    tl.store(out, (1 < 0 < counted(count)) | (0 < 1 < counted(count) < n < counted(count)))
"""
    for n, calls, holds in ((1, 1, 0), (3, 2, 0)):
        directory = tmp_path / str(n)
        directory.mkdir()
        count, out = np.ones(1, np.int64), np.zeros(1, np.int64)
        run_text(directory, text, {"count": count, "out": out, "n": n})
        assert (count[0] - 1, out[0]) == (calls, holds)
