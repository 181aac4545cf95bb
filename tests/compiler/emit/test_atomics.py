"""Atomic operations run as their PTX: every kind and type, replicas, order and scope."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.every_way import lower_text, run_every_way
from helpers.ptx_program import parse
from tilewright.abi.signature import Specialization
from tilewright.abi.target import Target
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.ops.atomics import SCOPES, SEMANTICS
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]

INTEGERS = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
BITWISE = ("and", "or", "xor")
BF16 = ml_dtypes.bfloat16

# Elements that lanes meet in are summed, compared and so on in any order, so their old values are
# not looked at; exchanges do not meet.
EACH_KIND = """
@tl.kernel
def k(x, values, places, out, KIND: tl.constexpr, B: tl.constexpr):
    lanes = tl.arange(0, B)
    value = tl.load(values + lanes)
    place = tl.load(places + lanes)
    if KIND == "cas":
        old = tl.atomic_cas(x + place, tl.load(out + lanes), value, mask=lanes < B - 4)
    else:
        old = tl.atomic_{0}(x + place, value, mask=lanes < B - 4)
    tl.store(out + lanes, old, mask=(lanes < 40) & (lanes != 3))
    if KIND != "cas":
        tl.atomic_{0}(x + lanes, value, mask=lanes < 16, sem="relaxed")
"""


def _numbers(dtype: np.dtype[Any], seed: int, *, has_nan: bool) -> Array:
    random = np.random.default_rng(seed)
    if dtype.kind == "u":
        return random.integers(0, 200, 64).astype(dtype)
    numbers = random.integers(-8, 8, 64).astype(dtype)
    if dtype.kind not in "iu":
        numbers[5:8] = np.array([-0.0, np.inf, -np.inf]).astype(dtype)
        if has_nan:  # which of them a sum gives is nobody's affair
            numbers[8] = np.nan
    return numbers


def _cases() -> list[tuple[str, str]]:
    kinds = ("add", "max", "min", "xchg")
    return [
        *((name, kind) for name in INTEGERS for kind in (*kinds, *BITWISE, "cas")),
        *((name, kind) for name in FLOATS for kind in (*kinds, "cas")),
    ]


@pytest.mark.parametrize(("name", "kind"), _cases())
def test_each_kind_of_each_type(name: str, kind: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    places = np.arange(64, dtype=np.int32)
    if kind not in ("xchg", "cas"):
        places[40:] = 3
    memory, values = (_numbers(dtype, seed, has_nan=kind != "add") for seed in (1, 2))
    out = np.where(np.arange(64) % 3 == 0, np.roll(memory, 1), memory)
    arrays = {"x": memory, "values": values, "places": places, "out": out}
    text = EACH_KIND.format("xchg" if kind == "cas" else kind)
    found = run_every_way(text, arrays, KIND=kind, B=64)
    assert found["x"].tobytes() != memory.tobytes()


@pytest.mark.parametrize("num_warps", [1, 8])
@pytest.mark.parametrize("shape", [(2, 4), (16, 1), (1, 32), (8, 128)])
def test_each_element_is_done_once_whoever_holds_it(shape: tuple[int, int], num_warps: int) -> None:
    text = """
@tl.kernel
def k(count, out, totals, R: tl.constexpr, C: tl.constexpr):
    place = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    old = tl.atomic_add(count + place, place + 1)
    tl.store(out + place, old + tl.zeros((R, C), tl.int32))
    rows = tl.arange(0, R)
    before = tl.atomic_add(totals + rows, tl.sum(old, axis=1))
    tl.store(totals + R + rows, before + 1)
    all = tl.atomic_add(totals + 2 * R, tl.sum(before, axis=0))
    tl.store(out + place, old * 2 + all, mask=place % 2 == 0)
"""
    rows, columns = shape
    size = rows * columns
    arrays = {
        "count": np.arange(size, dtype=np.int32) * 3,
        "out": np.zeros(size, np.int32),
        "totals": np.arange(2 * rows + 1, dtype=np.int32),
    }
    found = run_every_way(text, arrays, num_warps=num_warps, R=rows, C=columns)
    assert found["count"].tolist() == [4 * i + 1 for i in range(size)]
    totals = (np.arange(size, dtype=np.int32) * 3).reshape(shape).sum(1) + np.arange(rows)
    assert found["totals"][:rows].tolist() == totals.tolist()
    assert found["totals"][rows : 2 * rows].tolist() == list(range(1, rows + 1))
    assert found["totals"][-1] == 2 * rows + sum(range(rows))


def _instructions(
    statements: str, dtype: Any = np.int32, specialization: Specialization = "general"
) -> list[str]:
    """Return the atomic instructions of a kernel with a pointer `x` and a tile of lanes."""
    lines = "".join(f"    {line}\n" for line in statements.split("\n"))
    text = f"@tl.kernel\ndef k(x, out):\n    lanes = tl.arange(0, 128)\n{lines}"
    arrays = {"x": np.zeros(1, dtype), "out": np.zeros(1, dtype)}
    module = lower_text(text, arrays, specialization=specialization)
    ptx = lower_to_ptx(emit_module(schedule_module(optimize(module)))).text
    opcodes = [".".join(instruction.opcode) for instruction in parse(ptx).instructions]
    return [opcode for opcode in opcodes if re.match(r"atom|red|ld\.(relaxed|acquire)|bar", opcode)]


@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
def test_order_and_scope_are_those_of_the_kernel(sem: str, scope: str) -> None:
    statement = f'old = tl.atomic_add(x + lanes, 1, sem="{sem}", scope="{scope}")'
    used = _instructions(f"{statement}\ntl.store(out + lanes, old)")
    assert f"atom.{sem}.{scope}.global.add.u32" in used
    unused = _instructions(statement)
    name = "red" if sem in ("relaxed", "release") else "atom"
    assert unused == [f"{name}.{sem}.{scope}.global.add.u32"]


@pytest.mark.parametrize(
    ("statement", "dtype", "opcodes"),
    [
        ("tl.atomic_add(x + lanes, 1.0)", np.float32, ["atom.acq_rel.gpu.global.add.f32"]),
        (
            'tl.atomic_add(x + lanes, 1.0, sem="release")',
            np.float64,
            ["red.release.gpu.global.add.f64"],
        ),
        (
            'tl.atomic_add(x + lanes, 1, sem="relaxed")',
            np.float16,
            ["red.relaxed.gpu.global.add.noftz.f16"],
        ),
        (
            'tl.atomic_max(x + lanes, lanes, sem="relaxed")',
            np.uint64,
            ["red.relaxed.gpu.global.max.u64"],
        ),
        (
            'tl.atomic_min(x + lanes, lanes.to(tl.float32) - 9, sem="relaxed")',
            np.float32,
            ["red.relaxed.gpu.global.min.s32", "red.relaxed.gpu.global.max.u32"],
        ),
        ("tl.atomic_xchg(x + lanes, 1)", np.float64, ["atom.acq_rel.gpu.global.exch.b64"]),
        ("tl.atomic_cas(x + lanes, 1, 2)", np.int16, ["atom.acq_rel.gpu.global.cas.b16"]),
        (
            'tl.atomic_add(x + lanes, 1, sem="relaxed")',
            np.int16,
            ["ld.relaxed.gpu.global.b16", "atom.relaxed.gpu.global.cas.b16"],
        ),
        ("tl.load(x + lanes, volatile=True)", np.int32, ["ld.relaxed.sys.global.b32"]),
    ],
)
def test_instructions(statement: str, dtype: type, opcodes: list[str]) -> None:
    assert _instructions(statement, dtype) == opcodes


@pytest.mark.parametrize(
    ("dtype", "statement", "opcodes"),
    [
        (np.float16, "pair, 1", ["red.relaxed.gpu.global.add.noftz.f16x2"]),
        (BF16, "pair, 1", ["ld.relaxed.gpu.global.b32", "atom.relaxed.gpu.global.cas.b32"]),
        (np.float16, "pair, 1, mask=pair < 254", ["red.relaxed.gpu.global.add.noftz.f16x2"]),
        (np.float16, "pair, 1, mask=pair < 255", 2 * ["red.relaxed.gpu.global.add.noftz.f16"]),
        (np.float16, "pair + 1, 1", 2 * ["red.relaxed.gpu.global.add.noftz.f16"]),
    ],
)
def test_halves_that_lie_together_are_added_at_once(
    dtype: Any, statement: str, opcodes: list[str]
) -> None:
    statements = f'pair = tl.arange(0, 256)\ntl.atomic_add(x + {statement}, sem="relaxed")'
    assert _instructions(statements, dtype, "fast") == opcodes


@pytest.mark.parametrize("columns", [6, 7, 8])
@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_pairs_of_halves_add_up(dtype: Any, columns: int) -> None:
    text = """
@tl.kernel
def k(x, rows, values, out, C: tl.constexpr):
    row = tl.load(rows + tl.arange(0, 16))  # [16]
    column = tl.arange(0, 8)  # [8]
    place = tl.arange(0, 16)[:, None] * 8 + column[None, :]
    value = tl.load(values + place)
    inside = (row >= 0)[:, None] & (column < C)[None, :]
    tl.atomic_add(x + row[:, None] * 8 + column[None, :], value, mask=inside, sem="relaxed")
    old = tl.atomic_add(out + place, value, mask=inside)
    tl.store(values + place, old)
"""
    random = np.random.default_rng(columns)
    values, out = (random.integers(-4, 5, (16, 8)).astype(dtype) for _ in range(2))
    rows = random.integers(-1, 3, 16).astype(np.int32)
    arrays = {"x": np.zeros((3, 8), dtype), "rows": rows, "values": values, "out": out}
    found = run_every_way(text, arrays, specialization="fast", C=columns)
    expected = np.zeros((3, 8))
    inside = rows >= 0
    np.add.at(expected, rows[inside], values[inside].astype(np.float64))
    expected[:, columns:] = 0
    np.testing.assert_array_equal(found["x"].astype(np.float64), expected)


def test_what_nobody_asks_for_needs_no_shared_memory() -> None:
    text = """
@tl.kernel
def k(x):
    tl.atomic_add(x, 1)
    tl.atomic_add(x + tl.arange(0, 16), 1)
"""
    module = lower_text(text, {"x": np.zeros(1, np.int32)})
    assert schedule_module(optimize(module)).attributes["shared_bytes"] == 0


@pytest.fixture(scope="module", params=[*INTEGERS, *FLOATS])
def everything(request: pytest.FixtureRequest) -> str:
    """Return the PTX of a kernel with each kind, order and scope, its result used and unused."""
    name: str = request.param
    lines = []
    for kind, sem, scope in product((k for n, k in _cases() if n == name), SEMANTICS, SCOPES):
        values = "1, 2" if kind == "cas" else "1"
        how = f'{values}, sem="{sem}", scope="{scope}")'
        lines.append(f"    tl.atomic_{kind}(x + lanes, {how}\n")
        lines.append(f"    tl.store(x, tl.atomic_{kind}(x, {how})\n")
    text = f"@tl.kernel\ndef k(x):\n    lanes = tl.arange(0, 16)\n{''.join(lines)}"
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    module = lower_text(text, {"x": np.zeros(1, dtype)})
    return lower_to_ptx(emit_module(schedule_module(optimize(module)))).text


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_everything_assembles(everything: str, target: Target) -> None:
    assert assemble(everything, target).spill_bytes == 0
