"""Gradients of attention in any order of sums: what the kernels compute on tile IR, under either
schedule and as PTX, and what their texts take.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.attention_gradients import exact_gradients, operands_of
from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.factory_texts import compile_declared
from tilewright.abi.dtypes import float16
from tilewright.errors import ArgumentError
from tilewright.kernels.attention_backward_unordered import all_gradients
from tilewright.runtime import jit
from tilewright.runtime.geometry import Geometry, row_major
from tilewright.runtime.launcher import CODES
from tilewright.tensor import attention_backward as operation
from tilewright.tensor import attention_backward_unordered as unordered
from tilewright.tensor.configurations import ALL_GRADIENTS, DotConfiguration
from tilewright.tensor.launches import forget_plans
from tilewright_release.signatures import read_signature_file

# One warpgroup; two that divide queries, of whom each has rows of its own; two that share them.
TILES = {
    "one": DotConfiguration(64, 64, 32, 4, 2),
    "rows": DotConfiguration(128, 128, 32, 8, 2),
    "columns": DotConfiguration(64, 128, 32, 8, 2),
}
QUERIES = DotConfiguration(64, 32, 32, 4, 2)  # the second kernel where the order is fixed
KERNELS = ["row_statistics", "all_gradients", "round_sums"]


@pytest.fixture(params=WAYS)
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let launches on the host go on tile IR, under either schedule, or as PTX."""
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(request.param, names))
    return names


def use(monkeypatch: pytest.MonkeyPatch, tiles: str) -> None:
    monkeypatch.setattr(operation, "copies_blocks", lambda _device: True)
    monkeypatch.setattr(operation, "goes_by_key_blocks", lambda _device, _window: True)
    monkeypatch.setattr(operation, "processors", lambda _device: 2)
    monkeypatch.setattr(
        operation, "attention_backward_configurations", lambda _dim, **_options: (QUERIES, QUERIES)
    )
    monkeypatch.setattr(unordered, "processors", lambda _device: 2)
    monkeypatch.setattr(unordered, "all_gradients_configuration", lambda _dim: TILES[tiles])
    forget_plans()


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "tiles"),
    [
        (140, 40, False, "rows"),
        (140, 140, True, "columns"),
        (40, 70, True, "one"),
        (70, 40, True, "columns"),  # queries before the 30th see no key
        (1, 1, False, "one"),
    ],
)
def test_heads_that_share_keys(
    queries: int,
    keys: int,
    causal: bool,
    tiles: str,
    seen: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, tiles)
    arrays = operands_of((1, 4, 2, queries, keys, 32), "f16", causal=causal)
    found: Any = operation.attention_backward(*arrays, causal=causal, deterministic=False)
    for gradient, expected in zip(found, exact_gradients(*arrays, causal=causal), strict=True):
        assert gradient.shape == expected.shape
        np.testing.assert_allclose(gradient.astype(np.float64), expected, rtol=4e-3, atol=4e-3)
    assert seen == KERNELS


@pytest.mark.parametrize(("queries", "keys", "causal"), [(70, 90, False), (150, 140, True)])
def test_a_fixed_order_of_sums(
    queries: int, keys: int, causal: bool, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "columns")
    arrays = operands_of((1, 4, 2, queries, keys, 32), "f16", causal=causal)
    found: Any = operation.attention_backward(*arrays, causal=causal)
    for gradient, expected in zip(found, exact_gradients(*arrays, causal=causal), strict=True):
        np.testing.assert_allclose(gradient.astype(np.float64), expected, rtol=4e-3, atol=4e-3)
    # That equal inputs give equal bits is asked of a GPU: here the second run repeats the first.
    assert seen == ["row_statistics", "all_gradients", "query_gradients"]


def test_strided_rows_of_a_head_narrower_than_a_block(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "rows")
    arrays = operands_of((2, 3, 3, 40, 33, 16), "bf16")
    wide = [np.zeros((*x.shape[:-1], 48), x.dtype) for x in arrays[:4]]
    for array, x in zip(wide, arrays, strict=False):
        array[..., 16:32] = x
    views = (x[..., 16:32] for x in wide)
    found: Any = operation.attention_backward(*views, *arrays[4:], deterministic=False)
    for gradient, expected in zip(found, exact_gradients(*arrays), strict=True):
        np.testing.assert_allclose(gradient.astype(np.float64), expected, rtol=3e-2, atol=3e-2)
    assert seen == KERNELS


def test_negative_scale_and_rows_that_see_nothing(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "columns")
    arrays = operands_of((1, 2, 1, 150, 20, 32), "f16", causal=True, scale=-0.3)
    found: Any = operation.attention_backward(*arrays, causal=True, scale=-0.3, deterministic=False)
    expected = exact_gradients(*arrays, causal=True, scale=-0.3)
    for gradient, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient.astype(np.float64), exact, rtol=4e-3, atol=4e-3)
    assert not found[0][:, :, :130].any()
    assert seen == KERNELS


def test_weights_past_the_last_key_may_be_infinite(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not those of a softmax."""
    use(monkeypatch, "columns")
    q, k, v, _, _, dy = operands_of((1, 1, 1, 70, 41, 32), "f16")
    q[...] = 8
    k[...] = -3  # every score is -136, a weight of a hidden 0 would be its exponential's inverse
    k[0, 0, 1::2] = -3.0625
    arrays = operands_of((1, 1, 1, 70, 41, 32), "f16", given=(q, k, v, dy))
    found: Any = operation.attention_backward(*arrays, deterministic=False)
    for gradient, expected in zip(found, exact_gradients(*arrays), strict=True):
        np.testing.assert_allclose(gradient.astype(np.float64), expected, rtol=4e-3, atol=4e-3)
    assert seen == KERNELS


def test_gpus_that_copy_no_blocks_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run("tile", names))
    forget_plans()
    arrays = operands_of((1, 1, 1, 40, 40, 32), "f16")
    operation.attention_backward(*arrays, deterministic=False)
    assert names == ["row_products", "key_gradients", "query_gradients"]


def test_more_programs_than_a_grid_has_are_refused() -> None:
    shape = (2**27, 16, 64, 32)
    strides = row_major(shape)
    heads = Geometry(shape, strides, CODES[float16], is_aligned=True, device=None)
    launches = unordered.key_block_launches(
        heads, heads, [strides[:3]] * 9, causal=False, adds=False
    )
    with pytest.raises(ArgumentError, match=r"row_statistics needs \d+ programs, a grid has"):
        next(launches)


def test_texts_of_what_is_declared() -> None:
    """They have a producer; what adds, adds four sums at once."""
    root = Path(__file__).parents[3]
    file = root / "prebuilt" / "signatures" / "attention_backward_unordered.toml"
    declared = [
        entry
        for entry in read_signature_file(file, root=root)
        if entry.kernel is all_gradients and "bf16" in str(entry.signature)
    ]
    assert len(declared) == 2 * len(ALL_GRADIENTS)
    for entry in declared:
        compiled = compile_declared(entry.kernel, entry.signature, (HOPPER,))
        own = compiled.cubins["sm_90a+tma"]
        assert own.abi is not None
        assert (own.abi.num_threads, own.abi.grid_kind) == (384, "persistent")
        assert not own.warnings
        adds = "red.relaxed.gpu.global.add.v4.f32" in compiled.own_ptx[HOPPER]
        assert adds == entry.signature.constexprs["ADDS"]
