"""The schedules of kernels with dots, proven: operations run on them instead of on tile IR.

The checker executes a schedule per warp and lane, with asynchronous copies delivered late, and
raises at a race; so a result here is what the device computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.sides import DTYPES, HostArray, poisoned, random
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright.kernels.attention import attention as attention_kernel
from tilewright.kernels.matmul import matmul_parts
from tilewright.language.kernel import Kernel
from tilewright.reference.attention import attention as exact_attention
from tilewright.reference.convolution import convolution as exact_convolution
from tilewright.runtime import jit
from tilewright.tensor.attention import attention
from tilewright.tensor.convolution import convolution
from tilewright.tensor.matmul import matmul
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.interpret.traffic import shared_traffic
from tilewright_compiler.pipeline import schedule_signature
from tilewright_compiler.snapshots import Snapshots
from tilewright_release.signatures import DeclaredEntry, read_signature_file

Forms = list[str]


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Forms:
    """Let launches on the host run their schedules; return the specialization of each."""
    seen: Forms = []

    def run(
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
        stepwise: bool,
    ) -> None:
        assert not stepwise
        seen.append(signature.specialization)
        module = schedule_signature(kernel, signature, snapshots=Snapshots())
        scheduled.run(module, grid=grid, arguments=arguments)

    monkeypatch.setattr(jit, "interpret_kernel", run)
    return seen


def channels_last(x: HostArray) -> HostArray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


LAYOUTS: dict[str, Callable[[HostArray], HostArray]] = {
    "row-major": lambda x: x,
    "column-major": lambda x: np.asfortranarray(x),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize(("size", "form"), [((70, 80, 48), "fast"), ((33, 45, 21), "general")])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_matmul(
    dtype: str, layout: str, size: tuple[int, int, int], form: str, forms: Forms
) -> None:
    m, n, k = size
    kind, lay_out = DTYPES[dtype], LAYOUTS[layout]
    if layout != "row-major" and form == "fast":
        m = 80
    a, b = random((m, k), kind, seed=1), random((k, n), kind, seed=2)
    bias, gate = random((n,), kind, seed=3), random((m, n), kind, seed=4)
    out = poisoned((m, n), kind)
    matmul(lay_out(a), lay_out(b), bias=bias, activation="relu", gate=gate, residual=gate, out=out)
    wide = [x.astype(np.float64) for x in (a, b, bias, gate)]
    expected = np.maximum(wide[0] @ wide[1] + wide[2], 0) * wide[3] + wide[3]
    tolerance = 1e-5 if dtype == "f32" else 2e-3
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    assert forms == ["general" if layout == "strided" else form]


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_matmul_of_f32_by_parts(precision: str, forms: Forms) -> None:
    a, b = random((64, 64), DTYPES["f32"], seed=1), random((64, 64), DTYPES["f32"], seed=2)
    out = poisoned((64, 64), DTYPES["f32"])
    matmul(a, b, input_precision=precision, out=out)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = {"tf32": 2e-2, "tf32x3": 3e-5}[precision]
    np.testing.assert_allclose(out, expected, atol=tolerance)
    assert forms == ["fast"]


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
@pytest.mark.parametrize("size", [64, 37])
def test_matmul_plain(size: int, dtype: type, forms: Forms) -> None:
    generator = np.random.default_rng(0)
    a: HostArray = generator.integers(-100, 100, (size, 64)).astype(dtype)
    b: HostArray = generator.integers(-100, 100, (64, size)).astype(dtype)
    found = np.asarray(matmul(a, b))
    assert np.array_equal(found, a.astype(np.float64) @ b.astype(np.float64))
    assert forms == ["fast" if size == 64 else "general"]


@pytest.mark.parametrize("dim", [32, 24])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_attention(dtype: str, dim: int, forms: Forms) -> None:
    q, k, v = (
        random((heads, length, dim), DTYPES[dtype], seed=heads + length)
        for heads, length in ((2, 75), (1, 112), (1, 112))
    )
    bias = random((75, 112), DTYPES[dtype], seed=4)
    out = poisoned(q.shape, q.dtype)
    attention(q, k, v, bias=bias, causal=True, out=out)
    wide = [x.astype(np.float64) for x in (q, k, v, bias)]
    expected, _ = exact_attention(*wide[:3], bias=wide[3], causal=True)
    tolerance = 1e-5 if dtype == "f32" else 3e-3
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=tolerance)
    assert forms == ["fast" if dim == 32 else "general"]


@pytest.mark.parametrize("layout", ["channels last", "channels first"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_convolution(dtype: str, layout: str, forms: Forms) -> None:
    x, w = random((2, 16, 7, 9), DTYPES[dtype], seed=1), random((16, 16, 3, 3), DTYPES[dtype])
    if layout == "channels last":
        x, w = channels_last(x), channels_last(w)
    found: HostArray = np.asarray(convolution(x, w, stride=(2, 1), padding=1))
    expected = exact_convolution(
        x.astype(np.float64), w.astype(np.float64), stride=(2, 1), padding=(1, 1)
    )
    tolerance = 1e-4 if dtype == "f32" else 2e-2
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=tolerance)
    assert forms == ["fast" if layout == "channels last" else "general"]


ROOT = Path(__file__).parents[3]


def fast_entries(family: str) -> Iterator[Any]:
    """Yield what is bundled in the fast form, of dtypes of one width and kind the first."""
    seen = set()
    file = ROOT / "prebuilt" / "signatures" / f"{family}.toml"
    for entry in read_signature_file(file, root=ROOT):
        first = entry.signature.runtime[0][1]
        assert isinstance(first, Pointer)
        constexprs = str(entry.signature.constexprs)
        identity = (entry.kernel.name, first.dtype.bits, first.dtype.is_float, constexprs)
        if entry.signature.specialization == "fast" and identity not in seen:
            seen.add(identity)
            yield pytest.param(entry, id=f"{first.dtype} {constexprs}")


def loops_of(entry: DeclaredEntry) -> tuple[list[int], list[str]]:
    """Return the barriers of each loop of an entry's schedule, and the bank conflicts in loops."""
    module = schedule_signature(entry.kernel, entry.signature, snapshots=Snapshots())
    barriers = [
        sum(inner.name == "barrier" for inner in loop.regions[0].operations)
        for loop in module.kernel.body.walk()
        if loop.name == "for"
    ]
    conflicts = [
        f"{traffic.operation.name}: {traffic.access}"
        for traffic in shared_traffic(module)
        if traffic.loops and traffic.access.ways > 1
    ]
    return barriers, conflicts


@pytest.mark.parametrize("entry", [*fast_entries("matmul"), *fast_entries("convolution")])
def test_loops_of_products_meet_once_and_have_no_bank_conflict(entry: DeclaredEntry) -> None:
    barriers, conflicts = loops_of(entry)
    # A loop over the parts of a sum reads what others wrote, and meets nobody.
    assert [count for count in barriers if count] == [1]
    assert barriers == [1] or entry.kernel is matmul_parts
    assert not conflicts


# By blocks the common schedule is the second choice, for tensors that have no map, and the plan of
# an attention sends none there: its loops exchange more, and nothing is asked of them.
_BY_ELEMENTS = [p for p in fast_entries("attention") if p.values[0].kernel is attention_kernel]


@pytest.mark.parametrize("entry", _BY_ELEMENTS)
def test_loops_of_attention_meet_once(entry: DeclaredEntry) -> None:
    barriers, conflicts = loops_of(entry)
    assert barriers == [1]
    # Where a head takes more warps than a tile has rows for, weights are exchanged between them.
    blocks = entry.signature.constexprs
    is_split = entry.signature.num_warps * 16 > int(str(blocks["BLOCK_M"]))
    assert is_split or not conflicts
