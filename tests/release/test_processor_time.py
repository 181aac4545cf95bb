"""Processor time: what runs counts, also in children and workers, and what waits does not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tilewright_compiler.backend.worker import POOL
from tilewright_release import processor_time
from tilewright_release.processor_time import processor_seconds


def test_work_counts_and_waiting_does_not() -> None:
    start = processor_seconds()
    time.sleep(0.3)
    waited = processor_seconds() - start
    limit = time.process_time() + 0.2
    while time.process_time() < limit:
        pass
    assert waited < 0.15
    assert processor_seconds() - start >= waited + 0.15


def test_children_count_when_they_have_ended() -> None:
    start = processor_seconds()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert processor_seconds() - start >= 0.25


def test_a_waiting_worker_counts_with_what_it_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    POOL.start()
    monkeypatch.setattr(processor_time, "_seconds_of", lambda _pid: 0.0)
    without = processor_seconds()
    monkeypatch.setattr(processor_time, "_seconds_of", lambda _pid: 1000.0)
    assert processor_seconds() >= without + 1000.0


def test_a_process_that_is_gone_counts_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert processor_time._seconds_of(child.pid) == 0.0
