"""Build tasks become reports, on worker processes here or on a Dask cluster.

Both are executors of `concurrent.futures`, so there is one way through. Processes share the cache
folder and leave each entry there themselves; a cluster's machines may share nothing with this one,
so there the record of an entry comes back as its result.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from typing import TextIO

from tilewright.errors import ReleaseError, TilewrightError
from tilewright_release.build_entry import (
    BuildReport,
    BuildTask,
    build_elsewhere,
    build_entry,
    keep_record,
)
from tilewright_release.dev_tools import require_tools
from tilewright_release.progress import show_progress

_CONNECT_SECONDS = 20

_Result = BuildReport | tuple[BuildReport, bytes]


def build_all(
    tasks: Sequence[BuildTask], *, jobs: int, scheduler: str | None, stream: TextIO
) -> Iterator[BuildReport]:
    """Build the tasks and yield their reports as they come; every built entry is in the cache.

    `scheduler` is the address of a Dask cluster's, None for `jobs` processes here. Raises
    ReleaseError when workers die or the cluster cannot be reached.
    """
    if not tasks:
        return
    opened = _cluster(scheduler) if scheduler else _processes(min(jobs, len(tasks)))
    with opened as executor, show_progress("kernels", total=len(tasks), stream=stream) as progress:
        work: Callable[[BuildTask], _Result] = build_elsewhere if scheduler else build_entry
        futures: dict[Future[_Result], BuildTask] = {
            executor.submit(work, task): task for task in tasks
        }
        try:
            for future in as_completed(futures):
                progress.advance(futures[future].reference)
                yield _report(futures[future], future.result())
        except TilewrightError:
            raise
        except BrokenProcessPool as error:
            msg = (
                "a worker process died, perhaps for lack of memory; run the command again, with "
                "fewer --jobs: what was built is kept"
            )
            raise ReleaseError(msg) from error
        except Exception as error:  # whatever a worker raises beyond our own errors
            msg = (
                f"a worker failed with {type(error).__name__}: {error}; run the command again: "
                "what was built is kept"
            )
            raise ReleaseError(msg) from error
        finally:
            for future in futures:
                future.cancel()


def _report(task: BuildTask, result: _Result) -> BuildReport:
    if isinstance(result, BuildReport):
        return result
    report, record = result
    if not report.error:
        keep_record(task, record)
    return report


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    # Spawned, not forked: a worker starts its own LLVM process and must share nothing with ours.
    executor = ProcessPoolExecutor(
        max_workers=count,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_die_with_parent,
    )
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    require_tools(("distributed",), extra="dask", purpose="building on a Dask cluster")
    from distributed import Client

    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        msg = f"no Dask scheduler answers at {address}: {error}"
        raise ReleaseError(msg) from error
    with client:
        # A build has no side effect that another run would miss, but its key is not its arguments.
        yield client.get_executor(pure=False, retries=1)


def _die_with_parent() -> None:
    """End this worker when its parent is killed: nobody would take what it builds."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent-watch").start()
