"""Options and fixtures of the whole suite. What tests import lives in `helpers/`, never here."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from helpers.golden import Golden, golden_directory
from helpers.gpu import missing_gpu

_TESTS = Path(__file__).parent

# Before NumPy is loaded. The products of the tests are small: threads would wait for each other,
# and for the other processes of the run, for many times as long as one thread computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# CI must give the same verdict twice: fixed seeds there. No deadline anywhere, machines are shared.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ instead of comparing"
    )
    parser.addoption(
        "--require-gpu", action="store_true", help="fail, not skip, GPU tests without their GPU"
    )
    parser.addoption(
        "--prove-all", action="store_true", help="prove the schedules of all configurations"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and os.environ.get("CI"):
        msg = (
            "--update-golden is refused when CI is set: goldens are reviewed, not regenerated there"
        )
        raise pytest.UsageError(msg)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("gpu"):
        reason = missing_gpu(mark.kwargs.get("cc"))
        if reason is None:
            continue
        if item.config.getoption("--require-gpu"):
            pytest.fail(f"--require-gpu: {reason}")
        pytest.skip(reason)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare text with a file under tests/golden/; see helpers.golden."""
    return Golden(
        golden_directory(_TESTS, request.path),
        node_id=request.node.nodeid,
        test_name=request.node.name,
        is_updating=request.config.getoption("--update-golden"),
    )
