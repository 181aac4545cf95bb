"""Gradients of attention: what the kernels compute on tile IR, under either schedule and as PTX,
what is copied for them, in which order heads go, and what the texts of declared entries take.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.attention_gradients import exact_gradients, operands_of
from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.factory_texts import compile_declared
from helpers.sides import HostArray
from tilewright.abi.dtypes import bfloat16
from tilewright.abi.signature import Pointer
from tilewright.abi.target import Target
from tilewright.kernels.attention_backward import key_gradients, query_gradients
from tilewright.reference import attention as definition
from tilewright.runtime import jit
from tilewright.tensor import attention_backward as operation
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.launches import forget_plans
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
SM_80, SM_100, SM_120 = Target(8, 0), Target(10, 0, "f"), Target(12, 0, "f")
# One warpgroup, and two with rows of their own: of keys, and of queries.
TILES = {
    4: (DotConfiguration(32, 64, 32, 4, 2), DotConfiguration(64, 32, 32, 4, 2)),
    8: (DotConfiguration(32, 128, 32, 8, 2), DotConfiguration(128, 32, 32, 8, 2)),
}


@pytest.fixture(params=WAYS)
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let launches on the host go on tile IR, under either schedule, or as PTX."""
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(request.param, names))
    use(monkeypatch, 4)
    return names


def use(monkeypatch: pytest.MonkeyPatch, warps: int) -> None:
    monkeypatch.setattr(operation, "copies_blocks", lambda _device: True)
    monkeypatch.setattr(operation, "goes_by_key_blocks", lambda _device, _window: False)
    monkeypatch.setattr(operation, "processors", lambda _device: 2)
    monkeypatch.setattr(
        operation, "attention_backward_configurations", lambda _dim, **_options: TILES[warps]
    )
    forget_plans()


def close(found: Any, arrays: list[HostArray], *, causal: bool = False) -> None:
    for gradient, expected in zip(found, exact_gradients(*arrays, causal=causal), strict=True):
        assert gradient.shape == expected.shape
        np.testing.assert_allclose(gradient.astype(np.float64), expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "warps"),
    [
        (140, 40, False, 8),
        (40, 70, True, 4),
        (70, 40, True, 8),  # queries before the 30th see no key
        (1, 1, False, 4),
    ],
)
def test_heads_that_share_keys(
    queries: int,
    keys: int,
    causal: bool,
    warps: int,
    seen: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, warps)
    arrays = operands_of((1, 4, 2, queries, keys, 32), "f16", causal=causal)
    found = operation.attention_backward(*arrays, causal=causal)
    close(found, arrays, causal=causal)
    assert seen == ["row_products", "key_gradients", "query_gradients"]


@pytest.mark.parametrize("window", [(40, 0), (None, 9), (0, 50)], ids=str)
def test_windows(window: tuple[int | None, int], seen: list[str]) -> None:
    q, k, v, _, _, dy = operands_of((1, 2, 1, 150, 140, 32), "f16")
    wide = [x.astype(np.float64) for x in (q, k, v, dy)]
    y, sums = definition.attention(*wide[:3], window=window)
    arrays = [q, k, v, y.astype(q.dtype), sums.astype(np.float32), dy]
    found: Any = operation.attention_backward(*arrays, window=window)
    expected = definition.attention_backward(*wide, window=window)
    for gradient, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient.astype(np.float64), exact, rtol=4e-3, atol=4e-3)
    assert seen == ["row_products", "key_gradients", "query_gradients"]


def test_bf16_of_strided_rows_of_a_head_narrower_than_a_block(seen: list[str]) -> None:
    arrays = operands_of((1, 3, 3, 40, 33, 16), "bf16")
    wide = [np.zeros((*x.shape[:-1], 48), x.dtype) for x in arrays[:4]]
    for array, x in zip(wide, arrays, strict=False):
        array[..., 16:32] = x
    found: Any = operation.attention_backward(*(x[..., 16:32] for x in wide), *arrays[4:])
    for gradient, expected in zip(found, exact_gradients(*arrays), strict=True):
        np.testing.assert_allclose(gradient.astype(np.float64), expected, rtol=3e-2, atol=3e-2)
    assert seen == ["row_products", "key_gradients", "query_gradients"]


def test_weights_past_the_last_key_may_be_infinite(seen: list[str]) -> None:
    """They are not those of a softmax."""
    arrays = operands_of((1, 1, 1, 70, 41, 32), "f16")
    q, k, v, _, _, dy = arrays
    q[...] = 8
    k[...] = -3  # every score is -136, a weight of a hidden 0 would be its exponential's inverse
    k[0, 0, 1::2] = -3.0625
    arrays = operands_of((1, 1, 1, 70, 41, 32), "f16", given=(q, k, v, dy))
    assert arrays[4].max() < -100
    found = operation.attention_backward(*arrays)
    close(found, arrays)
    assert seen == ["row_products", "key_gradients", "query_gradients"]


def test_equal_inputs_give_equal_bits_whatever_the_order_of_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run("tile", names))
    use(monkeypatch, 4)
    arrays = operands_of((1, 6, 3, 70, 70, 16), "f16", causal=True)
    first = operation.attention_backward(*arrays, causal=True)
    monkeypatch.setattr(operation, "band_of", lambda _lengths, **_options: 2)
    forget_plans()
    second = operation.attention_backward(*arrays, causal=True)
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x, y)


def declared() -> list[DeclaredEntry]:
    file = ROOT / "prebuilt" / "signatures" / "attention_backward.toml"
    return [
        entry
        for entry in read_signature_file(file, root=ROOT)
        if isinstance(y := dict(entry.signature.parameters)["dy"], Pointer) and y.dtype == bfloat16
    ]


def test_texts_of_what_is_declared() -> None:
    """Those of two warpgroups have a producer; the others fit every GPU; neither spills."""
    assert len(declared()) == 14
    extents = ("BLOCK_M", "BLOCK_N", "BLOCK_D")
    by_tiles = {
        (entry.kernel, *map(entry.signature.constexprs.get, extents)): entry for entry in declared()
    }
    entry = by_tiles[key_gradients, 64, 128, 64]
    own = compile_declared(entry.kernel, entry.signature, (HOPPER,)).cubins["sm_90a+tma"]
    assert own.abi is not None
    assert (own.abi.num_threads, own.abi.grid_kind) == (384, "persistent")
    assert (own.spill_bytes, own.warnings) == (0, ())
    for entry in (by_tiles[key_gradients, 32, 32, 128], by_tiles[query_gradients, 64, 32, 128]):
        compiled = compile_declared(entry.kernel, entry.signature, (SM_80, SM_100, SM_120))
        assert compiled.abi.shared_bytes <= 101_376
        for cubin in compiled.cubins.values():
            assert (cubin.spill_bytes, cubin.warnings) == (0, ())
