"""Scaled products under either schedule and as Hopper's PTX, in tiles of each form, and the machine
code of what the bundle has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright.language as tl
from helpers.block_runs import HOPPER, WAYS, block_run
from helpers.factory_texts import compile_declared
from helpers.sides import DTYPES, poisoned, random
from tilewright.abi.numpy_types import to_numpy
from tilewright.kernels.scaled_matmul import scaled_matmul as kernel
from tilewright.reference.scaled_matmul import scaled_matmul as definition
from tilewright.runtime import jit
from tilewright.tensor import scaled_matmul as tensor_scaled
from tilewright.tensor.configurations import SCALED_BLOCKS, DotConfiguration
from tilewright.tensor.launches import forget_plans
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
E4M3 = to_numpy(tl.float8e4nv)
# A tile in halves, a whole one, one that is computed transposed.
TILES = [
    DotConfiguration(64, 256, 128, 4, 3),
    DotConfiguration(64, 64, 128, 4, 3),
    DotConfiguration(16, 64, 128, 4, 3),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tiles", TILES, ids=lambda t: f"{t.block_m}x{t.block_n}")
@pytest.mark.parametrize("kind", ["whole", "rows", "blocks"])
def test_tiles_of_each_form(
    kind: str, tiles: DotConfiguration, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(jit, "interpret_kernel", block_run(way, names))
    monkeypatch.setattr(tensor_scaled, "scaled_configuration", lambda *_, **__: tiles)
    forget_plans()
    m, n, k = 70, 136, 272
    a, b = random((m, k), E4M3, seed=1), np.asfortranarray(random((k, n), E4M3, seed=2))
    draw = np.random.default_rng(3).uniform
    shapes = {"whole": ((), ()), "rows": ((m, 1), (1, n)), "blocks": ((m, 3), (3, 2))}[kind]
    scales = [np.asarray(draw(0.25, 4, shape), np.float32) for shape in shapes]
    bias, out = random((n,), DTYPES["bf16"], seed=4), poisoned((m, n), DTYPES["bf16"])
    tensor_scaled.scaled_matmul(a, b, *scales, bias=bias, out=out)
    expected = definition(a, b, *scales, bias=bias).astype(np.float64)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=8e-3, atol=1e-2)
    assert names == ["scaled_matmul"]
    forget_plans()


@pytest.mark.parametrize(
    "entry",
    read_signature_file(ROOT / "prebuilt" / "signatures" / "scaled_matmul.toml", root=ROOT),
    ids=lambda entry: str(entry.signature.constexprs),
)
def test_machine_code_serialises_no_product(entry: DeclaredEntry) -> None:
    compiled = compile_declared(entry.kernel, entry.signature, [HOPPER])
    first = next(iter(compiled.cubins.values()))
    assert first.abi is not None
    assert first.abi.grid_kind == "persistent"
    assert not [warning for warning in first.warnings if "C75" in warning]


def test_configurations_are_those_declared() -> None:
    entries = list(
        read_signature_file(ROOT / "prebuilt" / "signatures" / "scaled_matmul.toml", root=ROOT)
    )
    declared = set()
    for entry in entries:
        assert entry.kernel is kernel
        values = entry.signature.constexprs
        halves = 2 if values["IN_HALVES"] else 1
        declared.add(
            DotConfiguration(
                int(str(values["BLOCK_M"])),
                int(str(values["BLOCK_N"])) * halves,
                int(str(values["BLOCK_K"])),
                entry.signature.num_warps,
                entry.signature.num_stages,
            )
        )
    assert declared == set(SCALED_BLOCKS)
    assert len(entries) == len(SCALED_BLOCKS) + 1  # the tile in halves has a form for each kind
