"""The launcher extension and the package belong together: one of other sources is refused."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from helpers.fake_driver import run_program
from tilewright.runtime import launch, launcher, module
from tilewright.runtime.expression import Operation

_ROOT = Path(__file__).parents[3]
_STALE = """
import sys, types
sys.modules["tilewright.runtime._launcher"] = types.SimpleNamespace({attributes})
from tilewright.errors import InstallationError
try:
    import tilewright.runtime.{name}
except InstallationError as error:
    print(error)
"""


def _interface() -> str:
    """Return the digest of the extension's functions and of the numbers that both sides use."""
    stub = Path(launcher.__file__).with_name("_launcher.pyi")
    kinds = (
        *(launcher.OTHER, launcher.HOST_ARRAY, launcher.TORCH, launcher.CUDA_ARRAY),
        *(launcher.DLPACK, launcher.SCALAR, launcher.CONSTEXPR),
        *(module._POINTER, module._SCALAR, module._GRID, module._TENSOR_MAP, module._WORKSPACE),
        *(launch._POINTER, launch._SCALAR),
    )
    parts = (
        stub.read_text(),
        *map(str, launcher.DTYPES),
        *map(str, kinds),
        *(f"{operation.name} {operation.value}" for operation in Operation),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def test_both_sides_say_which_interface_they_have() -> None:
    wanted = _interface()
    header = (_ROOT / "library/native/launcher.h").read_text()
    declared = re.findall(r'#define TW_INTERFACE "(.*)"', header)
    assert (launcher.INTERFACE, declared) == (wanted, [wanted]), "write the new word in both files"


@pytest.mark.parametrize("name", ["launcher", "memory", "stream", "launch"])
@pytest.mark.parametrize("built", ["none", "0123456789abcdef"])
def test_an_extension_of_other_sources_is_refused(built: str, name: str, tmp_path: Path) -> None:
    attributes = "" if built == "none" else f"INTERFACE={built!r}"
    done = run_program(_STALE.format(attributes=attributes, name=name), tmp_path)
    assert done.code == 0, done.errors
    assert f"its interface is {built}, {launcher.INTERFACE} is needed" in done.output
    assert "pip install -e ." in done.output
