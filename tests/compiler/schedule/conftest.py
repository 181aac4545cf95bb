"""What proofs of schedules share: the cases of a module, and the store of what is proven."""

from __future__ import annotations

import pytest

from tilewright_release.stage_cache import StageCache


@pytest.fixture
def store(request: pytest.FixtureRequest) -> StageCache:
    """Keep proofs beside what else pytest keeps."""
    assert request.config.cache is not None
    return StageCache(request.config.cache.mkdir("proofs"), "schedules")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a `case` for those of its module; for all of them if asked."""
    cases = getattr(metafunc.module, "CASES", None)
    if cases is None or "case" not in metafunc.fixturenames:
        return
    every = metafunc.config.getoption("--prove-all")
    chosen = [case for case in cases if every or case.by_default]
    metafunc.parametrize("case", chosen, ids=[case.name for case in chosen])
