"""Prints at compile time, f-strings, checks at run time, and the barrier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import load_kernel, lower_text, run_text, signature_of
from tilewright.errors import InterpreterError, KernelValueError
from tilewright_compiler import driver
from tilewright_compiler.passes import optimize


def _lower(directory: Path, body: str) -> None:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    text = f"@tl.kernel\ndef k(x, n, B: tl.constexpr):\n{lines}\n"
    lower_text(directory, text, x="*f16", n="i64", B=64)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("'block', B", "block 64\n"),
        ("", "\n"),
        ("B, 1.5, None, True, (1, (2,)), sep='|', end='.'", "64|1.5|None|True|(1, (2,))."),
        ("tl.float32, x.dtype", "tl.float32 tl.float16\n"),
        ("n, x", "<i64 scalar> <pointer to f16>\n"),
        ("tl.zeros((B, 2), tl.int8)", "<i8 tile [64, 2]>\n"),
        ("f'{B}: {n} {B * 2:>5} {B!r:_<4} {{}}'", "64: <i64 scalar>   128 64__ {}\n"),
        ("f'{1 / 3:.{3}f}'", "0.333\n"),
    ],
)
def test_static_print_shows_values_or_types(
    arguments: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lower(tmp_path, f"tl.static_print({arguments})")
    assert capsys.readouterr().out == printed


def test_message_of_static_assert_may_be_an_f_string(tmp_path: Path) -> None:
    with pytest.raises(KernelValueError, match="failed: B is 64, not a multiple of 48"):
        _lower(tmp_path, "tl.static_assert(B % 48 == 0, f'B is {B}, not a multiple of {48}')")


def test_f_string_is_part_of_the_key(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(n, B: tl.constexpr):\n    tl.static_print(f'{B:%s}')\n"
    digests = [load_kernel(tmp_path, text % spec).digest for spec in ("3", "4", "3")]
    assert digests[0] == digests[2] != digests[1]


CHECK = """
@tl.kernel
def k(x, out, n):
    p = tl.program_id(0)
    lanes = tl.arange(0, 8)
    values = tl.load(x + p * 8 + lanes)
    {check}
    tl.store(out + p * 8 + lanes, values)
"""


@pytest.mark.parametrize(
    ("check", "is_kept"),
    [
        ("tl.device_assert(n == 5, 'five')", True),
        ("tl.device_assert(n, 'five')", True),
        ("tl.device_assert(values >= 0, 'five')", True),
        ("tl.device_assert(values < 20, 'five')", False),
        ("tl.device_assert(values[:, None] < 20, 'five')", False),
        ("tl.device_assert(values < 20, 'five', mask=values < 18)", True),
        ("tl.device_assert(values < 20, 'five', mask=lanes > 3)", False),
        ("tl.device_assert(True, 'five')", True),
        ("tl.device_assert(n > 5, 'five')", False),
        ("if p == 7:\n        tl.device_assert(n > 5, 'five')", True),
        ("tl.device_assert(False, 'five')", False),
        ("if p == 7:\n        tl.device_assert(False, 'five')", True),
    ],
)
def test_device_assert_checks_every_lane(check: str, is_kept: bool, tmp_path: Path) -> None:
    x, out = np.arange(24), np.zeros(24, np.int64)
    arguments = {"x": x, "out": out, "n": 5}
    text = CHECK.format(check=check)
    if is_kept:
        run_text(tmp_path, text, arguments, grid=(3, 1, 1))
        np.testing.assert_array_equal(out, x)
        return
    with pytest.raises(InterpreterError, match="device_assert failed: five") as caught:
        run_text(tmp_path, text, arguments, grid=(3, 1, 1))
    assert "kernels.py:6" in str(caught.value)
    assert "program (" in str(caught.value)


def test_device_assert_calls_what_the_driver_links(tmp_path: Path) -> None:
    kernel = load_kernel(
        tmp_path, CHECK.format(check="tl.device_assert(values < n, 'small \"5\"')")
    )
    signature = signature_of(kernel, {"x": "*i64", "out": "*i64", "n": "i64"})
    ptx = driver.show(kernel, signature, "ptx")
    assert "__assertfail" in ptx
    assert str(tmp_path) not in ptx
    assert driver.show(kernel, signature, "resources")


def test_a_check_is_not_removed(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(x, n):\n    tl.device_assert(n > 0)\n"
    module = optimize(lower_text(tmp_path, text, x="*f32", n="i64"))
    assert "assert" in [operation.name for operation in module.kernel.body.walk()]


def test_barrier_orders_stores_before_loads(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    lanes = tl.arange(0, 256)
    tl.store(x + lanes, lanes)
    tl.debug_barrier()
    tl.store(out + lanes, tl.load(x + 255 - lanes))
"""
    x, out = np.zeros((2, 256), np.int32)
    run_text(tmp_path, text, {"x": x, "out": out})
    np.testing.assert_array_equal(out, np.arange(256)[::-1])
    kernel = load_kernel(tmp_path, text)
    ptx = driver.show(kernel, signature_of(kernel, {"x": "*i32", "out": "*i32"}), "ptx")
    first, _, rest = ptx.partition("bar")
    assert "st.global" in first
    assert "ld.global" in rest
    assert "ld.global" not in first


FOUR = [(0, 0, "1.500000"), (0, 1, "-2.000000"), (1, 0, "nan"), (1, 1, "inf")]
PRINT = """
@tl.kernel
def k(x):
    p = tl.program_id(1)
    values = tl.load(x + tl.arange(0, 2)[:, None] * 2 + tl.arange(0, 2)[None, :])
    {statement}
"""


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        (
            "tl.device_print('100%', values)",
            [
                f"pid (0, {p}, 0) idx ({i}, {j}) 100% {value}"
                for p in range(2)
                for i, j, value in FOUR
            ],
        ),
        ("tl.device_print('p', p + 3)", ["pid (0, 0, 0) p 3", "pid (0, 1, 0) p 4"]),
        (
            "tl.device_print('x', p.to(tl.uint8) - 1, p == 1)",
            ["pid (0, 0, 0) x 255", "pid (0, 1, 0) x 0", "pid (0, 0, 0) x 0", "pid (0, 1, 0) x 1"],
        ),
        (
            "tl.device_print('h', (p - 2).to(tl.int16), hex=True)",
            ["pid (0, 0, 0) h 0xfffe", "pid (0, 1, 0) h 0xffff"],
        ),
        (
            "tl.device_print('f', 1.5, hex=True)",
            [f"pid (0, {p}, 0) f 0x3fc00000" for p in range(2)],
        ),
    ],
)
def test_device_print_says_where_and_what(
    statement: str, printed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PRINT.format(statement=statement)
    x = np.array([1.5, -2, np.nan, np.inf], np.float32)
    run_text(tmp_path, text, {"x": x}, grid=(1, 2, 1))
    assert capsys.readouterr().out.splitlines() == printed


def test_device_print_calls_what_the_driver_links(tmp_path: Path) -> None:
    text = PRINT.format(statement="tl.device_print('a', values, p, hex=False)")
    kernel = load_kernel(tmp_path, text)
    signature = signature_of(kernel, {"x": "*f32"})
    ptx = driver.show(kernel, signature, "ptx")
    # Four elements for 128 threads: one register, and a thread in 32 prints.
    assert ptx.count("vprintf, ") == 2
    assert driver.show(kernel, signature, "resources")
