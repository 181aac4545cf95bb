"""Fixtures of the factory's tests: a small checkout, and its bundle built once."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.small_checkout import SmallCheckout, make_checkout
from tilewright_release.bundle import bundle_kernels


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallCheckout]:
    """A checkout of two kernels with nothing built."""
    yield make_checkout(tmp_path / "checkout")
    _forget_kernels()


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle and caches of the small checkout; read only."""
    small = make_checkout(tmp_path_factory.mktemp("small") / "checkout")
    bundle_kernels(
        small.checkout,
        output=small.checkout.bundle,
        cache=small.cache,
        jobs=1,
        stream=io.StringIO(),
    )
    _forget_kernels()
    return small.root


@pytest.fixture
def bundled(built_once: Path, tmp_path: Path) -> Iterator[SmallCheckout]:
    """A copy of the small checkout with its bundle and caches."""
    shutil.copytree(built_once, tmp_path / "bundled")
    yield SmallCheckout(tmp_path / "bundled")
    _forget_kernels()


def _forget_kernels() -> None:
    # Each test has its own kernels.py, and a module is imported once a process.
    sys.modules.pop("kernels", None)
    sys.modules.pop("product", None)
