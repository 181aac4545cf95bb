"""Dots, executed from their PTX: every instruction, operands in registers and in shared memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helpers.dot_module import Dot, Place, dot_module, random_operand, run_dot
from helpers.emitted import ORDERS
from helpers.ptx_interpreter import Order
from helpers.tile_operation import Array
from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
)
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.layout.atoms import FMA, MMA_8, MMA_16, MMA_F64, MMA_TF32, Atom

_ACC = {float64: float64, int8: int32, uint8: int32}
_PLACES: tuple[Place, ...] = ("registers", "stored", "copied", "transposed")


def _operands(
    shape: tuple[int, int, int], a: DType, b: DType, *, seed: int = 0
) -> tuple[Array, Array, Array]:
    m, n, k = shape
    rng = np.random.default_rng(seed)
    acc_dtype = _ACC.get(a, float32)
    return (
        random_operand(rng, (m, k), a),
        random_operand(rng, (k, n), b),
        random_operand(rng, (m, n), acc_dtype),
    )


def _exact(a: Array, b: Array, acc: Array) -> Array:
    """Return the product in f64, of integers modulo 2**32."""
    if acc.dtype == np.int32:
        return (acc.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    return np.asarray(acc.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64))


def _check(dot: Dot, operands: tuple[Array, Array, Array], *, tolerance: float) -> None:
    got, want = run_dot(dot, *operands), _exact(*operands)
    if got.dtype == np.int32:
        np.testing.assert_array_equal(got, want)
        return
    scale = np.abs(operands[0]).astype(np.float64) @ np.abs(operands[1]).astype(np.float64) + 1
    assert np.max(np.abs(got - want) / scale) < tolerance


# Sums of exact products round to f32 a few times: 2**-24 each, relative to the sum of magnitudes.
_F32 = 2.0**-22
_INSTRUCTIONS = [
    pytest.param(MMA_16, float16, float16, "ieee", _F32, id="f16"),
    pytest.param(MMA_16, bfloat16, bfloat16, "ieee", _F32, id="bf16"),
    # Rounding to tf32 loses half a place of 11 bits in each operand.
    pytest.param(MMA_TF32, float32, float32, "tf32", 2.0**-10, id="tf32"),
    pytest.param(MMA_TF32, float32, float32, "tf32x3", 2.0**-20, id="tf32x3"),
    pytest.param(MMA_8, int8, int8, "ieee", 0.0, id="s8"),
    pytest.param(MMA_8, uint8, uint8, "ieee", 0.0, id="u8"),
    pytest.param(MMA_8, int8, uint8, "ieee", 0.0, id="s8u8"),
    pytest.param(MMA_8, uint8, int8, "ieee", 0.0, id="u8s8"),
    pytest.param(MMA_F64, float64, float64, "ieee", 2.0**-50, id="f64"),
    pytest.param(FMA, float32, float32, "ieee", _F32, id="fma-f32"),
    pytest.param(FMA, float64, float64, "ieee", 2.0**-50, id="fma-f64"),
    pytest.param(FMA, bfloat16, bfloat16, "ieee", _F32, id="fma-bf16"),
    pytest.param(FMA, int8, uint8, "ieee", 0.0, id="fma-8"),
    pytest.param(FMA, float8e4nv, float8e5, "ieee", _F32, id="fma-f8"),
]


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize(("atom", "a", "b", "precision", "tolerance"), _INSTRUCTIONS)
def test_every_instruction_from_every_place(
    atom: Atom, a: DType, b: DType, precision: str, tolerance: float, place: Place
) -> None:
    shape = (64, 32, 64) if atom.is_mma else (16, 32, 8)
    dot = Dot(atom, (2, 2), precision, (place, place))
    _check(dot, _operands(shape, a, b), tolerance=tolerance)


@pytest.mark.parametrize("places", [("registers", "copied"), ("transposed", "registers")])
@pytest.mark.parametrize(
    ("shape", "warps", "num_warps"),
    [
        ((16, 8, 16), (1, 1), 1),  # one instruction
        ((16, 8, 64), (1, 1), 4),  # all warps but one repeat it
        ((64, 16, 16), (4, 1), 4),
        ((16, 64, 32), (1, 4), 4),
        ((32, 128, 16), (1, 2), 8),
        ((128, 16, 32), (8, 1), 8),
    ],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_shapes_and_splits(
    shape: tuple[int, int, int],
    warps: tuple[int, int],
    num_warps: int,
    places: tuple[Place, Place],
) -> None:
    dot = Dot(MMA_16, warps, places=places, num_warps=num_warps)
    _check(dot, _operands(shape, bfloat16, bfloat16), tolerance=_F32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 4, 4), (1, 64, 2), (32, 2, 8)], ids=str)
def test_multiply_adds_of_small_tiles(shape: tuple[int, int, int]) -> None:
    place: Place = "registers" if min(shape) == 1 else "stored"
    dot = Dot(FMA, (1, 1), places=(place, place))
    _check(dot, _operands(shape, float32, float32), tolerance=_F32)


def test_multiply_adds_go_in_order_of_k() -> None:
    a, b, acc = _operands((8, 8, 16), float32, float32)
    want = acc
    for k in range(16):
        exact = a[:, k : k + 1].astype(np.float64) * b[k : k + 1, :] + want
        want = exact.astype(np.float32)  # one rounding: f64 is exact enough for these numbers
    got = run_dot(Dot(FMA, (1, 1), places=("stored", "registers")), a, b, acc)
    np.testing.assert_array_equal(got, want)


def test_tf32_rounds_ties_away_from_zero() -> None:
    a, b, acc = (np.zeros(shape, np.float32) for shape in ((16, 8), (8, 8), (16, 8)))
    a[:, 0] = [1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12] * 4
    b[0, :] = 1
    rounded = np.array([1 + 2.0**-10, 1 + 2.0**-9, -1 - 2.0**-10, 1] * 4, np.float32)
    tf32 = run_dot(Dot(MMA_TF32, (1, 1), "tf32", num_warps=1), a, b, acc)
    np.testing.assert_array_equal(tf32, np.broadcast_to(rounded[:, None], (16, 8)))
    three = run_dot(Dot(MMA_TF32, (1, 1), "tf32x3", num_warps=1), a, b, acc)
    np.testing.assert_array_equal(three, np.broadcast_to(a[:, :1], (16, 8)))


def test_integers_wrap() -> None:
    a = np.full((16, 32), 127, np.int8)
    acc = np.full((16, 8), 2**31 - 1, np.int32)
    got = run_dot(Dot(MMA_8, (1, 1), num_warps=1), a, a[:, :8].repeat(2, axis=0), acc)
    assert (got == 2**31 - 1 + 32 * 127**2 - 2**32).all()


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_warps(order: Order) -> None:
    operands = _operands((64, 64, 32), float16, float16)
    got = run_dot(Dot(MMA_16, (2, 2), places=("copied", "stored")), *operands, order=order)
    np.testing.assert_allclose(got, _exact(*operands), rtol=0, atol=1e-4)


def _ptx(dot: Dot, shape: tuple[int, int, int], dtype: DType) -> str:
    module = dot_module(dot, *_operands(shape, dtype, dtype))
    return lower_to_ptx(emit_module(module)).text


def _count(ptx: str, instruction: str) -> int:
    return len(re.findall(rf"^\s*(?:@!?%p\d+ )?{re.escape(instruction)}", ptx, re.MULTILINE))


@pytest.mark.parametrize("place", ["copied", "transposed"])
def test_fragments_of_halves_come_straight_from_ldmatrix(place: Place) -> None:
    ptx = _ptx(Dot(MMA_16, (2, 2), places=(place, place)), (128, 128, 32), bfloat16)
    # A warp has 64 x 64 of the result: for each 16 along k 4 reads of each operand, 32 products.
    assert _count(ptx, "ldmatrix.sync.aligned.m8n8.x4") == 2 * 8
    assert _count(ptx, "mma.sync.aligned.m16n8k16") == 2 * 32
    assert _count(ptx, "ld.shared") == _count(ptx, "prmt") == 0
    assert re.search(r"mov\.b32.*\{", ptx) is None


def test_rounded_operands_are_packed_as_they_are_rounded() -> None:
    dot = Dot(MMA_16, (2, 2), places=("registers", "copied"), cast=bfloat16)
    rng = np.random.default_rng(0)
    a = random_operand(rng, (32, 32), float32)
    b = random_operand(rng, (32, 16), bfloat16)
    ptx = lower_to_ptx(emit_module(dot_module(dot, a, b, a[:, :16]))).text
    # A warp's 16 x 32 of A are 8 words of a lane.
    assert _count(ptx, "cvt.rn.bf16x2.f32") == 8
    assert _count(ptx, "prmt") == 0
    assert re.search(r"mov\.b32.*\{", ptx) is None
    rounded = a.astype(b.dtype)
    np.testing.assert_allclose(
        run_dot(dot, a, b, a[:, :16]), _exact(rounded, b, a[:, :16]), rtol=0, atol=1e-5
    )


def test_results_of_ldmatrix_are_operands_in_their_order() -> None:
    ptx = _ptx(Dot(MMA_16, (1, 1), places=("copied",) * 2, num_warps=1), (16, 16, 16), float16)
    a, b = re.findall(r"ldmatrix\S* \{([^}]*)\}", ptx)
    first, second = b.split(", ")[:2], b.split(", ")[2:]
    used = re.findall(r"mma\.sync\S*\s+\{[^}]*\},\s+\{([^}]*)\},\s+\{([^}]*)\}", ptx)
    assert used == [(a, ", ".join(first)), (a, ", ".join(second))]


def test_a_dot_without_an_atom_is_refused() -> None:
    module = dot_module(Dot(MMA_16, (1, 1), num_warps=1), *_operands((16, 8, 16), float16, float16))
    (dot,) = (x for x in module.kernel.body.operations if x.name == "dot")
    del dot.attributes["atom"]
    with pytest.raises(InternalCompilerError, match="must legalize it first"):
        emit_module(module)


def test_an_instruction_that_does_not_fit_is_refused() -> None:
    operands = _operands((16, 8, 16), float32, float32)
    with pytest.raises(InternalCompilerError, match="does not multiply f32 and f32 as ieee"):
        run_dot(Dot(MMA_TF32, (1, 1), "ieee", num_warps=1), *operands)
    operands = _operands((16, 8, 16), float16, float16)
    module = dot_module(Dot(MMA_16, (1, 1), num_warps=2), *operands)
    (dot,) = (x for x in module.kernel.body.operations if x.name == "dot")
    dot.attributes["warps"] = (1, 1)
    dot.attributes["atom"] = "fma"
    with pytest.raises(InternalCompilerError, match="of a dot that takes"):
        emit_module(module)
