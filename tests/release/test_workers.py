"""Whoever builds, and however often he is killed, the bundle has the same bytes."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.small_checkout import ENTRIES, SmallCheckout
from tilewright.errors import ReleaseError, ToolchainError
from tilewright.settings import settings
from tilewright_release import dev_tools, workers
from tilewright_release.build_entry import build_elsewhere, keep_record
from tilewright_release.bundle import Summary, bundle_kernels, plan_tasks
from tilewright_release.signatures import read_signatures
from tilewright_release.targets import read_targets

_COMMAND = "import sys; from tilewright_release.main import main; sys.exit(main(sys.argv[1:]))"


def _bundle(small: SmallCheckout, *, jobs: int = 1, scheduler: str | None = None) -> Summary:
    return bundle_kernels(
        small.checkout,
        output=small.checkout.bundle,
        cache=small.cache,
        jobs=jobs,
        stream=io.StringIO(),
        scheduler=scheduler,
    )


def _contents(small: SmallCheckout) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in small.checkout.bundle.iterdir()}


def _start(small: SmallCheckout, *, jobs: int) -> subprocess.Popen[bytes]:
    words = ["--root", str(small.root), "bundle-kernels", "--jobs", str(jobs)]
    return subprocess.Popen(
        [
            *(sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {_COMMAND}"),
            *(*words, "--cache", str(small.cache)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.parametrize("seed", range(2))
def test_kills_at_random_instants_change_nothing(
    small: SmallCheckout, bundled: SmallCheckout, seed: int
) -> None:
    numbers = random.Random(seed)
    kills = 0
    for attempt in range(1, 7):
        process = _start(small, jobs=1)
        # A whole run from nothing takes a second or more, and none less than a few tenths.
        deadline = time.monotonic() + attempt * numbers.uniform(0.1, 0.3)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills
    _bundle(small)
    assert _contents(small) == _contents(bundled)


def test_a_kill_while_packs_are_written_changes_nothing(bundled: SmallCheckout) -> None:
    # All entries are in the cache, so nearly all of the run is reading and packing.
    before = _contents(bundled)
    for path in bundled.checkout.bundle.iterdir():
        path.unlink()
    process = _start(bundled, jobs=1)
    while process.poll() is None and not list(bundled.checkout.bundle.glob("*.pack*")):
        time.sleep(0.0002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (bundled.checkout.bundle / "small-ptx-0123456789abcdef.pack.1.partial").write_bytes(b"left")
    assert _bundle(bundled).built == 0
    assert _contents(bundled) == before


def test_workers_end_when_their_parent_is_killed(small: SmallCheckout) -> None:
    process = _start(small, jobs=2)
    try:
        children = _wait_for_children(process.pid, count=2)
    finally:
        process.kill()  # the parent alone, as when memory runs out
        process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.02)


def _wait_for_children(pid: int, *, count: int) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        # The first child tracks resources; the others are workers.
        children = [int(word) for word in text.split()]
        if len(children) > count:
            return children
        time.sleep(0.02)
    pytest.fail(f"{count} workers did not start within 60 s")


# Dask


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of one worker, with a cache of its own."""
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "of-the-worker"))
    settings.cache_clear()
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        host="127.0.0.1",
        protocol="tcp",
    ) as local:
        yield local.scheduler_address
    settings.cache_clear()


def test_a_dask_cluster_makes_the_same_bundle(
    cluster: str, small: SmallCheckout, bundled: SmallCheckout, tmp_path: Path
) -> None:
    summary = _bundle(small, scheduler=cluster)
    assert (summary.entries, summary.built) == (ENTRIES, ENTRIES)
    assert _contents(small) == _contents(bundled)
    assert (tmp_path / "of-the-worker" / "factory" / "stages").is_dir()
    assert not (small.cache / "stages").exists()


def test_a_kernel_that_does_not_compile_on_a_cluster_is_listed(
    cluster: str, small: SmallCheckout
) -> None:
    small.replace("kernels.py", "values * values", "values @ values")
    with pytest.raises(ReleaseError, match=r"kernels do not compile \(1\)"):
        _bundle(small, scheduler=cluster)


def test_a_cluster_that_is_not_there_is_named(
    small: SmallCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    monkeypatch.setattr(workers, "_CONNECT_SECONDS", 1)
    with pytest.raises(ReleaseError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        _bundle(small, scheduler="tcp://127.0.0.1:9")


def test_a_cluster_without_dask_names_the_extra(
    small: SmallCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_tools, "find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match=r"pip install 'tilewright\[dask\]'"):
        _bundle(small, scheduler="tcp://127.0.0.1:9")


def test_a_worker_with_another_compiler_is_refused(
    small: SmallCheckout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "of-the-worker"))
    settings.cache_clear()
    table = read_targets(small.checkout.targets)
    declared = read_signatures(small.checkout)
    task = plan_tasks(declared, table, root=small.root, cache=small.cache)[0]
    report, record = build_elsewhere(task)
    assert report.error == ""
    settings.cache_clear()
    with pytest.raises(ReleaseError, match="with another compiler or other tools"):
        keep_record(task, b"0" * 64 + record[64:])
    keep_record(task, record)
    assert not (small.cache / "stages").exists()


def test_a_worker_with_other_sources_is_refused(small: SmallCheckout) -> None:
    table = read_targets(small.checkout.targets)
    declared = read_signatures(small.checkout)
    task = plan_tasks(declared, table, root=small.root, cache=small.cache)[-1]
    small.replace("kernels.py", "values * values", "values * values * 2")
    sys.modules.pop("kernels")
    report, record = build_elsewhere(task)
    assert "kernels.py:square reads differently in the worker" in report.error
    assert record == b""
