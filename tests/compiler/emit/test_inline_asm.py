"""PTX of a kernel's author: registers, packing and order, on executed PTX; and its reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.emitted import ORDERS, run_scheduled
from helpers.every_way import lower_text
from tilewright.errors import InterpreterError, KernelTypeError, KernelValueError
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]


def _text(call: str, *, size: int = 256, results: int = 1, before: str = "") -> str:
    outs = [f"out{number}" for number in range(results)]
    lines = [before, "@tl.kernel", f"def k(x, y, {', '.join(outs)}):"]
    lines += [f"    n = tl.arange(0, {size})", "    a, b = tl.load(x + n), tl.load(y + n)"]
    lines += [f"    {', '.join(f'r{name}' for name in outs)} = tl.inline_asm_elementwise({call})"]
    lines += [f"    tl.store({name} + n, r{name})" for name in outs]
    return "\n".join(lines) + "\n"


def _compiled(module: Module) -> Module:
    return schedule_module(optimize(module, verify_each=True))


def _executed(module: Module, arrays: dict[str, Array]) -> list[dict[str, Array]]:
    """Return what each order of the warps leaves."""
    runs = []
    for order in ORDERS:
        copies = {name: array.copy() for name, array in arrays.items()}
        run_scheduled(module, list(copies.values()), order=order)
        runs.append(copies)
    return runs


def _arrays(dtype: Any, result: Any, size: int = 256, results: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(2)
    x, y = (np.frombuffer(random.bytes(size * np.dtype(dtype).itemsize), dtype) for _ in range(2))
    outs = {f"out{number}": np.zeros(size, result) for number in range(results)}
    return {"x": x.copy(), "y": y.copy(), **outs}


CASES: dict[str, tuple[str, Any, Callable[[Array, Array], Array]]] = {
    "one element": (
        "'xor.b32 $0, $1, $2;', '=r,r,r', [a, b], tl.int32, True, 1",
        np.int32,
        lambda a, b: a ^ b,
    ),
    "two at a time": (
        "'xor.b32 $0, $2, $4; xor.b32 $1, $3, $5;', '=r,=r,r,r,r,r', [a, b], tl.int32, True, 2",
        np.int32,
        lambda a, b: a ^ b,
    ),
    "four bytes in a word": (
        "'xor.b32 $0, $1, $2;', '=r,r,r', [a, b], tl.int8, True, 4",
        np.int8,
        lambda a, b: a ^ b,
    ),
    "a byte alone": (
        "'xor.b32 $0, $1, $2;', '=r,r,r', [a, b], tl.uint8, True, 1",
        np.uint8,
        lambda a, b: a ^ b,
    ),
    "eight bytes in two words": (
        "'xor.b32 $0, $2, $4;\\n\\txor.b32 $1, $3, $5;', '=r, =r, r, r, r, r', [a, b], tl.int8,"
        " True, 8",
        np.int8,
        lambda a, b: a ^ b,
    ),
    "two halves in a word": (
        "'xor.b32 $0, $1, $2;', '=r,r,r', [a, b], tl.int16, True, 2",
        np.int16,
        lambda a, b: a ^ b,
    ),
    "a half in a register of its own": (
        "'xor.b16 $0, $1, $2;', '=h,h,h', [a, b], tl.int16, True, 1",
        np.int16,
        lambda a, b: a ^ b,
    ),
    "long words": (
        "'xor.b64 $0, $1, $2;', '=l,l,l', [a, b], tl.int64, True, 1",
        np.int64,
        lambda a, b: a ^ b,
    ),
    "a scope of its own": (
        "'{ .reg .b32 t; and.b32 t, $1, $2; not.b32 $0, t; }', '=r,r,r', [a, b], tl.int32, True, 1",
        np.int32,
        lambda a, b: ~(a & b),
    ),
    "tied to the result": (
        "'xor.b32 $0, $0, $2;', '=r,0,r', [a, b], tl.int32, True, 1",
        np.int32,
        lambda a, b: a ^ b,
    ),
}


@pytest.mark.parametrize("size", [32, 256, 1024])
@pytest.mark.parametrize("name", CASES)
def test_elements_reach_their_registers(name: str, size: int) -> None:
    call, dtype, truth = CASES[name]
    arrays = _arrays(dtype, dtype, size)
    module = _compiled(lower_text(_text(call, size=size), arrays))
    for found in _executed(module, arrays):
        np.testing.assert_array_equal(found["out0"], truth(arrays["x"], arrays["y"]))


def test_floats_have_registers_of_their_own() -> None:
    call = "'add.rn.f32 $0, $1, $2;', '=f,f,f', [a, b], tl.float32, True, 1"
    arrays = _arrays(np.float32, np.float32)
    arrays["x"], arrays["y"] = np.arange(256, dtype=np.float32), np.ones(256, np.float32)
    module = _compiled(lower_text(_text(call), arrays))
    for found in _executed(module, arrays):
        np.testing.assert_array_equal(found["out0"], arrays["x"] + 1)
    double = "'add.rn.f64 $0, $1, $2;', '=d,d,d', [a, b], tl.float64, True, 1"
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    for found in _executed(_compiled(lower_text(_text(double), arrays)), arrays):
        np.testing.assert_array_equal(found["out0"], arrays["x"] + 1)


def test_several_results_of_several_types() -> None:
    call = (
        "'and.b32 $0, $2, $3; { .reg .b32 t; xor.b32 t, $2, $3; cvt.u64.u32 $1, t; }',"
        " '=r,=l,r,r', (a, b), (tl.uint32, tl.int64), True, 1"
    )
    arrays = _arrays(np.uint32, np.uint32, results=2) | {"out1": np.zeros(256, np.int64)}
    module = _compiled(lower_text(_text(call, results=2), arrays))
    for found in _executed(module, arrays):
        np.testing.assert_array_equal(found["out0"], arrays["x"] & arrays["y"])
        np.testing.assert_array_equal(found["out1"], (arrays["x"] ^ arrays["y"]).astype(np.int64))


REFERENCE = """
@tl.kernel
def nand(a, b):
    return ~(a & b)
"""
NAND = "'{ .reg .b32 t; and.b32 t, $1, $2; not.b32 $0, t; }', '=r,r,r', [a, b], tl.int32, True, 1"


def test_the_reference_is_what_the_interpreter_runs() -> None:
    arrays = _arrays(np.int32, np.int32)
    module = lower_text(_text(f"{NAND}, reference=nand", before=REFERENCE), arrays)
    copies = {name: array.copy() for name, array in arrays.items()}
    tile.run(module, grid=(1, 1, 1), arguments=copies)
    expected = ~(arrays["x"] & arrays["y"])
    np.testing.assert_array_equal(copies["out0"], expected)
    compiled = _compiled(module)
    assert not [o for o in compiled.kernel.body.walk() if o.name in ("and", "xor", "call")]
    for found in _executed(compiled, arrays):
        np.testing.assert_array_equal(found["out0"], expected)


def test_without_a_reference_the_interpreter_refuses() -> None:
    arrays = _arrays(np.int32, np.int32)
    module = lower_text(_text(NAND), arrays)
    with pytest.raises(InterpreterError, match=r"kernel 'k' has PTX of its own.*`reference=...`"):
        tile.run(module, grid=(1, 1, 1), arguments=arrays)
    with pytest.raises(InterpreterError, match="runs on a GPU only"):
        scheduled.run(_compiled(module), grid=(1, 1, 1), arguments=arrays)


def test_text_form_keeps_quotes_and_lines() -> None:
    call = "'// \"x\" \\\\ \\n xor.b32 $0, $1, $2;', '=r,r,r', [a, b], tl.int32, True, 1"
    arrays = _arrays(np.int32, np.int32)
    module = lower_text(_text(call), arrays)
    text = print_module(module)
    again = parse_module(text)
    verify(again)
    assert print_module(again) == text
    for found in _executed(_compiled(again), arrays):
        np.testing.assert_array_equal(found["out0"], arrays["x"] ^ arrays["y"])


def test_pure_calls_are_merged_and_dropped_and_others_kept() -> None:
    text = """
@tl.kernel
def k(out):
    n = tl.arange(0, 128)
    first = tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], tl.uint32, PURE, 1)
    second = tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], tl.uint32, PURE, 1)
    unused = tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [n], tl.uint32, PURE, 1)
    tl.store(out + n, (second - first).to(tl.int32) + n)
""".replace('"=r", [n]', '"=r,r", [n]')
    arrays = {"out": np.zeros(128, np.int32)}
    counts = {}
    for pure in ("True", "False"):
        module = _compiled(lower_text(text.replace("PURE", pure), arrays))
        counts[pure] = lower_to_ptx(emit_module(module)).text.count("%clock")
    assert counts["True"] <= 1
    assert counts["False"] == 3


def test_every_target_assembles_it() -> None:
    call = (
        "'{ .reg .b32 t; mov.b32 t, 0x3c003c00; fma.rn.f16x2 $0, $1, t, $2; }', '=r,r,r', [a, b],"
        " tl.float16, True, 2"
    )
    arrays = _arrays(np.float16, np.float16)
    ptx = lower_to_ptx(emit_module(_compiled(lower_text(_text(call), arrays))))
    for target in TARGETS:
        assert assemble(ptx, target).spill_bytes == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("'', '=r,r', [a, b], tl.int32, True, 1", KernelValueError, "2 registers hold them, .* 1"),
        ("'', '=r,r,r,r', [a, b], tl.int32, True, 1", KernelValueError, "2 registers .* name 3"),
        (
            "'', '=r,r,r', [a, b], tl.int64, True, 1",
            KernelValueError,
            "`r` has 32 bits, a register",
        ),
        ("'', '=r,r,h', [a, b], tl.int32, True, 1", KernelValueError, "`h` has 16 bits"),
        ("'', '=q,r,r', [a, b], tl.int32, True, 1", KernelValueError, "`=q` is no register"),
        ("'', '=r,r,1', [a, b], tl.int32, True, 1", KernelValueError, "`1` is not one of"),
        ("'', 'r,r,=r', [a, b], tl.int32, True, 1", KernelValueError, "behind an argument"),
        ("'', '=r,r,r', [a, b], tl.int32, True, 0", KernelValueError, "`pack` .* is 0; it is 1 to"),
        ("'é', '=r,r,r', [a, b], tl.int32, True, 1", KernelValueError, "PTX does not know"),
        ("b, '=r,r,r', [a, b], tl.int32, True, 1", KernelTypeError, "`asm` .* is a string"),
        ("'', '=r,l,r', [x, b], tl.int32, True, 1", KernelTypeError, "pointer to i32"),
        ("'', '=r,r,r', [a, b], tl.int32, a, 1", KernelTypeError, "`is_pure` .* True or False"),
        ("'', '=r,r,r', [a, b], 'i32', True, 1", KernelTypeError, "`dtype` .* is one of"),
        (f"{NAND}, reference=tl.exp", KernelTypeError, "`reference` .* is a kernel, got function"),
        (f"{NAND}, reference=pair", KernelTypeError, "`dtype` names 1 results"),
        (f"{NAND}, reference=wide", KernelTypeError, "returns i64 tile .* where `dtype` says i32"),
    ],
)
def test_what_does_not_fit_is_told(call: str, error: type[Exception], message: str) -> None:
    before = """
@tl.kernel
def pair(a, b):
    return a, b

@tl.kernel
def wide(a, b):
    return a.to(tl.int64)
"""
    with pytest.raises(error, match=message):
        lower_text(_text(call, before=before), _arrays(np.int32, np.int32))


def test_elements_of_eight_bit_floats_and_bools_travel_as_bytes() -> None:
    dtype = ml_dtypes.float8_e4m3fn
    call = "'mov.b32 $0, $1;', '=r,r', [a], tl.float8e4nv, True, 4"
    arrays = _arrays(dtype, dtype)
    for found in _executed(_compiled(lower_text(_text(call), arrays)), arrays):
        assert found["out0"].tobytes() == arrays["x"].tobytes()
    flags = "'xor.b32 $0, $1, $2;', '=r,r,r', [a > b, a < b], tl.int1, True, 4"
    arrays = _arrays(np.int32, np.bool_)
    for found in _executed(_compiled(lower_text(_text(flags), arrays)), arrays):
        np.testing.assert_array_equal(found["out0"], arrays["x"] != arrays["y"])
