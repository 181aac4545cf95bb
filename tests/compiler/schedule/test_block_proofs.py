"""Hopper's schedule of products by blocks, of every form that the library chooses, proven with the
tiles, warps and stages that the bundle declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.recorded_launches import recorded
from tilewright.abi.dtypes import DType, bfloat16, float8e4nv, float32, int8, uint8
from tilewright.abi.numpy_types import to_numpy
from tilewright.tensor.block_configurations import BLOCK_FORMS, BlockChoice, BlockForm
from tilewright.tensor.matmul import matmul
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.proof import prove
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.hopper import schedule_hopper
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signatures

ROOT = Path(__file__).resolve().parents[3]
Array = NDArray[Any]

DTYPES = (
    (bfloat16, "ieee"),
    (float8e4nv, "ieee"),
    (float32, "tf32"),
    (int8, "ieee"),
    (uint8, "ieee"),
)
FORMS = [
    (dtype, precision, form)
    for dtype, precision in DTYPES
    for form in BLOCK_FORMS[dtype, precision]
]


def operand(shape: tuple[int, int], dtype: DType, seed: int) -> Array:
    """Return small numbers, aligned to 64 bytes, whose products and sums are exact."""
    type_ = to_numpy(dtype)
    memory = np.zeros(shape[0] * shape[1] * type_.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + shape[0] * shape[1] * type_.itemsize].view(type_).reshape(shape)
    numbers = np.random.default_rng(seed).integers(0 if dtype == uint8 else -4, 5, shape)
    array[:] = (numbers if dtype.is_integer else numbers / 4).astype(type_)
    return array


def name_of(value: object) -> str:
    if isinstance(value, BlockForm):
        tiles = value.tiles
        return f"{value.kernel}-{tiles.block_m}x{tiles.block_n}x{tiles.block_k}"
    return str(value)


@pytest.mark.parametrize(("dtype", "precision", "form"), FORMS, ids=name_of)
def test_form_is_proven_and_bundled(
    dtype: DType, precision: str, form: BlockForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tiles along N, the second of them cut; three steps along K and a part of one."""
    tiles = form.tiles
    m, n = min(tiles.block_m, 72), tiles.block_n + (16 if form.kernel != "rows" else 9)
    k = 3 * tiles.block_k + 16
    parts = 2 if form.kernel == "parts" else 1
    a, b = operand((m, k), dtype, 1), operand((n, k), dtype, 2).T
    where = "tilewright.tensor"
    monkeypatch.setattr(f"{where}.matmul_launches.copies_blocks", lambda _device: True)
    choice = BlockChoice(form, parts, 0.0)
    monkeypatch.setattr(f"{where}.block_launches.block_choice", lambda _product: choice)
    (launch,) = recorded(
        monkeypatch,
        lambda: matmul(a, b, input_precision=precision, out_dtype=form.results[0]),
    )
    bundled = {
        (entry.kernel.qualified_name, str(entry.signature))
        for entry in read_signatures(Checkout(ROOT))
    }
    assert (launch.kernel.qualified_name, str(launch.signature)) in bundled
    module = optimize(lower_kernel(launch.kernel, launch.signature))
    schedule = schedule_hopper(module)
    assert schedule is not None
    assert "num_stages" not in schedule.attributes, "all stages have room"
    assert prove(module, schedule, [launch.launch], seeds=(0,))
