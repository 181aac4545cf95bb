"""What the bytes of PTX and cubins depend on: the kernel's meaning, and no file, line or order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.kernel_source import load_kernel, signature_of
from tilewright.abi import keys
from tilewright.abi.target import Target
from tilewright.runtime.jit import OWN_SCHEDULES
from tilewright_compiler.capabilities import OWN_TEXTS
from tilewright_compiler.driver import compile_kernel
from tilewright_compiler.pipeline import CompiledKernel

_TEXT = """
@tl.kernel
def twice(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) * 2.0)
"""
_TARGET = Target(8, 0)


def _compiled(folder: Path, text: str) -> tuple[str, CompiledKernel]:
    kernel = load_kernel(folder, text)
    signature = signature_of(kernel, {"x": "*f32", "out": "*f32", "BLOCK": 64})
    key = keys.source_key(kernel.digest, signature)
    return key, compile_kernel(kernel, signature, (_TARGET,))


@pytest.mark.parametrize("change", ["moved", "touched", "lines", "another folder"])
def test_a_file_that_is_moved_touched_or_commented_gives_the_same_bytes(
    tmp_path: Path, change: str
) -> None:
    key, before = _compiled(tmp_path, _TEXT)
    text, folder = _TEXT, tmp_path
    match change:
        case "lines":
            text = "\n\n# why\n" + _TEXT.replace("offsets = ", "# so\n\n    offsets  =  ")
        case "another folder":
            folder = tmp_path / "deep" / "er"
            folder.mkdir(parents=True)
        case "touched":
            for path in tmp_path.glob("*.py"):
                os.utime(path, (1, 1))
    again, after = _compiled(folder, text)
    assert again == key
    assert after.ptx == before.ptx
    assert after.cubins["sm_80"].data == before.cubins["sm_80"].data
    # ptxas looks at the files that these name, and gives other bytes when their times differ.
    assert not any(name in before.ptx for name in (".file", ".loc", str(tmp_path)))
    assert str(tmp_path).encode() not in before.cubins["sm_80"].data


_ORDER = """
import importlib, sys
names = sys.argv[1:]
for name in names:
    importlib.import_module(name)
from tilewright.abi.manifest import PTX
from tilewright.language.kernel import Kernel
found = {}
for name in names:
    for value in vars(sys.modules[name]).values():
        if isinstance(value, Kernel):
            found[value.qualified_name] = value.digest
print(sorted(found.items()))
"""


def test_the_order_in_which_kernels_are_made_does_not_enter_their_keys() -> None:
    names = ["elementwise", "softmax", "norm", "reduce", "rows", "matmul"]
    modules = [f"tilewright.kernels.{name}" for name in names]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def digests(order: list[str]) -> str:
        command = [sys.executable, "-c", _ORDER, *order]
        return subprocess.run(command, env=path, capture_output=True, text=True, check=True).stdout

    first = digests(modules)
    assert first.count("tilewright.kernels.") > 6
    assert digests(modules[::-1]) == first


def test_no_target_but_hopper_is_given_tensor_maps() -> None:
    """Drivers mistake small tensors' maps on Blackwell; nothing of ours hands them any there."""
    assert set(OWN_TEXTS) == set(OWN_SCHEDULES) == {Target(9, 0, "a")}
