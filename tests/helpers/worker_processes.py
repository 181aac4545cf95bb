"""What the tests of workers run in other processes, which must be able to import it."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from helpers.mlir_texts import kernel
from tilewright_compiler.backend.messages import Request
from tilewright_compiler.backend.worker import POOL
from tilewright_compiler.toolchain import find_toolchain


def request(body: str | None = None) -> Request:
    """Return the request for a small kernel."""
    text = (kernel() if body is None else kernel(body)).text
    return Request(text, "sm_80", "+ptx70", str(find_toolchain().libdevice))


def text_length(_: int = 0) -> int:
    """Translate in this process's pool."""
    return len(POOL.translate(request()))


def report_worker(sender: Connection[int, int]) -> None:
    """Start a worker, send its process id, and wait to be killed."""
    text_length()
    (worker, *_) = POOL.idle
    sender.send(worker.pid)
    time.sleep(60)
