"""Graphs: what is recorded, what is kept, in which order it runs, and what a recording refuses."""

from __future__ import annotations

from helpers.launches import Run

_GRAPH = """
from tilewright.runtime.graph import Graph, capture
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)         # loads the kernel
"""


def test_launches_are_recorded_once_and_replayed_in_the_legacy_streams_order(run: Run) -> None:
    done = run(
        _GRAPH
        + """
with capture() as graph:
    add[1](x, y, out, 64, BLOCK=64)
    add[2](out, y, out, 64, BLOCK=64)
    print(graph.is_ready, repr(graph))
print(graph.is_ready, graph.nodes, repr(graph), out.version)
for _ in range(3):
    graph.replay()
print(out.version, graph.stream.handle)
"""
    )
    before, after, last = done.output.splitlines()
    assert before == "False <graph of device 0, not ready>"
    # 3 launches of which 2 were recorded, then twice for each of 3 runs
    assert after == "True 2 <graph of device 0, 2 nodes> 3"
    version, own = last.split()
    assert version == "9"
    assert len(done.lines("node launch")) == 2
    order = [line.split()[:2] for line in done.lines("record", "wait", "graph")]
    replayed = [
        ["record", "stream=0"],
        ["wait", f"stream={own}"],
        ["graph", "nodes=2"],
        ["record", f"stream={own}"],
        ["wait", "stream=0"],
    ]
    # A recording that ends comes after the legacy stream, whose list its arrays may come from.
    assert order[:2] == replayed[:2]
    assert order[2:17] == replayed * 3


def test_a_replay_is_ordered_with_the_stream_asked_for_and_those_of_its_arrays(run: Run) -> None:
    done = run(
        _GRAPH
        + """
own = stream.Stream()
(far,) = arrays(1, stream=112)
with capture(stream=own) as graph:
    add[1](x, far, out, 64, BLOCK=64)
graph.replay(stream=own)
graph.replay(stream=48)
refused(errors.LaunchError, lambda: graph.replay(stream=49))     # odd: it is being captured
print(own.handle)
"""
    )
    refusal, own = done.output.splitlines()
    assert "running another graph would break the capture" in refusal
    calls = [line.split()[1] for line in done.lines("record", "wait", "graph")]

    def ordered(*streams: int) -> list[str]:
        before = [end for s in streams for end in (f"stream={s}", f"stream={own}")]
        after = [end for s in streams for end in (f"stream={own}", f"stream={s}")]
        return [*before, "nodes=1", *after]

    # The arrays belong to the legacy stream and to 112.
    expected = [*ordered(0, 112), *ordered(48, 0, 112)]
    assert calls[2 : 2 + len(expected)] == expected  # the first two end the recording


def test_the_graph_keeps_what_its_launches_use(run: Run) -> None:
    done = run(
        _GRAPH
        + """
import weakref
with capture() as graph:
    fresh = memory.zeros(64, dtypes.float32)
    add[1](x, y, fresh, 64, BLOCK=64)
    add[1](fresh, y, out, 64, BLOCK=64)
address, result = fresh.address, out.address
del fresh, out
held = [memory.empty(64, dtypes.float32) for _ in range(20)]
print({address, result}.isdisjoint(array.address for array in held), graph.nodes)
live = memory.memory_statistics().live_bytes
graph.close()
print(live - memory.memory_statistics().live_bytes)
refused(errors.LaunchError, graph.replay)
graph.close()
"""
    )
    kept, freed, closed = done.output.splitlines()
    assert kept == "True 3"  # the fill of zeros() is a node too
    assert freed == "1024"
    assert "was closed" in closed
    # No node allocates: the array outlives the graph's runs.
    assert not done.lines("node alloc", "cuMemFreeAsync of unknown")
    assert len(done.lines("cuGraphExecDestroy")) == 1


def test_a_new_array_of_a_recording_belongs_to_the_graphs_stream(run: Run) -> None:
    done = run(
        _GRAPH
        + """
with capture() as graph:
    fresh = memory.empty(64, dtypes.float32)
    add[1](x, y, fresh, 64, BLOCK=64)
print(fresh.stream_handle == graph.stream.handle)
graph.replay()
fresh.numpy()
print(graph.stream.handle)
""",
        FAKE_CUDA_NO_POOLS="1",
    )
    same, own = done.output.split()
    assert same == "True"
    assert done.lines("synchronize") == [f"synchronize {own}"]
    assert len(done.lines("cuMemAlloc ")) == 4


def test_copies_and_arrays_of_other_streams_are_recorded_without_waiting(run: Run) -> None:
    done = run(
        _GRAPH
        + """
with stream.Stream() as other, capture() as graph:
    z = memory.empty(64, dtypes.float32)
    native.copy(z, x)
    far = memory.empty(64, dtypes.float32, stream=other)
    add[1](z, y, far, 64, BLOCK=64)
    class Exporter:
        def __dlpack_device__(self): return 2, 0
        def __dlpack__(self, *, stream=None):
            print("asked to order", stream)
            return x.__dlpack__(stream=stream)
    add[1](Exporter(), y, out, 64, BLOCK=64)
print(graph.nodes)
graph.replay()
"""
    )
    assert done.output.splitlines() == ["asked to order -1", "3"]


def test_what_would_break_a_recording_is_refused_and_leaves_it_whole(run: Run) -> None:
    done = run(
        _GRAPH
        + """
with capture() as graph:
    fresh = memory.empty(64, dtypes.float32)
    refused(errors.LaunchError, fresh.numpy)
    refused(errors.LaunchError, lambda: fresh.copy_from(np.zeros(64, np.float32)))
    refused(errors.LaunchError, graph.stream.synchronize)
    refused(errors.LaunchError, graph.stream.is_done)
    refused(errors.LaunchError, x.numpy)  # of the legacy stream, which is not captured
    refused(errors.LaunchError, stream.synchronize)
    refused(errors.LaunchError, stream.Event().synchronize)
    refused(errors.LaunchError, stream.Event().is_done)
    refused(errors.LaunchError, lambda: memory.from_numpy(np.zeros(4)))
    refused(errors.LaunchError, lambda: add[1](x, y, out, 64, BLOCK=128))     # not loaded
    refused(errors.LaunchError, graph.replay)
    refused(errors.LaunchError, graph.close)
    refused(errors.LaunchError, lambda: capture().__enter__())
    refused(errors.LaunchError, lambda: add[2**31](x, y, out, 64, BLOCK=64))
    refused(errors.ArgumentError, lambda: add[1](x, y, "out", 64, BLOCK=64))
    add[1](x, y, fresh, 64, BLOCK=64)
graph.replay()
print(fresh.numpy().shape, graph.nodes)
"""
    )
    *refusals, last = done.output.splitlines()
    messages = (
        "copying to the host would break the capture",
        "copying from the host would break the capture",
        "waiting for it would break the capture",
        "asking whether its work is done would break the capture",
        "captured by this thread, and copying to the host would break",
        "captured by this thread, and waiting for it would break",
        "waiting for an event would break the capture",
        "asking whether an event has happened would break the capture",
        "copying from the host would break the capture",
        "call tilewright.preload",
        "still being recorded",
        "still being recorded",
        "this thread records a graph already",
        "is too large",
        "argument 'out' is of <class 'str'>",
    )
    for line, message in zip(refusals, messages, strict=True):
        assert message in line
    assert last == "(64,) 1"
    assert len(done.lines("cuLibraryLoadData")) == 1


def test_an_exception_ends_the_recording_and_leaves_no_graph(run: Run) -> None:
    done = run(
        _GRAPH
        + """
try:
    with capture() as graph:
        add[1](x, y, out, 64, BLOCK=64)
        raise KeyError("mine")
except KeyError as error:
    print(error)
refused(errors.LaunchError, graph.replay)
with capture() as second:
    add[1](x, y, out, 64, BLOCK=64)
second.replay()
try:
    with capture() as broken:
        # What the driver itself finds wrong comes out at the end
        import ctypes
        ctypes.CDLL("libcuda.so.1").cuStreamQuery(ctypes.c_void_p(broken.stream.handle))
except errors.DriverError as error:
    print(error)
refused(errors.LaunchError, broken.replay)
add[1](x, y, out, 64, BLOCK=64)
"""
    )
    lines = done.output.splitlines()
    assert lines[0] == "'mine'"
    assert "its recording failed" in lines[1]
    assert "cuStreamEndCapture failed with 901" in lines[2]
    assert "its recording failed" in lines[3]
    assert len(done.lines("graph")) == 1


def test_a_freed_array_is_noticed_before_the_graph_runs(run: Run) -> None:
    done = run(
        _GRAPH
        + """
with capture() as graph:
    add[1](x, y, out, 64, BLOCK=64)
y.free()
refused(errors.ArgumentError, graph.replay)
refused(errors.ArgumentError, lambda: capture(stream=48).__enter__())
legacy = stream.Stream.external(None)
refused(errors.ArgumentError, lambda: capture(stream=legacy).__enter__())
with stream.Stream() as own, capture(stream=own) as short:
    add[1](x, x, out, 64, BLOCK=64)
refused(errors.LaunchError, short.replay)
"""
    )
    freed, number, legacy, closed = done.output.splitlines()
    assert "the stream of this graph was closed" in closed
    assert "was freed; record the graph again" in freed
    assert "stream of capture is a Stream" in number
    assert "the legacy stream cannot be recorded" in legacy
    assert not done.lines("graph")


def test_only_the_recording_thread_is_recorded(run: Run) -> None:
    done = run(
        _GRAPH
        + """
import threading
def elsewhere():
    a, b, c = arrays()
    add[1](a, b, c, 64, BLOCK=64)
    add[1](a, b, c, 64, BLOCK=128)      # loads: only this thread would not be allowed to
    c.numpy()
with capture() as graph:
    add[1](x, y, out, 64, BLOCK=64)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
print(graph.nodes)
refused(errors.LaunchError, lambda: graph._native.end(True))
"""
    )
    assert done.output.splitlines()[0] == "1"
    assert len(done.lines("node launch")) == 1
    assert len(done.lines("launch")) == 4


def test_graphs_of_two_devices_do_not_mix(run: Run) -> None:
    done = run(
        _GRAPH
        + """
far = arrays(device=1)
add[1](*far, 64, BLOCK=64)
with capture(device=1) as graph:
    add[1](*far, 64, BLOCK=64)
    add[1](x, y, out, 64, BLOCK=64)      # on device 0: not recorded
print(graph.nodes, graph.device)
graph.replay()
""",
        FAKE_CUDA_DEVICES="9.0,9.0",
    )
    assert done.output.strip() == "1 1"


def test_many_graphs_leave_no_memory(run: Run) -> None:
    done = run(
        _GRAPH
        + """
import gc
def round():
    with capture() as graph:
        fresh = memory.empty(1000, dtypes.float32)
        add[1](x, y, fresh, 64, BLOCK=64)
    graph.replay()
round()
gc.collect()
before = memory.memory_statistics()
for _ in range(200):
    round()
gc.collect()
after = memory.memory_statistics()
print(after.live_bytes - before.live_bytes, after.driver_allocations - before.driver_allocations)
"""
    )
    live, driver = map(int, done.output.split())
    assert live == 0
    # A graph's stream goes with it, and its memory to the legacy stream, where the next one finds
    # it.
    assert driver == 0
    assert len(done.lines("cuGraphExecDestroy")) == 201


def test_torch_arguments_are_recorded_on_the_graphs_stream(run: Run) -> None:
    done = run(
        _GRAPH
        + """
from helpers.exchange import Exporter, offer
class Tensor(Exporter): pass
offer(Tensor, stream=96)
tensors = [Tensor(array) for array in (x, y, out)]
add[1](*tensors, 64, BLOCK=64)
with capture() as graph:
    add[1](*tensors, 64, BLOCK=64)
graph.replay(stream=96)
print(graph.nodes, graph.stream.handle)
"""
    )
    nodes, own = done.output.split()
    assert nodes == "1"
    streams = [line.split()[5] for line in done.lines("launch")]
    assert streams == ["stream=0", "stream=96", f"stream={own}"]


def test_a_capture_of_another_library_records_and_may_not_load(run: Run) -> None:
    # Odd handles are being captured, by whoever it is.
    done = run(
        """
from helpers.exchange import Exporter, offer
class Tensor(Exporter): pass
current = 97
offer(Tensor, stream=lambda: current)
tensors = [Tensor(array) for array in arrays()]
refused(errors.LaunchError, lambda: add[1](*tensors, 64, BLOCK=64))
current = 96
add[1](*tensors, 64, BLOCK=64)
current = 97
add[1](*tensors, 64, BLOCK=64)
"""
    )
    assert "would break the graph capture" in done.output
    assert [line.split()[5] for line in done.lines("launch")] == ["stream=96", "stream=97"]
    assert not done.lines("record", "wait")


_FOREIGN = """
import ctypes
from helpers.exchange import Exporter, offer
from tilewright.runtime.launcher import CODES
from tilewright.tensor.workspaces import Workspace, counters, obtain
driver = ctypes.CDLL("libcuda.so.1")
own = stream.Stream()
handle = ctypes.c_void_p(own.handle)

def capture_begins():
    assert driver.cuStreamBeginCapture_v2(handle, 1) == 0

def capture_ends():
    graph, instance = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    made = driver.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, ctypes.c_ulonglong(0))
    assert made == 0
    assert driver.cuGraphDestroy(graph) == 0
    return instance                     # what runs

# Of a library that works on the captured stream, as torch does.
class Tensor(Exporter): pass
offer(Tensor, stream=own.handle)
x = memory.as_device_array(Tensor(memory.empty(64, dtypes.float32)))
wanted = (Workspace((1000,), CODES[dtypes.float32]), counters(5))

def addresses():
    return [workspace.address for workspace in obtain(wanted, [x], 0)]
"""


def test_what_an_operation_needs_in_another_programs_capture_stays_that_graphs(run: Run) -> None:
    run(
        _FOREIGN
        + """
before = addresses()                    # gives back what is no counter
capture_begins()
first = addresses()
assert addresses() == first             # in one capture work comes in order
capture_ends()
after = [memory.empty(n, dtypes.float32, stream=s).address
         for n in (1000, 5) for s in (own, None) for _ in range(3)]
assert not set(first) & set(after)
capture_begins()
assert not set(addresses()) & set(first)
capture_ends()
memory.trim_memory()
live = memory.memory_statistics().live_bytes
own.close()                             # its list goes to the legacy stream's
later = [memory.empty(n, dtypes.float32) for n in (1000, 5) for _ in range(9)]
assert not set(first) & {array.address for array in later}
assert memory.memory_statistics().live_bytes > live >= 2 * 4096
"""
    )


def test_a_result_of_another_programs_capture_is_not_handed_out_again(run: Run) -> None:
    done = run(
        _FOREIGN
        + """
capture_begins()
result = memory.empty(4096, dtypes.float32, stream=own)
taken = result.address
del result
capture_ends()
memory.trim_memory()
print(memory.empty(4096, dtypes.float32, stream=own).address != taken)
"""
    )
    assert done.output.strip() == "True"
    assert not done.lines("cuMemFree")


def test_what_was_handed_out_in_a_capture_is_everyones_when_its_graph_is_gone(run: Run) -> None:
    run(
        _FOREIGN
        + """
capture_begins()
first = addresses()
kept = memory.empty(4096, dtypes.float32, stream=own)
instance = capture_ends()
others = [memory.empty(n, dtypes.float32) for n in (1000, 5)]
assert not set(first) & {other.address for other in others}
held = memory.memory_statistics().live_bytes
assert driver.cuGraphExecDestroy(instance) == 0
after = memory.memory_statistics()
assert after.live_bytes == held - 4096 - 512, (held, after)     # but for what the program has
others += [memory.empty(n, dtypes.float32) for n in (1000, 5)]
assert set(first) == {other.address for other in others[2:]}
own.synchronize()
address = kept.address
del kept
assert memory.empty(4096, dtypes.float32, stream=own).address == address
"""
    )


def test_a_program_that_captures_again_and_again_takes_no_more_memory(run: Run) -> None:
    run(
        _FOREIGN
        + """
for turn in range(300):
    capture_begins()
    addresses()
    result = memory.empty(4096, dtypes.float32, stream=own)
    instance = capture_ends()
    if turn % 2:
        del result                      # before its graph, or after
    assert driver.cuGraphExecDestroy(instance) == 0
    result = None
    now = memory.memory_statistics()
    if turn == 1:
        first = now
assert now.live_bytes == first.live_bytes
assert now.driver_allocations == first.driver_allocations
"""
    )
