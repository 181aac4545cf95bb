"""After a fork the child has no driver: typed errors, no hang, the parent's objects untouched."""

from __future__ import annotations

from helpers.launches import Run

_FORKED = """
import os, gc
from tilewright.runtime.graph import capture
from tilewright.runtime.preload import preload

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            gc.collect()
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_everything_that_needs_the_driver_is_a_typed_error_in_the_child(run: Run) -> None:
    done = run(
        _FORKED
        + """
x, y, out = arrays()
own, event = stream.Stream(), stream.Event()
add[1](x, y, out, 64, BLOCK=64)
with capture() as graph:
    add[1](x, y, out, 64, BLOCK=64)
def child():
    for call in (
        lambda: add[1](x, y, out, 64, BLOCK=64), lambda: memory.empty(4, dtypes.float32),
        out.numpy, lambda: out.copy_from(np.zeros(64, np.float32)), stream.synchronize,
        own.synchronize, own.is_done, own.record, own.close, lambda: own.wait(event),
        stream.Stream, stream.Event, event.synchronize, event.is_done, graph.replay,
        lambda: capture().__enter__(), lambda: preload(add), memory.trim_memory,
        lambda: memory.as_device_array(x).view((2, 32)).numpy(), native.device_count,
    ):
        refused(errors.DriverError, call)
in_child(child)
add[1](x, y, out, 64, BLOCK=64)
graph.replay()
"""
    )
    lines = done.output.splitlines()
    assert len(lines) == 20
    assert all("does not survive a fork" in line for line in lines)
    assert len(done.lines("launch")) == 3
    assert len(done.lines("graph")) == 1


def test_objects_of_the_parent_die_quietly_in_the_child(run: Run) -> None:
    done = run(
        _FORKED
        + """
objects = [*arrays(), stream.Stream(), stream.Event()]
objects.append(memory.empty(8, dtypes.float32, stream=objects[3]))
add[1](*objects[:3], 64, BLOCK=64)
with capture() as graph:
    add[1](*objects[:3], 64, BLOCK=64)
def child():
    global graph
    graph.close()
    objects[0].free()
    del graph
    objects.clear()
in_child(child)
print(len(open(os.environ["FAKE_CUDA_LOG"]).read().splitlines()))
del graph
objects.clear()
"""
    )
    at_fork = int(done.output)
    ends = ("cuStreamDestroy", "cuEventDestroy", "cuGraphExecDestroy", "cuMemFree")
    assert not [line for line in done.log[:at_fork] if line.startswith(ends)]
    assert len(done.lines("cuStreamDestroy")) == 2
    assert len(done.lines("cuEventDestroy")) == 1
    assert len(done.lines("cuGraphExecDestroy")) == 1


def test_the_interpreter_works_in_a_forked_child(run: Run) -> None:
    done = run(
        _FORKED
        + """
add[1](*arrays(), 64, BLOCK=64)
def child():
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    add[1](a, a, out, 64, BLOCK=64)
    print(float(out.sum()))
in_child(child)
"""
    )
    assert done.output.strip() == "4032.0"


def test_a_fork_while_another_thread_waits_does_not_hang_the_child(run: Run) -> None:
    done = run(
        _FORKED
        + """
import threading
x, y, out = arrays()
started = threading.Event()
def wait():
    started.set()
    stream.synchronize()
thread = threading.Thread(target=wait)
thread.start()
started.wait()
in_child(lambda: refused(errors.DriverError, lambda: add[1](x, y, out, 64, BLOCK=64)))
thread.join()
""",
        FAKE_CUDA_SLOW_MS="300",
    )
    assert "does not survive a fork" in done.output


def test_a_child_forked_by_multiprocessing_gets_the_error_as_a_result(run: Run) -> None:
    done = run("""
import multiprocessing
def work(_):
    try:
        memory.empty(4, dtypes.float32)
    except errors.DriverError as error:
        return str(error)
    return "no error"
before = memory.empty(4, dtypes.float32)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(*pool.map(work, range(4)), sep="\\n")
""")
    lines = done.output.splitlines()
    assert len(lines) == 4
    assert all("start workers with the 'spawn' method" in line for line in lines)
