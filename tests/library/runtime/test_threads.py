"""Many threads at once: launches, streams and memory of their own, and who waits for whom."""

from __future__ import annotations

import pytest

from helpers.launches import Run


def test_sixteen_threads_launch_on_streams_of_their_own(run: Run) -> None:
    done = run(
        """
import threading
barrier = threading.Barrier(16)
failures = []
def work(index):
    device = index % 2
    try:
        barrier.wait()
        with stream.Stream(device) as own:
            for i in range(300):
                arguments = arrays(device=device, stream=own)
                add[1](*arguments, i, BLOCK=64 if i % 2 else 128, stream=own)
                if i % 50 == 0:
                    add.launcher.forget()
                    arguments[0].numpy()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
print(failures)
print([memory.memory_statistics(device).live_bytes for device in (0, 1)])
""",
        FAKE_CUDA_DEVICES="9.0,9.0",
    )
    assert done.output.splitlines() == ["[]", "[0, 0]"]
    assert len(done.lines("launch")) == 16 * 300
    assert len(done.lines("cuLibraryLoadData")) == 4  # two constexprs on two devices
    # On its own stream a thread waits for nobody: the only events are those of streams that end.
    assert len(done.lines("wait")) == 16
    by_device = {line.split()[6]: line.split()[5] for line in done.lines("launch")}
    assert set(by_device) == {"device=0", "device=1"}


def test_sixteen_threads_record_graphs_at_once(run: Run) -> None:
    done = run("""
import threading
from tilewright.runtime.graph import capture
arguments = arrays()
add[1](*arguments, 64, BLOCK=64)
barrier = threading.Barrier(16)
nodes = []
def work(count):
    mine = arrays()
    barrier.wait()
    with capture() as graph:
        for _ in range(count):
            add[1](*mine, 64, BLOCK=64)
    graph.replay()
    nodes.append(graph.nodes)
threads = [threading.Thread(target=work, args=(count,)) for count in range(1, 17)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(nodes) == list(range(1, 17)))
""")
    assert done.output.strip() == "True"
    assert len(done.lines("node launch")) == sum(range(1, 17))
    assert len(done.lines("graph")) == 16


@pytest.mark.parametrize(
    "wait",
    [
        "stream.synchronize()",
        "event.synchronize()",
        "out.numpy()",
        "out.copy_from(np.zeros(64, np.float32))",
        "add[1](x, y, out, 64, BLOCK=128)",  # loads its code
    ],
)
def test_a_thread_that_waits_for_the_driver_lets_others_run(run: Run, wait: str) -> None:
    done = run(
        f"""
import threading, time
event = stream.Event()
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
about_to = threading.Event()
def work():
    about_to.set()
    {wait}
thread = threading.Thread(target=work)
start = time.perf_counter()
thread.start()
about_to.wait()
for _ in range(100):
    add[1](x, y, out, 64, BLOCK=64)
    time.sleep(0)               # a chance for the other thread to hold everybody up
taken = time.perf_counter() - start
thread.join()
print(taken, time.perf_counter() - start)
""",
        FAKE_CUDA_SLOW_MS="600",
    )
    taken, waited = map(float, done.output.split())
    assert waited > 0.55
    assert taken < 0.4
