"""`return`, `continue` and `break` where a run-time `if` decides: values as Python gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright.errors import KernelSyntaxError, KernelTypeError
from tilewright_compiler.ir.core import Module


def _results(directory: Path, text: str, inputs: range) -> list[int]:
    """Run kernel `k(x, out)`, which stores to out, for each input, one program each."""
    x = np.array(list(inputs), np.int64)
    out = np.full(len(x), -1000, np.int64)
    run_text(directory, text, {"x": x, "out": out}, grid=(len(x), 1, 1))
    return out.tolist()


def _python(body: str, inputs: range) -> list[int]:
    namespace: dict[str, object] = {}
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    exec(f"def f(n):\n{lines}\n", namespace)
    function = namespace["f"]
    assert callable(function)
    return [function(n) for n in inputs]


BODIES = {
    "guard": """
if n < 3:
    return -1
return n * 2
""",
    "two guards and a rest": """
a = n
if n < 2:
    return 7
a = a + 1
if n == 4:
    a = a * 10
    return a
a = a + 5
return a
""",
    "all branches": """
if n < 2:
    return 1
elif n < 5:
    return n
else:
    return n * n
""",
    "only some ways return": """
a = 0
if n > 2:
    a = n
    if n > 5:
        return 100
    a = a + 1
a = a * 2
return a
""",
    "returns inside nested ifs, in a row": """
a = 1
if n > 1:
    if n > 2:
        if n == 4:
            return a
        a = a + n
    elif n == 2:
        return -a
    b = a * 3
else:
    b = n
if b > 3:
    a = a + 1
    if b > 20:
        return 7
    a = a * b
if a > 30:
    if n < 7:
        return 25
return a + b
""",
    "a return that all nested ways meet": """
a = n
if n > 1:
    if n > 3:
        return 1
    else:
        return a
if a == 1:
    if n == 2:
        return a + 3
    return a + 5
return a + 6
""",
    "returns inside nested ifs of unrolled loops": """
a = 0
for i in range(4):
    if n > i:
        if a > 9:
            return a
        a = a + n
    for j in range(2):
        if n > j + 3:
            if a == 30:
                return i
            a = a + j
return -a
""",
    "constant results": """
if n > 2:
    return 1
return 0
""",
    "return inside an unrolled loop": """
total = 0
for i in range(5):
    if n == i:
        return total
    total = total + n
return -total
""",
    "break of an unrolled loop": """
total = 0
for i in range(6):
    if i == n:
        break
    total = total + i + n
total = total * 2
return total
""",
    "continue of an unrolled loop": """
total = 0
for i in range(12):
    if (i + n) % 3 == 0:
        continue
    total = total + i
return total
""",
    "continue and break": """
total = 0
for i in range(6):
    if (i + n) % 2 == 0:
        continue
    if i > n:
        break
    total = total * 3 + i
return total
""",
    "many ways on and out": """
total = 0
for i in range(24):
    if (i + n) % 3 == 0:
        continue
    if i > 3 * n:
        break
    total = total + i
return total
""",
    "return, break and continue": """
total = 0
for i in range(6):
    if i == 4 and n == 6:
        return -7
    if i == n:
        break
    if i % 2 == 1:
        continue
    total = total * 3 + i + 1
return total * 10
""",
    "nested unrolled loops": """
total = 0
for i in range(3):
    for j in range(4):
        if j == n:
            break
        if i == n:
            continue
        total = total * 2 + i + j
    total = total + 1
return total
""",
    "return out of nested loops": """
total = n
for i in range(3):
    for j in range(3):
        total = total + i * j
        if total == 6:
            return -total
return total
""",
    "compile-time break": """
total = n
for i in range(10):
    if i == 3:
        break
    if i == 1:
        continue
    total = total * 10 + i
return total
""",
}
LOOP_BODIES = {
    "continue of a run-time loop": """
total = n - n
for i in range(n):
    if i % 3 == 1:
        continue
    total = total + i
return total
""",
    "continue in two ways": """
total = 0
for i in range(n):
    if i % 2 == 0:
        total = total + 1
        if i == 4:
            continue
        total = total + 10
    else:
        continue
    total = total * 2
return total
""",
    "continue of a while": """
total = 0
while n > 0:
    n = n - 1
    if n == 3:
        continue
    total = total * 2 + n
return total
""",
    "break of a run-time loop": """
total = 0
for i in range(10):
    if i == n:
        break
    total = total * 2 + i
return total
""",
    "break from above": """
total = n - n
for i in range(9, n, -2):
    total = total * 3 + i
    if total > 50:
        break
return total
""",
    "break of a while": """
total = 0
while n < 6:
    if total > 8:
        break
    total = total + n
    n = n + 1
    if n == 5:
        continue
    total = total + 1
return total * 10 + n
""",
    "break of an endless while": """
total = n
while True:
    total = total + 3
    if total > 12:
        if total % 2 == 0:
            break
return total
""",
    "break in both loops": """
total = 0
for i in range(n):
    for j in range(n):
        if j > i:
            break
        total = total * 2 + j
    if total > 40:
        break
return total
""",
    "break of a loop that does not run": """
total = n
for i in range(n, 0):
    if i > 2:
        break
    total = 0
return total
""",
    "guard before a loop": """
total = 0
if n > 5:
    return total - 1
for i in range(n):
    total = total + i
return total
""",
    "unrolled loop inside a run-time one": """
total = 0
for i in range(n):
    for j in (0, 1, 2):
        if i == j:
            break
        total = total + j + i
    total = total * 2
return total
""",
}


@pytest.mark.parametrize("name", [*BODIES, *LOOP_BODIES])
@pytest.mark.parametrize("is_function", [True, False], ids=["callee", "entry"])
def test_ways_out_are_pythons(name: str, is_function: bool, tmp_path: Path) -> None:
    body = (BODIES | LOOP_BODIES)[name]
    expected = _python(body, range(8))
    if name in BODIES:
        body = body.replace("range(", "tl.static_range(")
    body = body.replace("in (0, 1, 2)", "in tl.static_range(3)")
    lines = [f"    {line}" for line in body.strip("\n").split("\n")]
    if is_function:
        text = "\n".join(["@tl.kernel", "def f(n):", *lines, "@tl.kernel", "def k(x, out):"])
        text += "\n    i = tl.program_id(0)\n    tl.store(out + i, f(tl.load(x + i)))\n"
    else:
        stores = "\n".join(lines).replace("return ", "return tl.store(out + p, (")
        stores = "\n".join(
            line + ").to(tl.int64))" if "return tl.store" in line else line
            for line in stores.split("\n")
        )
        head = "@tl.kernel\ndef k(x, out):\n    p = tl.program_id(0)\n    n = tl.load(x + p)\n"
        text = f"{head}{stores}\n"
    assert _results(tmp_path, text, range(8)) == expected


def _count(module: Module, name: str) -> int:
    return sum(operation.name == name for operation in module.kernel.body.walk())


def test_what_follows_a_guard_is_lowered_once(tmp_path: Path) -> None:
    guards = "\n".join(f"    if n == {i}:\n        return" for i in range(20))
    text = f"@tl.kernel\ndef k(x, n):\n{guards}\n    tl.store(x, n)\n"
    module = lower_text(tmp_path, text, x="*i64", n="i64")
    assert _count(module, "store") == 1


def test_what_follows_nested_returns_is_lowered_once(tmp_path: Path) -> None:
    tests = "".join(f"{'    ' * depth}if n > {depth}{{i}}:\n" for depth in range(1, 6))
    part = f"{tests}{'    ' * 6}return\n    n = n + 1\n"
    text = "@tl.kernel\ndef k(x, n):\n" + "".join(part.format(i=i) for i in range(20))
    module = lower_text(tmp_path, text + "    tl.store(x, n)\n", x="*i64", n="i64")
    assert _count(module, "store") == 1
    assert _count(module, "add") == 20


SKIPS = """
@tl.kernel
def k(x, out):
    p = tl.program_id(0)
    n = tl.load(x + p)
    s = n - n
    for i in range(n):
"""


def test_too_many_ways_are_told_and_the_remedy_helps(tmp_path: Path) -> None:
    inputs = range(14)
    jumping = "if i > {i}:\n    if i == 2 * {i}:\n        continue\n    s = s + {i}\n"
    jumps = SKIPS + _indented("".join(jumping.format(i=i) for i in range(20)))
    with pytest.raises(KernelSyntaxError, match=r"512 ways: .*`done = True`.*`if done: continue`"):
        lower_text(tmp_path, jumps, x="*i64", out="*i64")
    asking = (
        "if i > {i}:\n    if i == 2 * {i}:\n        done = True\n    else:\n        s = s + {i}\n"
        "if done:\n    continue\n"
    )
    asks = SKIPS + _indented("done = False\n" + "".join(asking.format(i=i) for i in range(20)))
    left = "    tl.store(out + p, s)\n"
    expected = []
    for n in inputs:
        s = 0
        for i in range(n):
            skipped = next((k for k in range(20) if i > k and i == 2 * k), 20)
            s += sum(k for k in range(skipped) if i > k)
        expected.append(s)
    assert _results(tmp_path, asks + left, inputs) == expected


@pytest.mark.parametrize("loop", ["for i in range(n)", "while i < n"])
def test_ways_are_counted_once_however_often_a_loop_is_lowered(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `s` is carried and then a float: what the body was lowered for before counts no more.
    monkeypatch.setattr("tilewright_compiler.frontend.escapes._MAX_COPIES", 8)
    skip = "if i > {k}:\n    if i == 2 * {k}:\n        continue\n    s = s + 0.5\n"
    head = SKIPS.replace("for i in range(n)", loop).replace("s = n - n", "s = 0\n    i = n - n")
    body = "i = i + 1\n" + "".join(skip.format(k=k) for k in range(3))
    text = head + _indented(f"{body}s = s + 1\n") + "    tl.store(out + p, s)\n"
    lower_text(tmp_path, text, x="*i64", out="*f32")
    more = head + _indented(body + skip.format(k=3) + "s = s + 1\n")
    with pytest.raises(KernelSyntaxError, match="8 ways"):
        lower_text(tmp_path, more, x="*i64", out="*f32")


def _indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.splitlines())


def test_a_name_that_only_the_way_on_assigns_is_known(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    p = tl.program_id(0)
    n = tl.load(x + p)
    i = tl.arange(0, 4)
    if n > 2:
        if n == 4:
            return
        tile, size, places = i * n, 2, out + p * 4 + i
    else:
        if n == 1:
            return
        tile, size, places = i.to(tl.int64), 2, out + p * 4 + tl.flip(i, 0)
    tl.store(places, tile + tl.sum(tl.arange(0, size), 0))
"""
    out = np.full(24, -1, np.int64)
    x = np.arange(6, dtype=np.int64)
    run_text(tmp_path, text, {"x": x, "out": out}, grid=(6, 1, 1))
    skipped = [-1] * 4
    assert out.reshape(6, 4).tolist() == [
        [4, 3, 2, 1], skipped, [4, 3, 2, 1], [1, 4, 7, 10], skipped, [1, 6, 11, 16],
    ]  # fmt: skip


def test_variables_have_one_type_where_ways_meet(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n):
    if n > 2:
        if n == 4:
            return
        a = n
    else:
        a = n.to(tl.float32)
    tl.store(x, a)
"""
    with pytest.raises(KernelTypeError, match=r"`a` is i64 scalar after one branch \(line 6\)"):
        lower_text(tmp_path, text, x="*i64", n="i64")


def test_pointers_made_between_ways_out_are_those_of_the_way_on(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    p = tl.program_id(0)
    n = tl.load(x + p)
    if n > 2:
        if n == 4:
            return
        for i in range(n):
            n += 1
        place = x + n if n > 20 else out + p
        several = place + tl.arange(0, 2)
    else:
        several = tl.broadcast_to(out + p, (2,))
    tl.store(several, n)
"""
    expected = [0, 1, 2, 6, 6, 10, 10]
    out = np.full(7, -1000, np.int64)
    run_text(tmp_path, text, {"x": np.arange(6), "out": out}, grid=(6, 1, 1))
    assert out.tolist() == expected


def test_tiles_are_returned_from_branches(tmp_path: Path) -> None:
    text = """
@tl.kernel
def f(a, n):
    if n > 1:
        return a + 1, 2
    return a * 10, 3

@tl.kernel
def k(x, out):
    i = tl.program_id(0)
    a, b = f(tl.arange(0, 2).to(tl.int64), tl.load(x + i))
    tl.store(out + i, tl.sum(a * b, axis=0))
"""
    assert _results(tmp_path, text, range(4)) == [30, 30, 6, 6]


@pytest.mark.parametrize("dtype", ["u8", "i8", "u64", "i64"])
def test_loop_with_break_counts_to_the_ends_of_its_dtype(dtype: str, tmp_path: Path) -> None:
    bits, is_signed = int(dtype[1:]), dtype[0] == "i"
    lowest = -(1 << bits - 1) if is_signed else 0
    highest = lowest + (1 << bits) - 1
    array = np.dtype(f"{'int' if is_signed else 'uint'}{bits}").type
    text = """
@tl.kernel
def k(out, low, high, step):
    count = 0
    for i in range(low, high, step):
        if count == 9:
            break
        count += 1
    tl.store(out, count)
"""
    ends = [(lowest, highest, highest // 4), (highest - 3, highest, 2), (highest, lowest, 1)]
    for low, high, step in [*ends, (lowest, lowest + 20, 1), (lowest, lowest, 1)]:
        out = np.zeros(1, np.int64)
        arguments = {"out": out, "low": array(low), "high": array(high), "step": array(step)}
        run_text(tmp_path, text, arguments)
        assert out[0] == min(9, len(range(low, high, step)))
