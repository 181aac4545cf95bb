"""Worker processes in which LLVM runs: one request, one reply, and a crash becomes an exception.

A worker is started at first use, or before it (`WorkerPool.start`), and kept, because it takes 0.1
s to import MLIR. Idle ones wait in a pool, so that each thread gets its own; a forked child forgets
its parent's workers and starts new ones. A worker ends when its standard input closes, which
happens at exit and also when the parent is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict

from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.messages import Request, frame

DEFAULT_TIMEOUT_S = 300.0
_STDERR_TAIL = 2000
_CHUNK = 1 << 16

# The parent's import path, so that a checkout, an editable install and a wheel all work the same;
# -I keeps the environment and the working directory from adding to it.
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from tilewright_compiler.backend.llvm import serve; serve()"
)


class Worker:
    """One process that translates MLIR to PTX; serves one thread at a time."""

    def __init__(self) -> None:
        """Start the process; it imports MLIR while the caller prepares the request."""
        # A file in memory rather than a pipe: nobody has to drain it, and its tail is still there
        # after a crash.
        self._stderr = os.fdopen(os.memfd_create("stderr"), "w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Whether each request had its reply: what was interrupted before leaves it in the pipe, and
        # it would be taken for that of the next request.
        self._is_settled = True
        self._requests = self._process.stdin.fileno()
        self._replies = self._process.stdout.fileno()
        os.set_blocking(self._requests, False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def is_usable(self) -> bool:
        """Whether the process is running and owes no reply."""
        return self._is_settled and self.is_alive

    def translate(self, request: Request, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Return the PTX.

        Raises InternalCompilerError when MLIR refuses, LLVM aborts or time runs out.
        """
        deadline = time.monotonic() + timeout_s
        self._is_settled = False
        try:
            _send(self._requests, frame(asdict(request)), deadline)
            (length,) = struct.unpack(">I", _receive(self._replies, 4, deadline))
            reply = json.loads(_receive(self._replies, length, deadline))
        except (BrokenPipeError, EOFError) as error:
            raise InternalCompilerError(self._describe_death()) from error
        except TimeoutError as error:
            self.close()
            msg = f"LLVM did not finish within {timeout_s:g} s: kernel too large, or LLVM loops"
            raise InternalCompilerError(msg) from error
        self._is_settled = True
        if "error" in reply:
            msg = f"MLIR refused the emitted text: {reply['error']}"
            raise InternalCompilerError(msg)
        ptx: str = reply["ptx"]
        return ptx

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._close_files()

    def forget(self) -> None:
        """In a forked child: let go of the parent's worker without touching the process."""
        self._process.returncode = 0  # not our child, so Popen must not wait for it or warn of it
        self._close_files()

    def _close_files(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                stream.close()

    def _describe_death(self) -> str:
        code = self._process.wait()
        self._stderr.seek(0)
        tail = self._stderr.read()[-_STDERR_TAIL:].decode(errors="replace").strip()
        self._close_files()
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the LLVM worker died with {reason}: {tail or 'it printed nothing'}"


class WorkerPool:
    """Workers that wait for work. `max_idle` bounds what is kept: a worker holds about 170 MB."""

    def __init__(self, *, max_idle: int = 4) -> None:
        """Start with no worker."""
        self._max_idle = max_idle
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget_all)

    def translate(self, request: Request, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Translate in an idle worker, or in a new one; errors as `Worker.translate`."""
        worker = self._take()
        try:
            return worker.translate(request, timeout_s=timeout_s)
        finally:
            self._put_back(worker)

    def start(self) -> None:
        """Start a worker unless one is idle: it gets ready while the caller makes the request."""
        with self._lock:
            if not self._idle:
                self._idle.append(Worker())

    @property
    def idle(self) -> tuple[Worker, ...]:
        """The workers that wait for work."""
        return tuple(self._idle)

    def close(self) -> None:
        """End the idle workers; the pool can be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def _take(self) -> Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.is_usable:
                    break
                worker.close()
            else:
                worker = Worker()
            self._busy.append(worker)
            return worker

    def _put_back(self, worker: Worker) -> None:
        with self._lock:
            self._busy.remove(worker)
            keep = worker.is_usable and len(self._idle) < self._max_idle
            if keep:
                self._idle.append(worker)
        if not keep:
            worker.close()

    def _forget_all(self) -> None:
        # The lock may have been held by another thread at the fork. The inherited pipe ends are
        # closed, so that a worker's life does not depend on its parent's children.
        self._lock = threading.Lock()
        for worker in (*self._idle, *self._busy):
            worker.forget()
        self._idle, self._busy = [], []


POOL = WorkerPool()
atexit.register(POOL.close)


def _send(file: int, payload: bytes, deadline: float) -> None:
    view = memoryview(payload)
    while view:
        _await(file, select.POLLOUT, deadline)
        view = view[os.write(file, view[:_CHUNK]) :]


def _receive(file: int, length: int, deadline: float) -> bytes:
    parts = []
    while length:
        _await(file, select.POLLIN, deadline)
        part = os.read(file, min(length, _CHUNK))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _await(file: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(file, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError
