"""Products by blocks of tensor descriptors: what they compute under either schedule, with copies
and in parts, and that both texts assemble as they should."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright.language as tl
from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.factory_texts import compile_declared
from helpers.sides import HostArray, poisoned, random
from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int8,
    int32,
)
from tilewright.abi.numpy_types import to_numpy
from tilewright.kernels import matmul as kernels
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit
from tilewright.runtime.launcher import CODES
from tilewright.tensor import block_launches, matmul_launches
from tilewright.tensor import matmul as tensor_matmul
from tilewright.tensor.block_configurations import BlockChoice, BlockForm, BlockProduct
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.launches import PlannedLaunch, forget_plans
from tilewright.tensor.matmul import matmul
from tilewright_compiler.interpret.numerics import rounded_to_even_tf32
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
F16 = np.dtype(np.float16)
TILES = DotConfiguration(64, 32, 32, 4, 3)


def choose(
    patch: pytest.MonkeyPatch,
    tiles: DotConfiguration,
    *,
    kernel: Literal["blocks", "halves", "rows", "parts", "plain"] = "blocks",
    parts: int = 1,
    units: str | None = None,
    is_full: bool = True,
) -> None:
    """Let products take a form, at any cost; with `units`, only of operands in that order."""
    form = BlockForm(kernel, tiles, is_full, (), ())

    def choice(product: BlockProduct) -> BlockChoice | None:
        is_read = units is None or product.units == tuple(units)
        return BlockChoice(form, parts, 1.0) if is_read else None

    patch.setattr(block_launches, "block_choice", choice)
    patch.setattr(block_launches, "clocks_otherwise", lambda *_, **__: math.inf)
    forget_plans()


@pytest.fixture(params=WAYS)
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let products on the host go by blocks: on tile IR, under either schedule, or as PTX."""
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(request.param, names))
    monkeypatch.setattr(matmul_launches, "copies_blocks", lambda _device: True)
    choose(monkeypatch, TILES)
    yield names
    forget_plans()


def product(a: HostArray, b: HostArray) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = a.astype(np.float64) @ b.astype(np.float64)
    return wide


@pytest.mark.parametrize("units", ["kn", "kk", "mn", "mk"])
def test_operands_of_either_order(units: str, seen: list[str]) -> None:
    m, n, k = 80, 48, 112
    a, b = random((m, k), F16, seed=1), random((k, n), F16, seed=2)
    a = np.asfortranarray(a) if units[0] == "m" else a
    b = np.asfortranarray(b) if units[1] == "k" else b
    out = poisoned((m, n), F16)
    matmul(a, b, out=out)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=2e-3, atol=2e-3)
    assert seen == ["matmul_blocks"]


@pytest.mark.parametrize("name", ["float8e4nv", "float8e5"])
def test_eight_bit_floats(name: str, seen: list[str]) -> None:
    m, n, k = 80, 48, 112
    kind = to_numpy(getattr(tl, name))
    a, b = random((m, k), kind, seed=1), np.asfortranarray(random((k, n), kind, seed=2))
    out = poisoned((m, n), np.dtype(np.float32))
    matmul(a, b, out=out, out_dtype=float32)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=1e-3, atol=1e-3)
    assert seen == ["matmul_blocks"]


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_integers(name: str, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, TILES, kernel="plain")
    kind = np.dtype(name)
    low = -128 if name == "int8" else 0
    draw = np.random.default_rng(1).integers
    a, b = draw(low, low + 256, (2, 80, 112), kind), draw(low, low + 256, (48, 112), kind)
    out = np.full((2, 80, 48), -1, np.int32)
    matmul(a, b.T, out=out)
    np.testing.assert_array_equal(out, a.astype(np.int32) @ b.T.astype(np.int32))
    assert seen == ["matmul_plain_blocks"]


@pytest.mark.parametrize("n", [48, 64, 136])
def test_tiles_in_two_halves(n: int, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of 8-bit floats, and a half that lies outside the result."""
    choose(monkeypatch, DotConfiguration(64, 64, 32, 4, 3), kernel="halves", is_full=False)
    kind, f16 = to_numpy(tl.float8e4nv), F16
    a, b = random((2, 80, 112), kind, seed=1), random((112, n), kind, seed=2)
    bias, out = random((n,), f16, seed=3), poisoned((2, 80, n), f16)
    matmul(a, np.asfortranarray(b), bias=bias, activation="relu", out_dtype=float16, out=out)
    expected = np.maximum(product(a, b) + bias.astype(np.float64), 0)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=2e-3, atol=2e-3)
    assert seen == ["matmul_halves"]


def test_results_of_f32_by_two_warpgroups(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is not cast lacks the batch's axes; each warpgroup stores its rows."""
    choose(monkeypatch, DotConfiguration(128, 32, 32, 8, 3))
    a, b = random((2, 112, 48), F16, seed=1), random((2, 48, 64), F16, seed=2)
    out = poisoned((2, 112, 64), np.dtype(np.float32))
    matmul(a, b, out=out, out_dtype=float32)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=1e-4, atol=1e-4)
    assert seen == ["matmul_blocks"]


def test_batches_and_odd_rows(seen: list[str]) -> None:
    a, b = random((2, 3, 33, 48), F16, seed=1), random((3, 48, 48), F16, seed=2)
    out = poisoned((2, 3, 33, 48), F16)
    matmul(a, b, out=out)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=2e-3, atol=2e-3)
    assert set(seen) == {"matmul_blocks"}


@pytest.mark.parametrize("kernel", ["blocks", "rows", "parts"])
def test_the_whole_epilogue(
    kernel: Literal["blocks", "halves", "rows", "parts", "plain"],
    seen: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, TILES, kernel=kernel)
    m, n, k = 70, 48, 48
    a, b = random((m, k), F16, seed=1), random((k, n), F16, seed=2)
    bias, gate = random((n,), F16, seed=3), random((m, n), F16, seed=4)
    out = poisoned((m, n), F16)
    matmul(a, b, alpha=0.5, bias=bias, activation="relu", gate=gate, residual=gate, out=out)
    wide = gate.astype(np.float64)
    expected = np.maximum(0.5 * product(a, b) + bias.astype(np.float64), 0) * wide + wide
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=2e-3, atol=2e-3)
    assert seen == [f"matmul_{kernel}"]


@pytest.mark.parametrize("parts", [1, 3, 6])
@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("units", ["kn", "kk"])
def test_sums_in_parts(
    units: str, rows: int, parts: int, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More parts than there are steps along K leave some programs with nothing to add."""
    choose(monkeypatch, DotConfiguration(rows, 64, 32, 4, 3), kernel="parts", parts=parts)
    a, b = random((2, 9, 144), F16, seed=1), random((2, 144, 72), F16, seed=2)
    b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2) if units[1] == "k" else b
    out = poisoned((2, 9, 72), F16)
    matmul(a, b, out=out)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=2e-3, atol=2e-3)
    assert seen == ["matmul_parts"]


def test_rows_of_any_alignment(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors are copied to where their rows begin on blocks; one batch of what is broadcast."""
    choose(monkeypatch, TILES, kernel="rows", units="kk")
    a, b = random((3, 70, 45), F16, seed=1), random((45, 37), F16, seed=2)
    out = poisoned((3, 70, 37), F16)
    matmul(a, b, out=out)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=2e-3, atol=2e-3)
    assert len(seen) == 3
    assert seen[-1] == "matmul_rows"


def test_what_is_contiguous_nowhere_is_copied(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, TILES, units="kk")
    a, b = random((70, 96), F16, seed=1)[:, ::2], random((48, 48), F16, seed=2)
    out = poisoned((70, 48), F16)
    matmul(a, b, out=out)
    np.testing.assert_allclose(out.astype(np.float64), product(a, b), rtol=2e-3, atol=2e-3)
    assert seen[-1] == "matmul_blocks"


@pytest.mark.parametrize("kernel", ["blocks", "rows"])
def test_f32_is_rounded_to_tf32(
    kernel: Literal["blocks", "rows"], seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, TILES, kernel=kernel, units="kk")
    f32 = np.dtype(np.float32)
    a, b = random((70, 96), f32, seed=1), np.asfortranarray(random((96, 48), f32, seed=2))
    out = poisoned((70, 48), f32)
    matmul(a, b, input_precision="tf32", out=out)
    rounded = product(rounded_to_even_tf32(a), rounded_to_even_tf32(b))
    np.testing.assert_allclose(out.astype(np.float64), rounded, rtol=1e-5, atol=1e-5)
    assert seen == [f"matmul_{kernel}"]


@pytest.mark.parametrize(("size", "is_aligned"), [((64, 64, 60), True), ((64, 64, 64), False)])
def test_what_bulk_copies_do_not_take_goes_by_elements(
    size: tuple[int, int, int], is_aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the product is too small to be worth a copy; a result must be aligned in any case."""
    monkeypatch.setattr(matmul_launches, "copies_blocks", lambda _device: True)
    monkeypatch.setattr(matmul_launches, "tuned_choice", lambda *_, **__: None)
    m, n, k = size
    code = CODES[float16]
    a, b = (
        Geometry((rows, columns), (columns, 1), code, is_aligned, 0)
        for rows, columns in ((m, k), (k, n))
    )
    forget_plans()
    plan = tensor_matmul._plan((a, b, None, None, None, None), None, "ieee", None, False)
    forget_plans()
    (step,) = plan.steps
    assert isinstance(step, PlannedLaunch)
    assert step.kernel is kernels.matmul


def declared(kernel: Kernel, operand: DType, result: DType) -> list[DeclaredEntry]:
    """Return the entries of a kernel and two dtypes that read both operands along K."""
    entries = read_signature_file(ROOT / "prebuilt" / "signatures" / "matmul.toml", root=ROOT)
    types = {"a": operand, "c": result}
    return [
        entry
        for entry in entries
        if entry.kernel is kernel
        and all(dict(entry.signature.runtime)[name].dtype == types[name] for name in types)
        and [entry.signature.constexprs[name] for name in ("A_UNIT", "B_UNIT")] == ["k", "k"]
    ]


@pytest.mark.parametrize(
    ("kernel", "operand", "result", "count"),
    [
        (kernels.matmul_blocks, float16, float16, 4),
        (kernels.matmul_blocks, bfloat16, float32, 2),
        (kernels.matmul_blocks, float8e4nv, bfloat16, 1),
        (kernels.matmul_halves, float8e4nv, bfloat16, 1),
        (kernels.matmul_blocks, float32, float32, 3),
        (kernels.matmul_plain_blocks, int8, int32, 2),
        (kernels.matmul_rows, bfloat16, bfloat16, 2),
        (kernels.matmul_parts, bfloat16, bfloat16, 1),
        (kernels.matmul_parts, float8e5, bfloat16, 1),
    ],
    ids=lambda x: x.name if isinstance(x, Kernel | DType) else "",
)
def test_both_texts_of_what_is_declared(
    kernel: Kernel, operand: DType, result: DType, count: int
) -> None:
    entries = declared(kernel, operand, result)
    assert len(entries) == count
    for entry in entries:
        compiled = compile_declared(entry.kernel, entry.signature, (HOPPER,))
        assert list(compiled.cubins) == ["sm_90a+tma", "sm_90a"]
        own = compiled.cubins["sm_90a+tma"]
        assert (own.spill_bytes, own.warnings) == (0, ())
        # Of 64 K registers all threads get the same part at first.
        assert own.registers == {8: 168, 4: 240}[entry.signature.num_warps]
        assert own.abi is not None
        num_threads = 32 * (entry.signature.num_warps + 4)
        assert (own.abi.num_threads, own.abi.grid_kind) == (num_threads, "persistent")
        kinds = [p.kind for p in own.abi.parameters if p.kind not in ("pointer", "scalar")]
        maps = 2 if kernel in (kernels.matmul_rows, kernels.matmul_parts) else 3
        assert kinds == [*["tensor_map"] * maps, *["grid"] * 3]
