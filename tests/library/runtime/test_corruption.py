"""A thousand seeded corruptions of a bundle and of the cache: each is a refusal, and told of.

One process with the fake driver loads from freshly damaged files again and again. Of each round it
is asked: did only bytes that were once written as code of that very kernel and signature reach the
driver? Was every outcome a loaded kernel or a typed error? Does `doctor` report the damage?
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from helpers.fake_driver import run_with_fake_driver

ROUNDS = 1000
SEED = int(os.environ.get("TILEWRIGHT_TEST_SEED", "20261129"))

_CAMPAIGN = """
import sys
from pathlib import Path
from helpers.corruption_campaign import run
print(*run(Path({folder!r}), seed={seed}, rounds=range({first}, {last})), sep=chr(10))
"""
_PARTS = 4


@pytest.mark.parametrize("part", range(_PARTS))
def test_no_corruption_reaches_the_driver_and_doctor_reports_each(
    tmp_path: Path, part: int
) -> None:
    size = ROUNDS // _PARTS
    # In memory where there is such a folder: a round makes and removes thirty files.
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path
    with TemporaryDirectory(dir=place) as folder:
        program = _CAMPAIGN.format(
            folder=folder, seed=SEED, first=part * size, last=(part + 1) * size
        )
        done = run_with_fake_driver(program, tmp_path, FAKE_CUDA_LOG="")
    *rest, summary = done.output.splitlines()
    assert not rest, f"seed {SEED}\n" + "\n".join(rest)
    rounds, harmless = map(int, summary.split())
    assert rounds == size
    # Few draws change nothing at all, or nothing that anybody reads.
    assert harmless < size // 5
