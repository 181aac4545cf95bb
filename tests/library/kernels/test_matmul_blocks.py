"""Products by blocks of tensor descriptors: what they compute under either schedule, and that both
texts assemble as they should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright.language as tl
from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.sides import HostArray, poisoned, random
from tilewright.abi.dtypes import DType, bfloat16, float8e4nv, float16, float32
from tilewright.abi.numpy_types import to_numpy
from tilewright.kernels import matmul as kernels
from tilewright.kernels.matmul import matmul_blocks
from tilewright.runtime import jit
from tilewright.runtime.launcher import CODES
from tilewright.tensor import matmul as tensor_matmul
from tilewright.tensor import matmul_launches
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.launches import forget_plans
from tilewright.tensor.matmul import matmul
from tilewright_compiler.driver import compile_kernel
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
F16 = np.dtype(np.float16)
TILES = DotConfiguration(64, 32, 32, 4, 3)


@pytest.fixture(params=WAYS)
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let products on the host go by blocks: on tile IR, under either schedule, or as PTX."""
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(request.param, names))
    monkeypatch.setattr(matmul_launches, "copies_blocks", lambda _device: True)
    monkeypatch.setattr(matmul_launches, "blocks_configuration", lambda *_, **__: TILES)
    forget_plans()
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


def test_results_of_f32_by_two_warpgroups(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is not cast lacks the batch's axes; each warpgroup stores its rows."""
    tiles = DotConfiguration(128, 32, 32, 8, 3)
    monkeypatch.setattr(matmul_launches, "blocks_configuration", lambda *_, **__: tiles)
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


def test_the_whole_epilogue(seen: list[str]) -> None:
    m, n, k = 70, 48, 48
    a, b = random((m, k), F16, seed=1), random((k, n), F16, seed=2)
    bias, gate = random((n,), F16, seed=3), random((m, n), F16, seed=4)
    out = poisoned((m, n), F16)
    matmul(a, b, alpha=0.5, bias=bias, activation="relu", gate=gate, residual=gate, out=out)
    wide = gate.astype(np.float64)
    expected = np.maximum(0.5 * product(a, b) + bias.astype(np.float64), 0) * wide + wide
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=2e-3, atol=2e-3)
    assert seen == ["matmul_blocks"]


@pytest.mark.parametrize(("size", "is_aligned"), [((64, 64, 60), True), ((64, 64, 64), False)])
def test_what_bulk_copies_do_not_take_goes_by_elements(
    size: tuple[int, int, int], is_aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_launches, "copies_blocks", lambda _device: True)
    m, n, k = size
    code = CODES[float16]
    a, b = (
        Geometry((rows, columns), (columns, 1), code, is_aligned, 0)
        for rows, columns in ((m, k), (k, n))
    )
    forget_plans()
    plan = tensor_matmul._plan(a, b, None, None, None, None, None, "ieee", None, False)
    forget_plans()
    assert [launch.kernel for launch in plan.launches] == [kernels.matmul]


def declared(operand: DType, result: DType) -> list[DeclaredEntry]:
    """Return the entries by blocks of two dtypes that read both operands along K."""
    entries = read_signature_file(ROOT / "prebuilt" / "signatures" / "matmul.toml", root=ROOT)
    types = {"a": operand, "c": result}
    return [
        entry
        for entry in entries
        if entry.kernel is matmul_blocks
        and all(dict(entry.signature.runtime)[name].dtype == types[name] for name in types)
        and [entry.signature.constexprs[name] for name in ("A_UNIT", "B_UNIT")] == ["k", "k"]
    ]


@pytest.mark.parametrize(
    ("operand", "result", "count"),
    [(float16, float16, 2), (bfloat16, float32, 2), (float8e4nv, bfloat16, 1)],
    ids=str,
)
def test_both_texts_of_what_is_declared(operand: DType, result: DType, count: int) -> None:
    entries = declared(operand, result)
    assert len(entries) == count
    for entry in entries:
        compiled = compile_kernel(entry.kernel, entry.signature, (HOPPER,))
        assert list(compiled.cubins) == ["sm_90a+tma", "sm_90a"]
        for cubin in compiled.cubins.values():
            assert (cubin.spill_bytes, cubin.warnings) == (0, ())
        own = compiled.cubins["sm_90a+tma"]
        assert own.registers == 168
        assert own.abi is not None
        assert (own.abi.num_threads, own.abi.grid_kind) == (384, "persistent")
        kinds = [p.kind for p in own.abi.parameters if p.kind not in ("pointer", "scalar")]
        assert kinds == [*["tensor_map"] * 3, *["grid"] * 3]
