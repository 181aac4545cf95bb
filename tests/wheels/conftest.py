"""A wheel of this checkout with a small bundle, built once for all tests of wheels."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from helpers.small_checkout import BUDGETS, ROOT, SmallCheckout, make_checkout
from tilewright.kernels.elementwise import add
from tilewright_release.build_wheel import build_wheel
from tilewright_release.bundle import bundle_kernels
from tilewright_release.checkout import Checkout

# What the watched first launch of check-wheel finds.
_ADD = """\
family = "elementwise"

[[kernel]]
kernel = "tilewright.kernels.elementwise:add"
dtypes = { T = ["f32"] }
[[kernel.config]]
constexprs = { BLOCK_M = 1, BLOCK_N = 1024 }
num_warps = 4
[kernel.parameters]
"""
_FAMILY = """
[family.elementwise]
entries = 2
registers = 255
shared_bytes = 1024
"""

_LEFT_OUT = shutil.ignore_patterns(
    "build", "dist", ".*", "__pycache__", "_launcher*.so", "tests", "docs"
)


@pytest.fixture(scope="session")
def small_project(tmp_path_factory: pytest.TempPathFactory) -> SmallCheckout:
    """A checkout of a few kernels, one of them of the library, with build caches."""
    small = make_checkout(tmp_path_factory.mktemp("bundle") / "checkout")
    parameters = [(p.name, p.is_constexpr) for p in add.parameters]
    types = ["*T" if name in ("x", "y", "out") else "i64" for name, _ in parameters]
    lines = [
        f'{name} = "{text}"'
        for (name, is_constexpr), text in zip(parameters, types, strict=True)
        if not is_constexpr
    ]
    small.write("prebuilt/signatures/elementwise.toml", _ADD + "\n".join(lines) + "\n")
    small.write("prebuilt/budgets.toml", BUDGETS + _FAMILY)
    return small


@pytest.fixture(scope="session")
def small_bundle(small_project: SmallCheckout) -> Path:
    """A folder with a manifest and packs."""
    small = small_project
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


@pytest.fixture(scope="session")
def foreign_wheel(sources: Checkout) -> Path:
    """The wheel of `sources` for aarch64, cross-built."""
    return build_wheel(sources, machine="aarch64")


def copy_sources(root: Path, bundle: Path | None, *, origin: Path = ROOT) -> Checkout:
    """Copy what a build needs of the checkout `origin` to `root`."""
    shutil.copytree(origin, root, ignore=_LEFT_OUT)
    shutil.copy(origin / ".gitignore", root)
    (root / "tests" / "helpers").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "helpers" / "fake_driver.c", root / "tests" / "helpers")
    if bundle is not None:
        shutil.copytree(bundle, root / "build" / "bundle")
    return Checkout(root)


@pytest.fixture(scope="session")
def bare_sources(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of this checkout's sources without a bundle."""
    return copy_sources(tmp_path_factory.mktemp("bare") / "checkout", None)
