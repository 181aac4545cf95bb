"""Two stores of one program to one array keep their order, and wait only where they must."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.emitted import ORDERS, run_scheduled
from helpers.gpu import requires_gpu
from helpers.kernel_source import load_kernel, signature_of
from tilewright.runtime.memory import from_numpy
from tilewright_compiler.driver import interpret_kernel
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

HEAD = "@tl.kernel\ndef stores(out, places, n, stride):\n    l = tl.arange(0, 256)\n"
TYPES = {"out": "*i32", "places": "*i32", "n": "i64", "stride": "i64"}

# What the lanes of the later store write, other lanes wrote before.
ORDERED = {
    "a fill and a scatter": """
    tl.store(out + l, -1)
    tl.store(out + tl.load(places + l), l)
    """,
    "windows side by side": """
    tl.store(out + l, l)
    tl.store(out + l + 1, -l)
    """,
    "a window that moves by one": """
    for i in range(0, n):
        tl.store(out + l + i, l)
    """,
    "a window that moves by less than it spans": """
    for i in range(0, n):
        tl.store(out + l + i * stride, l)
    """,
    "chunks that overlap": """
    for start in range(0, n * 64, 64):
        tl.store(out + start + l, l)
    """,
    "a pointer that a loop moves by one": """
    for i in range(0, n):
        tl.store(out + l, l)
        out += 1
    """,
    "a pointer of a while": """
    i = 0
    while i < n:
        tl.store(out + l, l)
        out += 1
        i += 1
    """,
    "the other way round": """
    tl.store(out + l, l)
    tl.store(out + 255 - l, -l)
    """,
    "lanes that meet": """
    tl.store(out + l % 8, -1)
    tl.store(out + l % 8, l, mask=l < 8)
    """,
    "rows that overlap": """
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(out + rows * 8 + columns, -1)
    tl.store(out + rows * 8 + columns, rows + columns, mask=columns < 8)
    """,
    "tiles a row apart": """
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(out + rows * stride + columns, rows + columns)
    tl.store(out + (rows + 1) * stride + columns, -rows - columns)
    """,
    "rows that a number is added to": """
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(out + rows * stride + columns, rows + columns)
    tl.store(out + 50 + rows * stride + columns, -rows - columns)
    """,
    "chunks that reach the next row": """
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    for start in range(0, n * 32, 32):
        tl.store(out + start + rows * stride + columns, start + rows)
    """,
    "a stride that is 0 once": """
    for i in range(0, n):
        tl.store(out + l * i, 1)
        tl.store(out + l * i, 2, mask=l == 100)
    """,
    "rows of a width that is computed": """
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    width = tl.minimum(stride, 8)
    tl.store(out + rows * width + columns, 1)
    tl.store(out + rows * width + columns, 2, mask=columns < 8)
    """,
    "windows that wrap": """
    for i in range(0, 2):
        k = i.to(tl.int64) * 3443392227092449635  # 300 times the second is 4, modulo 2^64
        tl.store(out + k * 300 + l, l + 1000 * i)
    """,
    "what several lanes read and write": """
    tl.store(out + l % 8, tl.load(out + l % 8) + 1)
    """,
    "the same branch of another iteration": """
    for i in range(0, n):
        if i % 2 == 0:
            tl.store(out + l, l)
        else:
            tl.store(out + l + 1, -l)
    """,
}

# Each lane writes over what it wrote itself, or nothing is written twice.
FREE = {
    "the same elements": """
    for i in range(0, n):
        tl.store(out + l, l + i)
    """,
    "a row by chunks": """
    for start in range(0, n * 256, 256):
        tl.store(out + start + l, l)
    """,
    "a row by chunks, at a stride": """
    for start in range(tl.program_id(0) * 256, n * 256, tl.num_programs(0) * 256):
        tl.store(out + (start + l) * stride, l)
    """,
    "chunks by numbers that are loaded": """
    for i in range(0, n):
        tl.store(out + tl.load(places + i).to(tl.int64) * 256 + l, i)
    """,
    "a row twice": """
    for start in range(0, n * 256, 256):
        tl.store(out + start + l, l)
    for start in range(0, n * 256, 256):
        tl.store(out + start + l, -l)
    """,
    "parts of a row": """
    tl.store(out + l, l)
    tl.store(out + tl.arange(256, 512), -l)
    """,
    "a pointer that a loop moves by a chunk": """
    for i in range(0, n):
        tl.store(out + l, l)
        out += 256
    """,
    "rows of a tile, and those below": """
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    for row in range(0, n):
        for again in range(0, n):
            tl.store(out + (row * 16 + rows) * stride + columns, rows + again)
    """,
    "one row of a tile after another": """
    for row in range(0, n):
        tl.store(out + (row + tl.arange(0, 1)[:, None]) * 256 + l[None, :], row)
    """,
    "either branch": """
    for start in range(0, n * 256, 256):
        if stride == 1:
            tl.store(out + start + l, l)
        else:
            tl.store(out + (start + l) * stride, l)
    """,
    "read and written in place": """
    for start in range(0, n * 256, 256):
        tl.store(out + start + l, tl.load(out + start + l) + 1)
    """,
}


def module_of(tmp_path: Path, body: str) -> Module:
    kernel = load_kernel(tmp_path, HEAD + body)
    return optimize(lower_kernel(kernel, signature_of(kernel, TYPES)))


def arguments() -> dict[str, Any]:
    random = np.random.default_rng(0)
    places = random.permutation(256).astype(np.int32)
    return {"out": np.full(1 << 16, 77, np.int32), "places": places, "n": 3, "stride": 50}


def expected(tmp_path: Path, body: str) -> np.ndarray[Any, Any]:
    values = arguments()
    kernel = load_kernel(tmp_path, HEAD + body)
    interpret_kernel(kernel, signature_of(kernel, TYPES), grid=(1, 1, 1), arguments=values)
    found: np.ndarray[Any, Any] = values["out"]
    return found


def is_right(module: Module, result: np.ndarray[Any, Any]) -> bool:
    for order in ORDERS:
        values = copy.deepcopy(arguments())
        run_scheduled(module, [values[name] for name, _ in module.signature.runtime], order=order)
        if not np.array_equal(values["out"], result):
            return False
    return True


def count_barriers(module: Module) -> int:
    return sum(operation.name == "barrier" for operation in module.kernel.body.walk())


@pytest.mark.parametrize("body", ORDERED.values(), ids=ORDERED)
def test_the_later_of_two_lanes_waits(body: str, tmp_path: Path) -> None:
    module = schedule_module(module_of(tmp_path, body))
    result = expected(tmp_path, body)
    assert is_right(module, result)
    without = rewrite_module(module, lambda o, *_: () if o.name == "barrier" else None)
    assert not is_right(without, result)


@pytest.mark.parametrize("body", FREE.values(), ids=FREE)
def test_lanes_do_not_wait_for_what_they_did_themselves(body: str, tmp_path: Path) -> None:
    module = schedule_module(module_of(tmp_path, body))
    assert is_right(module, expected(tmp_path, body))
    assert not count_barriers(module)


@requires_gpu()
@pytest.mark.parametrize("body", [*ORDERED.values(), *FREE.values()], ids=[*ORDERED, *FREE])
def test_a_device_keeps_the_order(body: str, tmp_path: Path) -> None:
    values = arguments()
    out, places = (from_numpy(values[name], device=0) for name in ("out", "places"))
    load_kernel(tmp_path, HEAD + body)[(1,)](out, places, values["n"], values["stride"])
    np.testing.assert_array_equal(out.numpy(), expected(tmp_path, body))
