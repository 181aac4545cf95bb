"""A kernel of somebody's package is served from that package's own bundle."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from helpers.bundles import write_bundle
from helpers.fake_driver import run_program, run_with_fake_driver
from tilewright.abi.manifest import SCHEMA
from tilewright.runtime.packages import bundle_folders, installed_folders

_KERNELS = """
import tilewright.language as tl


@tl.kernel
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)
"""

_MAKE = """
from pathlib import Path
from acme.kernels import double
from helpers.bundles import signatures, write_bundle
from tilewright.abi.dtypes import float32, int64
folder = Path(double.fn.__code__.co_filename).parent / "_prebuilt"
write_bundle(folder, {double: signatures(double, x=(float32,), out=(float32,), n=int64, BLOCK=64)})
"""

_LAUNCH = """
from acme.kernels import double
from tilewright.abi import dtypes
from tilewright.errors import ResolveError
from tilewright.runtime import memory, store
x, out = (memory.empty(64, dtypes.float32) for _ in range(2))
try:
    double[1](x, out, 64, BLOCK=64)
    print(*[bundle.folder for bundle in store.known_bundles()])
except ResolveError as error:
    print(error)
"""


def _module(name: str, *paths: Path) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = [str(path) for path in paths]
    return module


def _bundle(folder: Path) -> Path:
    write_bundle(folder, {})
    return folder


def test_the_innermost_package_is_asked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, inner = tmp_path / "acme", tmp_path / "acme" / "gpu"
    monkeypatch.setitem(sys.modules, "acme", _module("acme", outer))
    monkeypatch.setitem(sys.modules, "acme.gpu", _module("acme.gpu", inner))
    assert bundle_folders("acme.gpu.kernels") == ()
    expected = (_bundle(inner / "_prebuilt"), _bundle(outer / "_prebuilt"))
    assert bundle_folders("acme.gpu.kernels") == expected
    assert bundle_folders("acme.kernels") == expected[1:]


def test_packs_without_their_manifest_are_a_damaged_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme"
    monkeypatch.setitem(sys.modules, "acme", _module("acme", package))
    folder = package / "_prebuilt"
    folder.mkdir(parents=True)
    assert bundle_folders("acme") == installed_folders([str(tmp_path)]) == ()
    _bundle(folder)
    (folder / "manifest.json").unlink()
    assert bundle_folders("acme") == installed_folders([str(tmp_path)]) == (folder,)


def test_every_folder_of_a_package_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of an editable install, whose sources and built files are in two places.
    monkeypatch.setitem(sys.modules, "acme", _module("acme", tmp_path / "a", tmp_path / "b"))
    assert bundle_folders("acme.kernels") == ()
    expected = _bundle(tmp_path / "b" / "_prebuilt")
    assert bundle_folders("acme.kernels") == (expected,)


@pytest.mark.parametrize("place", ["acme", "src/acme"])
def test_a_checkout_has_its_bundle_where_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setitem(sys.modules, "acme", _module("acme", tmp_path / place))
    built = _bundle(tmp_path / "build" / "bundle")
    assert bundle_folders("acme.kernels") == ()
    (tmp_path / "pyproject.toml").touch()
    assert bundle_folders("acme.kernels") == (built,)


def test_our_own_and_scripts_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundle(tmp_path / "_prebuilt")
    monkeypatch.setitem(sys.modules, "tilewright.kernels", _module("tilewright.kernels", tmp_path))
    assert bundle_folders("tilewright.kernels.rows") == ()
    assert bundle_folders("__main__") == ()


def test_reports_find_the_bundles_of_all_packages(tmp_path: Path) -> None:
    expected = (_bundle(tmp_path / "acme" / "_prebuilt"), _bundle(tmp_path / "other" / "_prebuilt"))
    _bundle(tmp_path / "tilewright" / "_prebuilt")
    path = [str(tmp_path), str(tmp_path / "nowhere"), str(tmp_path)]
    assert installed_folders(path) == expected


def test_a_kernel_is_launched_from_the_bundle_of_its_package(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = tmp_path / "acme"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "kernels.py").write_text(_KERNELS)
    # Tilewright's own bundle is another one, and the compiler is forbidden.
    own = _bundle(tmp_path_factory.mktemp("own"))
    path = f"import sys; sys.path.append({str(tmp_path)!r})"
    launch = partial(
        run_with_fake_driver,
        path + _LAUNCH,
        tmp_path,
        TILEWRIGHT_JIT="off",
        TILEWRIGHT_BUNDLE_PATH=str(own),
    )
    without = launch()
    assert "the bundle has no entry for this kernel" in without.output
    assert run_program(path + _MAKE, tmp_path).code == 0
    done = launch()
    assert done.output.split() == [str(own), str(package / "_prebuilt")]
    assert len(done.lines("launch double")) == 1

    # Made by a Tilewright of another manifest: passed over, with the reason.
    manifest = package / "_prebuilt" / "manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b'"schema":%d' % SCHEMA, b'"schema":99', 1))
    other = launch()
    assert f"has schema 99, this library reads {SCHEMA}" in other.output
    assert other.lines("launch") == []
    manifest.write_bytes(whole)

    # Not the bundled kernel any more: its package's bundle must not serve it.
    (package / "kernels.py").write_text(_KERNELS.replace("* 2", "* 3"))
    changed = launch()
    assert "the bundle has no entry for this kernel" in changed.output
    assert changed.lines("launch") == []
