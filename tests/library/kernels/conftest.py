"""Fixtures of the tests of kernels, which run them in ways that no device of the host has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.tensor.launches import forget_plans


@pytest.fixture(autouse=True)
def fresh_plans() -> Iterator[None]:
    """Leave no plans behind that follow what a test has replaced, also of one that fails."""
    yield
    forget_plans()
