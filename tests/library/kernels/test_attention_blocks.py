"""Attention by blocks of tensor descriptors: what it computes under either schedule and as PTX,
when it is taken, in which order heads are computed, and that both texts assemble as they should.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.factory_texts import compile_declared
from helpers.sides import HostArray, poisoned, random
from tilewright.kernels.attention import attention_blocks
from tilewright.reference.attention import attention as definition
from tilewright.runtime import jit
from tilewright.tensor import attention_launches
from tilewright.tensor.attention import attention
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.head_order import band_of
from tilewright.tensor.launches import forget_plans
from tilewright_release.signatures import read_signature_file

ROOT = Path(__file__).parents[3]
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
# 64 rows a warpgroup: of one, and of two that store rows of their own.
TILES = (DotConfiguration(64, 32, 32, 4, 2), DotConfiguration(128, 32, 32, 8, 2))


@pytest.fixture(params=WAYS)
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let attention on the host go by blocks: on tile IR, under either schedule, or as PTX."""
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(request.param, names))
    use(monkeypatch, TILES[0])
    return names


def use(monkeypatch: pytest.MonkeyPatch, tiles: DotConfiguration) -> None:
    monkeypatch.setattr(attention_launches, "copies_blocks", lambda _device: True)
    monkeypatch.setattr(attention_launches, "processors", lambda _device: 2)
    monkeypatch.setattr(
        attention_launches, "attention_blocks_configuration", lambda _dim, **_options: tiles
    )
    forget_plans()


def close(out: HostArray, lse: HostArray | None, *arrays: HostArray, **options: Any) -> None:
    """Compare attention, and the logarithms of its sums, with the definition in f64."""
    wide = [array.astype(np.float64) for array in arrays]
    if "bias" in options:
        options["bias"] = options["bias"].astype(np.float64)
    expected, sums = definition(*wide, **options)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=3e-3, atol=3e-3)
    if lse is not None:
        np.testing.assert_allclose(lse.astype(np.float64), sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "tiles"),
    [
        (150, 70, False, TILES[1]),
        (70, 90, True, TILES[0]),
        (90, 40, True, TILES[1]),
        (64, 64, True, TILES[0]),
        (1, 1, False, TILES[0]),
    ],
)
def test_heads_that_share_keys(
    queries: int,
    keys: int,
    causal: bool,
    tiles: DotConfiguration,
    seen: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, tiles)
    q = random((2, 4, queries, 32), F16, seed=1)
    k, v = (random((2, 2, keys, 32), F16, seed=seed) for seed in (2, 3))
    out, lse = poisoned(q.shape, F16), poisoned(q.shape[:-1], F32)
    attention(q, k, v, causal=causal, out=out, lse=lse)
    close(out, lse, q, k, v, causal=causal)
    assert seen == ["attention_blocks"]


@pytest.mark.parametrize("window", [(40, 0), (None, 9), (0, 50), (75, 30)], ids=str)
@pytest.mark.parametrize("lengths", [(150, 150), (150, 60)], ids=str)
def test_windows(
    lengths: tuple[int, int],
    window: tuple[int | None, int],
    seen: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks before and behind those seen whole are one loop, from 32 keys on."""
    use(monkeypatch, TILES[lengths[0] == lengths[1]])
    q = random((2, lengths[0], 32), F16, seed=1)
    k, v = (random((1, lengths[1], 32), F16, seed=seed) for seed in (2, 3))
    out, lse = poisoned(q.shape, F16), poisoned(q.shape[:-1], F32)
    attention(q, k, v, window=window, out=out, lse=lse)
    close(out, lse, q, k, v, window=window)
    assert seen == ["attention_blocks"]


def test_heads_narrower_than_a_block_and_strided_rows(seen: list[str]) -> None:
    q, k, v = (random((3, rows, 48), F16, seed=rows)[..., 16:32] for rows in (40, 33, 34))
    k = k[:, :33]
    v = v[:, :33]
    out = poisoned((3, 40, 16), F16)
    attention(q, k, v, out=out)
    close(out, None, q, k, v)
    assert seen == ["attention_blocks"]


@pytest.mark.parametrize("tiles", TILES, ids=["64", "128"])
def test_a_bias_that_broadcasts_and_hides(
    tiles: DotConfiguration, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiles)
    q = random((2, 2, 70, 32), F16, seed=1)
    k, v = (random((2, 2, 48, 32), F16, seed=seed) for seed in (2, 3))
    bias = random((2, 70, 48), F16, seed=4)
    bias[0, :, 5:] = -np.inf  # five keys are seen
    bias[0, 3] = -np.inf  # and none
    bias[1, 7] = np.finfo(F16).min  # all equally little, which is the mean
    out, lse = poisoned(q.shape, F16), poisoned(q.shape[:-1], F32)
    attention(q, k, v, bias=bias, out=out, lse=lse)
    close(out, lse, q, k, v, bias=bias)
    assert not out[:, 0, 3].any()
    assert seen == ["attention_blocks"]


@pytest.mark.parametrize(
    "reason", ["negative scale", "tiny scale", "rows", "bias rows", "f32", "no keys"]
)
def test_what_blocks_do_not_serve(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run("tile", names))
    use(monkeypatch, TILES[0])
    dtype = F32 if reason == "f32" else F16
    width = 36 if reason == "rows" else 32
    q = random((2, 9, width), dtype, seed=1)[..., :32]
    k = random((2, 0 if reason == "no keys" else 7, 32), dtype, seed=2)
    result = attention(
        q,
        k,
        k,
        bias=random((9, 7), dtype, seed=3) if reason == "bias rows" else None,
        causal=True,
        # In f32 the tiny one is 0.
        scale={"negative scale": -1.0, "tiny scale": 1e-46}.get(reason),
    )
    assert names == ["attention"]
    assert np.isfinite(np.asarray(result)).all()


def longest(tiles: int, heads: int, band: int, *, processors: int) -> float:
    """Return the blocks of keys of the processor that has most, by walking over the programs."""
    totals = [0.0] * processors
    for program in range(tiles * heads):
        first = program // (band * tiles) * band
        width = min(heads - first, band)
        tile = tiles - 1 - program % (band * tiles) // width
        turn, place = divmod(program, processors)
        totals[processors - 1 - place if turn % 2 else place] += tile + 1 + 1.5
    return max(totals)


@pytest.mark.parametrize(("tiles", "heads"), [(32, 64), (8, 30), (5, 7), (64, 16)])
def test_the_order_of_heads_keeps_processors_equally_busy(tiles: int, heads: int) -> None:
    band = band_of(
        (tiles * 128, tiles * 128),
        heads=heads,
        head_bytes=1,
        tile=(128, 128),
        processors=132,
        causal=True,
    )
    mine = longest(tiles, heads, band, processors=132)
    others = [longest(tiles, heads, b, processors=132) for b in range(1, min(heads, 8) + 1)]
    assert mine <= min(others) * 1.001


def test_rows_that_see_alike_go_head_by_head() -> None:
    sizes = {"heads": 64, "head_bytes": 1 << 20, "tile": (128, 128), "processors": 132}
    assert band_of((4096, 4096), **sizes, causal=False) == 1  # type: ignore[arg-type]
    # What L2 cannot hold is worth some waiting.
    wide = sizes | {"head_bytes": 1 << 28}
    assert band_of((4096, 4096), **wide, causal=True) == 1  # type: ignore[arg-type]


def test_both_texts_of_what_is_declared() -> None:
    entries = read_signature_file(ROOT / "prebuilt" / "signatures" / "attention.toml", root=ROOT)
    own_entries = [entry for entry in entries if entry.kernel is attention_blocks]
    assert len(own_entries) == 18
    for entry in own_entries[::9]:
        compiled = compile_declared(entry.kernel, entry.signature, (HOPPER,))
        assert list(compiled.cubins) == ["sm_90a+tma", "sm_90a"]
        own = compiled.cubins["sm_90a+tma"]
        assert (own.spill_bytes, own.warnings, own.registers) == (0, (), 168)
        assert own.abi is not None
        assert (own.abi.num_threads, own.abi.grid_kind) == (384, "persistent")
