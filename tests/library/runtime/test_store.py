"""Bundles on disk: what is found, and which kernel is the bundled one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import sample_kernels
from helpers.bundles import write_bundle
from helpers.fake_driver import run_program
from tilewright import settings as settings_module
from tilewright.abi.manifest import read_manifest, write_manifest
from tilewright.errors import FormatError
from tilewright.runtime import store
from tilewright.runtime.store import Bundle


@pytest.fixture
def installed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bundle]:
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(bundle))
    settings_module.settings.cache_clear()
    store.bundles.cache_clear()
    (found,) = store.bundles()
    yield found
    found.close()
    settings_module.settings.cache_clear()
    store.bundles.cache_clear()


def test_an_unchanged_kernel_is_known_without_parsing(
    installed: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = installed.manifest.kernels["helpers.sample_kernels.add"].digest
    fresh = type(sample_kernels.add)(sample_kernels.add.fn, sample_kernels.add.rule)
    monkeypatch.setattr(sample_kernels, "add", fresh)

    def fail(_: object) -> None:
        pytest.fail("the kernel was parsed")

    monkeypatch.setattr(type(fresh), "tree", property(fail))
    assert store.kernel_digest(fresh) == expected
    assert len(store.entries_of(fresh)) == 24


_CHANGED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("helpers.sample_kernels", {path!r})
module = importlib.util.module_from_spec(spec)
sys.modules["helpers.sample_kernels"] = module
spec.loader.exec_module(module)
from tilewright.runtime import store
print(len(store.entries_of(module.add)), len(store.entries_of(module.strided)))
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("def add", "def add", "24 2"),
        ("    mask = offsets < n\n", "\n    # why\n    mask = (offsets < n)  # so\n", "24 2"),
        ("offsets < n", "offsets <= n", "0 2"),
        ("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 64", "0 0"),
    ],
    ids=["unchanged", "comment", "comparison", "default"],
)
def test_only_a_change_of_meaning_makes_another_kernel(
    bundle: Path, tmp_path: Path, old: str, new: str, found: str
) -> None:
    source = Path(sample_kernels.__file__).read_text()
    assert old in source
    copy = tmp_path / "sample_kernels.py"
    copy.write_text(source.replace(old, new))
    done = run_program(
        _CHANGED.format(path=str(copy)), tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle)
    )
    assert done.errors == ""
    assert done.output.strip() == found


def test_a_copy_under_another_name_has_the_bundled_entries(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mine.py"
    copy.write_text(Path(sample_kernels.__file__).read_text())
    program = _CHANGED.replace("helpers.sample_kernels", "mine").format(path=str(copy))
    done = run_program(program, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert (done.errors, done.output.strip()) == ("", "24 2")


def test_a_manifest_may_not_point_outside_its_folder(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle / "manifest.json")
    key, entry = next(iter(manifest.entries.items()))
    name, blob = next(iter(entry.blobs.items()))
    outside = replace(blob, pack=f"../{bundle.name}/test.pack")
    changed = replace(entry, blobs={name: outside})
    write_manifest(tmp_path / "manifest.json", replace(manifest, entries={key: changed}))
    with pytest.raises(FormatError, match="outside its folder"):
        Bundle(tmp_path).read(Bundle(tmp_path).manifest.entries[key].blobs[name])


def test_without_a_bundle_there_is_none_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEWRIGHT_BUNDLE_PATH", raising=False)
    write_bundle(tmp_path / "empty", {})
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(tmp_path / "empty"))
    settings_module.settings.cache_clear()
    store.bundles.cache_clear()
    try:
        assert store.find("ab" * 32) == ((), ())
        assert store.entries_of(sample_kernels.add) == {}
    finally:
        settings_module.settings.cache_clear()
        store.bundles.cache_clear()


def test_the_installed_bundle_is_found_through_resources(tmp_path: Path) -> None:
    # A wheel laid out by hand: the package with _prebuilt in it, first on the path.
    import tilewright

    package = tmp_path / "site" / "tilewright"
    package.mkdir(parents=True)
    for item in Path(tilewright.__file__).parent.iterdir():
        if item.name not in ("_prebuilt", "__pycache__"):
            (package / item.name).symlink_to(item)
    write_bundle(package / "_prebuilt", {})
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / "site")!r})
for name in [name for name in sys.modules if name.startswith("tilewright")]:
    del sys.modules[name]
from tilewright.runtime import store
print([bundle.folder.as_posix() for bundle in store.bundles()][0])
"""
    done = run_program(program, tmp_path)
    assert done.output.strip() == (package / "_prebuilt").as_posix(), done.errors
