"""Atomic operations: shapes, masks, casts, order and scope; volatile loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright.errors import KernelTypeError
from tilewright_compiler.ir.core import Operation


def _operation(directory: Path, body: str, name: str) -> Operation:
    text = f"@tl.kernel\ndef k(x, h, n):\n    t = tl.arange(0, 8)\n    {body}\n"
    module = lower_text(directory, text, x="*i32", h="*f16", n="i64")
    (operation,) = (o for o in module.kernel.body.walk() if o.name == name)
    return operation


def test_by_default_the_device_is_in_order(tmp_path: Path) -> None:
    add = _operation(tmp_path, "r = tl.atomic_add(x + n, 1)", "atomic_rmw")
    assert [str(v.type) for v in add.operands] == ["ptr<i32>", "i32"]
    assert str(add.result.type) == "i32"
    assert add.attributes == {"kind": "add", "sem": "acq_rel", "scope": "gpu"}


@pytest.mark.parametrize("kind", ["add", "max", "min", "and", "or", "xor", "xchg"])
def test_kind_order_and_scope_reach_the_operation(kind: str, tmp_path: Path) -> None:
    call = f'tl.atomic_{kind}(x, 1, sem="release", scope="sys")'
    operation = _operation(tmp_path, call, "atomic_rmw")
    assert operation.attributes == {"kind": kind, "sem": "release", "scope": "sys"}


@pytest.mark.parametrize(
    ("call", "name", "operands"),
    [
        ("tl.atomic_add(h + t[:, None] + t, 1)", "atomic_rmw", 1),
        ("tl.atomic_max(h + t[:, None] + t, n, mask=True)", "atomic_rmw", 1),
        ("tl.atomic_xchg(h + t[:, None] + t, t, mask=t < n)", "atomic_rmw", 1),
        ("tl.atomic_cas(h + t[:, None] + t, n, t[:, None], t < n)", "atomic_cas", 2),
    ],
)
def test_values_and_masks_take_the_pointers_shape_and_dtype(
    call: str, name: str, operands: int, tmp_path: Path
) -> None:
    operation = _operation(tmp_path, call, name)
    types = [str(value.type) for value in operation.operands]
    values = ["tile<8x8xptr<f16>>", *["tile<8x8xf16>"] * operands]
    assert types[: 1 + operands] == values
    assert types[1 + operands :] in ([], ["tile<8x8xi1>"])
    assert str(operation.result.type) == "tile<8x8xf16>"


def test_a_volatile_load_happens_each_time(tmp_path: Path) -> None:
    load = _operation(tmp_path, "r = tl.load(x + t, t < n, 5, volatile=True)", "atomic_load")
    assert [str(v.type) for v in load.operands] == ["tile<8xptr<i32>>", "tile<8xi1>"]
    assert load.attributes == {"sem": "relaxed", "scope": "sys"}


@pytest.mark.parametrize("dtype", ["i8", "u8", "i1", "f8e4m3"])
def test_small_elements_are_refused(dtype: str, tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(x):\n    tl.atomic_xchg(x, 1)\n"
    with pytest.raises(KernelTypeError, match=f"16, 32 or 64 bits, got a pointer to {dtype}"):
        lower_text(tmp_path, text, x=f"*{dtype}")


def test_tickets_are_each_given_once(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(counter, out):
    ticket = tl.atomic_add(counter, 1, sem="relaxed")
    tl.store(out + ticket, tl.program_id(0))
"""
    counter, out = np.zeros(1, np.int32), np.full(7, -1, np.int64)
    run_text(tmp_path, text, {"counter": counter, "out": out}, grid=(7, 1, 1))
    assert counter[0] == 7
    assert sorted(out.tolist()) == list(range(7))
