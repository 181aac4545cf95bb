"""A wheel of this checkout with a small bundle, built once for all tests of wheels."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from helpers.small_checkout import ROOT, make_checkout
from tilewright_release.build_wheel import build_wheel
from tilewright_release.bundle import bundle_kernels
from tilewright_release.checkout import Checkout

_LEFT_OUT = shutil.ignore_patterns(
    "build", "dist", ".*", "__pycache__", "_launcher*.so", "tests", "docs"
)


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a manifest and packs."""
    small = make_checkout(tmp_path_factory.mktemp("bundle") / "checkout")
    folder = small.root / "bundle"
    bundle_kernels(small.checkout, output=folder, cache=small.cache, jobs=1, stream=io.StringIO())
    sys.modules.pop("kernels")
    return folder


@pytest.fixture(scope="session")
def sources(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of this checkout's sources with the small bundle in place."""
    return copy_sources(tmp_path_factory.mktemp("sources") / "checkout", small_bundle)


@pytest.fixture(scope="session")
def wheel(sources: Checkout) -> Path:
    """The wheel of `sources`."""
    return build_wheel(sources)


def copy_sources(root: Path, bundle: Path | None, *, origin: Path = ROOT) -> Checkout:
    """Copy what a build needs of the checkout `origin` to `root`."""
    shutil.copytree(origin, root, ignore=_LEFT_OUT)
    shutil.copy(origin / ".gitignore", root)
    if bundle is not None:
        shutil.copytree(bundle, root / "build" / "bundle")
    return Checkout(root)


@pytest.fixture(scope="session")
def second_wheel(
    sources: Checkout, small_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The wheel of a copy of `sources` in another folder."""
    folder = tmp_path_factory.mktemp("elsewhere") / "copy"
    return build_wheel(copy_sources(folder, small_bundle, origin=sources.root))


@pytest.fixture(scope="session")
def bare_sources(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of this checkout's sources without a bundle."""
    return copy_sources(tmp_path_factory.mktemp("bare") / "checkout", None)
