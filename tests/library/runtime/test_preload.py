"""Preloading by kernel, by family and of everything: what is loaded is returned, and no launch
loads it again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import signatures, write_bundle
from helpers.launches import Run, run_sample
from helpers.sample_kernels import add, strided
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.manifest import FILE_NAME, write_manifest

_IMPORT = "from tilewright.runtime.preload import preload\n"


def test_a_family_is_loaded_whole_and_told(run: Run) -> None:
    done = run(
        _IMPORT
        + """
found = preload("test")
print(len(found), *sorted({each.kernel.rpartition(".")[2] for each in found}))
print({(each.binary, each.device) for each in found})
print(len(preload("all", add)))
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64, stream=7)    # captured: may load nothing
"""
    )
    first, binaries, again = done.output.splitlines()
    assert first == "28 add mixed strided"
    assert binaries == "{('prebuilt sm_90a', 0)}"
    assert again == "28"
    assert len(done.lines("cuLibraryLoadData")) == 28
    assert len(done.lines("launch")) == 1


def test_every_device_is_loaded_for_by_itself(run: Run) -> None:
    done = run(
        _IMPORT + "print({each.binary for each in preload(strided, device=1)})\n",
        FAKE_CUDA_DEVICES="9.0,8.6",
    )
    assert done.output.strip() == "{'family sm_80'}"


_ADDITIONS = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)
_COPIES = signatures(
    strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
)


def test_what_this_gpu_cannot_run_is_left_out_unless_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    manifest = write_bundle(folder, {add: _ADDITIONS, strided: _COPIES})
    entries = {}
    for key, entry in manifest.entries.items():
        is_large = entry.signature.endswith("fast num_warps=4 num_stages=3") or "row" in str(entry)
        large = replace(entry.abi, shared_bytes=200_000 if is_large else 0)
        entries[key] = replace(entry, abi=large)
    write_manifest(folder / FILE_NAME, replace(manifest, entries=entries))
    done = run_sample(
        _IMPORT
        + """
print(*(each.signature.partition(") ")[2] for each in preload("test")))
print(len(preload(add)))
refused(errors.ResolveError, lambda: preload(strided))
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(folder),
        FAKE_CUDA_DEVICES="8.6",
    )
    assert done.output.splitlines() == [
        "general num_warps=4 num_stages=3",
        "1",
        "ResolveError no binary of kernel helpers.sample_kernels.strided can run on this GPU",
    ]


@pytest.mark.parametrize("change", ["not installed", "another source"])
def test_kernels_that_cannot_be_launched_here_are_not_loaded(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "bundle"
    manifest = write_bundle(folder, {add: _ADDITIONS, strided: _COPIES})
    name = "helpers.sample_kernels.strided"
    other = "gone.strided" if change == "not installed" else name
    record = replace(manifest.kernels[name], digest="0" * 64, files={"x.py": "0" * 64})
    entries = {
        key: replace(entry, kernel=entry.kernel.replace(name, other))
        for key, entry in manifest.entries.items()
    }
    kernels = {**manifest.kernels, other: record}
    write_manifest(folder / FILE_NAME, replace(manifest, kernels=kernels, entries=entries))
    done = run_sample(
        _IMPORT + 'print({each.kernel for each in preload("all")})\n',
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(folder),
    )
    assert done.output.strip() == "{'helpers.sample_kernels.add'}"


def test_signatures_need_their_kernel(run: Run) -> None:
    done = run(
        _IMPORT
        + """
from tilewright.abi.signature import KernelSignature
refused(errors.ArgumentError, lambda: preload(signatures=(KernelSignature(()),)))
print(preload())
"""
    )
    assert done.output.splitlines() == [
        "ArgumentError preload was given signatures and no kernel that they are of",
        "()",
    ]
