"""What `explain` tells beside the order of candidates: needs, validation, schedules, damage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import signatures, write_bundle
from helpers.fake_driver import Finished, run_program
from helpers.launches import write_sample_bundle
from helpers.sample_kernels import add
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.manifest import FILE_NAME, OWN_SCHEDULE, read_manifest, write_manifest

_CLI = "import sys\nfrom tilewright.cli.main import main\nsys.exit(main({words!r}))\n"
_ADDITIONS = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)


def _explain(folder: Path, *words: str, **environment: str) -> Finished:
    settings = {"TILEWRIGHT_BUNDLE_PATH": str(folder / "bundle"), "TILEWRIGHT_JIT": "off"}
    program = _CLI.format(words=["explain", *words])
    return run_program(program, folder, **(settings | environment))


def test_needs_are_told_as_a_range_and_validation_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    manifest = write_bundle(folder, {add: _ADDITIONS})
    entries = {}
    for index, (key, entry) in enumerate(manifest.entries.items()):
        blobs = dict(entry.blobs)
        blobs["sm_90a"] = replace(
            blobs["sm_90a"], min_driver=12000 + 40 * index, validated=("nvidia-h200",)[:index]
        )
        abi = replace(entry.abi, shared_bytes=1024 * (1 + index))
        entries[key] = replace(entry, blobs=blobs, abi=abi)
    write_manifest(folder / FILE_NAME, replace(manifest, entries=entries))
    done = _explain(tmp_path, "add", "--gpu", "9.0", "--driver", "12.8")
    assert (
        "        prebuilt sm_90a: driver for CUDA 12.0 to 12.4 or newer, 1024 to 2048 of 232448 "
        "bytes of shared memory, validated on nvidia-h200"
    ) in done.output.splitlines()
    # A driver between the two parts them, and only one may use the cubin.
    done = _explain(tmp_path, "add", "--gpu", "9.0", "--driver", "12.2")
    assert "9.0 (driver 12.2): ptx for 1, prebuilt sm_90a for 1 of 2 signatures" in done.output
    assert "- prebuilt sm_90a: needs a driver for CUDA 12.4, this one is for 12.2" in done.output


@pytest.mark.parametrize("gpu", ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0"])
def test_every_gpu_can_be_asked_about_and_has_a_reason_for_every_binary(
    tmp_path: Path, gpu: str
) -> None:
    write_sample_bundle(tmp_path / "bundle")
    done = _explain(tmp_path, "strided", "--gpu", gpu, "--driver", "13.0", "--json")
    assert done.code == (8 if gpu == "7.5" else 0)
    for decision in json.loads(done.output)["decisions"]:
        told = " ".join(reason["candidate"] for reason in decision["trace"])
        assert all(target in told for target in ("sm_80", "sm_90a", "sm_100f", "sm_120f", "ptx"))
        assert all(reason["reason"] for reason in decision["trace"])
        untuned = any("untuned" in reason["reason"] for reason in decision["trace"])
        assert untuned == (gpu in ("10.0", "10.3"))


_PRODUCT = """
import tilewright.language as tl


@tl.kernel
def product(a, b, c, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + offsets, tl.dot(tl.load(a + 3 * offsets), tl.load(b + 3 * offsets)))
"""


def test_the_compiler_says_why_a_kernel_has_no_schedule_of_hopper(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "products.py").write_text(_PRODUCT)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / "mine")!r})
from pathlib import Path
from helpers.bundles import signatures, write_bundle
from products import product
from tilewright.abi.dtypes import float16, float32
wanted = signatures(product, a=(float16,), b=(float16,), c=(float32,), BLOCK=64)
write_bundle(Path({str(tmp_path / "bundle")!r}), {{product: wanted}})
"""
    assert run_program(program, tmp_path).code == 0
    word = f"{tmp_path / 'mine' / 'products.py'}:product"
    done = _explain(tmp_path, word, "--gpu", "9.0", "--driver", "13.0")
    assert done.code == 0, done.errors
    note = "the common schedule on sm_90a: no product reads blocks of a tensor descriptor, and this"
    assert any(line.startswith(f"        {note}") for line in done.output.splitlines()), done.output
    done = _explain(tmp_path, word, "--gpu", "9.0", "--driver", "13.0", "--json")
    notes = {d["specialization"]: d["notes"] for d in json.loads(done.output)["decisions"]}
    # With the load that shows it; of both forms, since neither has such a load.
    assert any(each.startswith(note) and "tl.load(a" in each for each in notes["fast"])
    assert any(each.startswith(note) for each in notes["general"])
    # Elsewhere there is no schedule of the target's own to miss.
    assert "common schedule" not in _explain(tmp_path, word, "--gpu", "8.0").output
    # The module is not on the path now: by its bare name nobody can be asked.
    done = _explain(tmp_path, "product", "--gpu", "9.0", "--driver", "13.0")
    assert "its source is not here, so the compiler cannot be asked why" in done.output


def test_a_kernel_with_a_schedule_of_its_own_has_no_such_note(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    manifest = write_bundle(folder, {add: _ADDITIONS})
    entries = {}
    for key, entry in manifest.entries.items():
        own = replace(entry.blobs["sm_90a"], abi=replace(entry.abi, tma_ok="n > 0"))
        entries[key] = replace(entry, blobs={**entry.blobs, f"sm_90a{OWN_SCHEDULE}": own})
    write_manifest(folder / FILE_NAME, replace(manifest, entries=entries))
    done = _explain(tmp_path, "add", "--gpu", "9.0", "--driver", "13.0")
    assert "+ prebuilt sm_90a+tma: made for this GPU, where n > 0" in done.output
    assert "the common schedule" not in done.output


def test_what_is_intact_in_a_damaged_bundle_is_explained(tmp_path: Path) -> None:
    write_sample_bundle(tmp_path / "bundle")
    path = tmp_path / "bundle" / FILE_NAME
    key = next(
        key for key, entry in read_manifest(path).entries.items() if "strided" in entry.kernel
    )
    start = f'"{key}":['.encode()
    path.write_bytes(path.read_bytes().replace(start, start[:-3] + b"Z" + start[-2:], 1))
    done = _explain(tmp_path, "add", "--gpu", "9.0", "--driver", "13.0")
    assert done.code == 0, done.errors
    assert "prebuilt sm_90a for all 24 signatures" in done.output
    assert "damaged" in done.errors


def test_several_bundles_are_told_apart(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", {add: _ADDITIONS})
    write_bundle(tmp_path / "extra", {add: _ADDITIONS}, targets=("sm_90a",))
    done = _explain(
        tmp_path,
        *("add", "--gpu", "9.0", "--driver", "13.0"),
        TILEWRIGHT_EXTRA_BUNDLES=str(tmp_path / "extra"),
    )
    assert f"+ prebuilt sm_90a: made for this GPU, in {tmp_path / 'extra'}" in done.output
    assert f"+ ptx: the driver assembles the portable text, in {tmp_path / 'bundle'}" in done.output
