"""Workers: LLVM may die, be killed or hang, and the caller gets an exception."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from helpers.mlir_texts import FATAL_BODY
from helpers.worker_processes import report_worker, request, text_length
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend import worker as worker_module
from tilewright_compiler.backend.worker import POOL, Worker, WorkerPool


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_death_of_llvm_is_an_exception_with_its_last_words() -> None:
    pool = WorkerPool()
    with pytest.raises(InternalCompilerError, match=r"the LLVM worker died with .*flog2"):
        pool.translate(request(FATAL_BODY))
    assert ".entry k(" in pool.translate(request())
    pool.close()


def test_refused_text_leaves_the_worker_alive() -> None:
    worker = Worker()
    with pytest.raises(InternalCompilerError, match=r"custom op 'llvm\.frobnicate' is unknown"):
        worker.translate(request("%y = llvm.frobnicate %x : f32"))
    assert worker.is_alive
    assert ".entry k(" in worker.translate(request())
    worker.close()


def test_killed_idle_worker_is_replaced() -> None:
    pool = WorkerPool()
    first = pool.translate(request())
    (worker,) = pool.idle
    os.kill(worker.pid, signal.SIGKILL)
    while worker.is_alive:
        time.sleep(0.01)
    assert pool.translate(request()) == first
    pool.close()


def test_killed_busy_worker_does_not_hang() -> None:
    worker = Worker()
    worker.translate(request())
    os.kill(worker.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(worker.translate, request())
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(InternalCompilerError, match="SIGKILL"):
            waiting.result(timeout=30)


def test_what_was_interrupted_leaves_no_reply_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool()
    first = pool.translate(request())

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker_module, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.translate(request("%y = llvm.fadd %x, %x : f32"))
    assert pool.idle == ()
    assert pool.translate(request()) == first
    pool.close()


def test_hanging_worker_is_given_up() -> None:
    worker = Worker()
    worker.translate(request())
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(InternalCompilerError, match=r"did not finish within 0\.2 s"):
        worker.translate(request(), timeout_s=0.2)
    assert not _exists(worker.pid)


def test_threads_get_workers_of_their_own() -> None:
    pool = WorkerPool()
    with ThreadPoolExecutor(3) as threads:
        texts = list(threads.map(lambda _: pool.translate(request()), range(6)))
    assert len(set(texts)) == 1
    pool.close()
    assert pool.idle == ()


@pytest.mark.parametrize("method", ["fork", "spawn"])
# Python warns of any fork beside threads; what is tested is that ours is safe.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_process_pools_translate(method: str) -> None:
    here = text_length()
    (worker, *_) = POOL.idle
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        assert list(processes.map(text_length, range(4))) == [here] * 4
    gc.collect()
    assert worker.is_alive, "a child's end closes only what the child started"
    assert text_length() == here


def test_worker_ends_with_its_parent() -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    parent = context.Process(target=report_worker, args=(sender,))
    parent.start()
    assert receiver.poll(timeout=30), "the process started no worker"
    pid = receiver.recv()
    assert _exists(pid)
    parent.kill()
    parent.join()
    deadline = time.monotonic() + 20
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_worker_that_was_started_ahead_is_the_one_that_translates() -> None:
    pool = WorkerPool()
    pool.start()
    pool.start()
    (worker,) = pool.idle
    pool.translate(request())
    assert pool.idle == (worker,)
    pool.close()


def test_workers_import_no_numpy() -> None:
    # It is what a compilation in a new process waits for.
    code = (
        "import sys; from tilewright_compiler.backend import llvm; "
        f"llvm.translate(llvm.Request(**{asdict(request())!r})); "
        "assert 'numpy' not in sys.modules; assert 'mlir.dialects' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
