"""Dots, executed from their PTX: every instruction, operands in registers and in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.dot_module import Dot, Place, random_operand, run_dot
from helpers.tile_operation import Array
from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
)
from tilewright_compiler.layout.atoms import FMA, MMA_8, MMA_16, MMA_F64, MMA_TF32, Atom

_ACC = {float16: float32, bfloat16: float32, float32: float32, float64: float64}
_PLACES: tuple[Place, ...] = ("registers", "stored", "copied", "transposed")


def _operands(
    shape: tuple[int, int, int], a: DType, b: DType, *, seed: int = 0
) -> tuple[Array, Array, Array]:
    m, n, k = shape
    rng = np.random.default_rng(seed)
    acc_dtype = _ACC.get(a, int32)
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
]


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize(("atom", "a", "b", "precision", "tolerance"), _INSTRUCTIONS)
def test_every_instruction_from_every_place(
    atom: Atom, a: DType, b: DType, precision: str, tolerance: float, place: Place
) -> None:
    dot = Dot(atom, (2, 2), precision, (place, place))
    _check(dot, _operands((64, 32, 64), a, b), tolerance=tolerance)
