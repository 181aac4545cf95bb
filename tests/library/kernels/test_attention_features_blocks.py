"""Attention with features and its gradients: what the kernels compute on tile IR, under either
schedule and as PTX, and what the texts of declared entries take.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.attention_features import attended, close, exact_of, gradients, gradients_of, operands
from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.factory_texts import compile_declared
from helpers.packed_attention import exact_in_turn
from helpers.sides import HostArray, random
from tilewright.abi.target import Target
from tilewright.runtime import jit
from tilewright.tensor import attention_features, attention_features_backward
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.launches import forget_plans
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
FORWARD = DotConfiguration(128, 32, 32, 8, 2)
OF_KEYS, OF_QUERIES = DotConfiguration(32, 64, 32, 4, 2), DotConfiguration(64, 32, 32, 4, 2)
OF_BIAS = DotConfiguration(64, 32, 32, 4, 2)
KERNELS = ["row_products", "featured_key_gradients", "featured_query_gradients"]


@pytest.fixture(params=WAYS)
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let launches on the host go on tile IR, under either schedule, or as PTX."""
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(request.param, names))
    for module in (attention_features, attention_features_backward):
        monkeypatch.setattr(module, "copies_blocks", lambda _device: True)
    monkeypatch.setattr(attention_features, "processors", lambda _device: 2)
    monkeypatch.setattr(
        attention_features, "featured_attention_configuration", lambda *_, **_options: FORWARD
    )
    monkeypatch.setattr(
        attention_features_backward,
        "featured_gradients_configurations",
        lambda _dim, **_options: (OF_KEYS, OF_QUERIES, OF_BIAS),
    )
    forget_plans()
    return names


def everything(queries: int, keys: int) -> dict[str, Any]:
    mask = np.random.default_rng(3).random((queries, keys)) < 0.8
    mask[4] = False
    return {
        "bias": random((2, queries, keys), np.dtype(np.float16), seed=7),
        "mask": mask,
        "softcap": 2.0,
        "window": (60, 20),
        "dropout": 0.3,
        "seed": 2**50 + 1,
        "offset": 5,
    }


def test_everything_at_once(seen: list[str]) -> None:
    q, k, v, _ = operands((1, 2, 1, 140, 80, 32), "f16")
    options = everything(140, 80)
    out, lse = attended("host", q, k, v, **options)
    exact, sums = exact_of(q, k, v, **options)
    close(out, exact, "f16")
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)
    assert seen == ["featured_attention"]


def test_gradients_of_everything_at_once(seen: list[str]) -> None:
    q, k, v, dy = operands((1, 2, 1, 70, 48, 32), "f16")
    found, exact = gradients_of("host", q, k, v, dy, **everything(70, 48))
    for gradient, expected in zip(found, exact, strict=True):
        close(gradient, expected, "f16")
    assert seen == [*KERNELS, "bias_gradients"]


def test_sequences_in_a_row(seen: list[str]) -> None:
    starts = [0, 50, 50, 130, 140], [0, 40, 77, 77, 100]
    q, k, v, dy = (x[0] for x in operands((1, 2, 1, 140, 100, 32), "f16"))
    exact = exact_in_turn(q, k, v, dy, *starts, causal=True)
    options: dict[str, Any] = {
        "q_starts": np.array(starts[0], np.int32),
        "k_starts": np.array(starts[1], np.int32),
        "longest": (80, 40),
        "causal": True,
    }
    out, lse = attended("host", q, k, v, **options)
    close(out, exact[0], "f16")
    np.testing.assert_allclose(lse, exact[1], rtol=1e-5, atol=1e-5)
    given: list[HostArray] = [q, k, v, exact[0].astype(q.dtype), exact[1].astype(np.float32), dy]
    for gradient, expected in zip(gradients("host", given, **options), exact[2:], strict=True):
        close(gradient, expected, "f16")
    assert seen == ["featured_attention", *KERNELS]


def declared(family: str) -> list[DeclaredEntry]:
    file = ROOT / "prebuilt" / "signatures" / f"{family}.toml"
    return list(read_signature_file(file, root=ROOT))


def test_texts_of_what_is_declared() -> None:
    """Those for Hopper have a producer, and are persistent; the others spill nothing at 64."""
    entries = declared("attention_features") + declared("attention_features_backward")
    assert len(entries) == 12 + 26
    extents = ("BLOCK_M", "BLOCK_N", "BLOCK_D")
    by_tiles = {
        (entry.kernel.name, *map(entry.signature.constexprs.get, extents)): entry
        for entry in entries
    }
    entry = by_tiles["featured_query_gradients", 128, 32, 64]
    own = compile_declared(entry.kernel, entry.signature, (HOPPER,)).cubins["sm_90a+tma"]
    assert own.abi is not None
    assert (own.abi.num_threads, own.abi.grid_kind) == (384, "persistent")
    assert (own.spill_bytes, own.warnings) == (0, ())
    entry = by_tiles["featured_key_gradients", 32, 64, 64]
    compiled = compile_declared(entry.kernel, entry.signature, (Target(8, 0),))
    assert compiled.abi.shared_bytes <= 101_376
    assert all(cubin.spill_bytes == 0 for cubin in compiled.cubins.values())
