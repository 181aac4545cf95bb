"""Fixtures of the runtime tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fake_driver import Finished
from helpers.launches import Run, run_sample, write_sample_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write_sample_bundle(folder)
    return folder


@pytest.fixture(scope="session")
def run(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    def run_program(program: str, *, has_library_api: bool = True, **environment: str) -> Finished:
        settings = {"TILEWRIGHT_BUNDLE_PATH": str(bundle)} | environment
        folder = tmp_path_factory.mktemp("program")
        return run_sample(program, folder, has_library_api=has_library_api, **settings)

    return run_program
