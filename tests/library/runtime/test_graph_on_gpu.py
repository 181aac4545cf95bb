"""Graphs, streams, threads and torch's tensors on a real device, by kernels that the wheel has."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from examples.vecadd import vecadd
from helpers.fake_driver import run_program
from helpers.gpu import requires_gpu
from tilewright.abi.dtypes import float32, int8
from tilewright.errors import ArgumentError, LaunchError, OutOfMemoryError
from tilewright.runtime import memory, stream
from tilewright.runtime.graph import capture
from tilewright.settings import settings
from tilewright.tensor import elementwise

pytestmark = requires_gpu()

COUNT = 1 << 20
GRID = COUNT // 1024


@pytest.fixture(name="torch")
def _torch() -> ModuleType:
    torch: ModuleType = pytest.importorskip("torch", reason="torch is not installed")
    if settings().force_ptx:
        pytest.skip("torch has no PTX for CUDA_FORCE_PTX_JIT=1 to compile")
    return torch


def _loaded() -> tuple[memory.DeviceArray, memory.DeviceArray, memory.DeviceArray]:
    x = memory.from_numpy(np.ones(COUNT, np.float32))
    y = memory.from_numpy(np.full(COUNT, 2, np.float32))
    out = memory.zeros(COUNT, float32)
    vecadd[GRID](x, y, out, COUNT, BLOCK=1024)
    return x, y, out


def test_a_graph_runs_again_on_what_its_arrays_hold_now() -> None:
    x, y, out = _loaded()
    with capture() as graph:
        between = memory.empty(COUNT, float32)
        vecadd[GRID](x, y, between, COUNT, BLOCK=1024)
        vecadd[GRID](between, y, out, COUNT, BLOCK=1024)
    assert graph.nodes == 2
    np.testing.assert_array_equal(out.numpy(), np.full(COUNT, 3, np.float32))
    graph.replay()
    np.testing.assert_array_equal(out.numpy(), np.full(COUNT, 5, np.float32))
    for value in range(20):
        x.copy_from(np.full(COUNT, value, np.float32))
        graph.replay()
        vecadd[GRID](out, y, out, COUNT, BLOCK=1024)  # after the graph, by the order of streams
        np.testing.assert_array_equal(out.numpy(), np.full(COUNT, value + 6, np.float32))
        np.testing.assert_array_equal(between.numpy(), np.full(COUNT, value + 2, np.float32))


def test_temporary_arrays_of_a_recording_stay_the_graphs() -> None:
    x, y, out = _loaded()
    with capture() as graph:
        between = memory.zeros(COUNT, float32)
        for _ in range(3):
            vecadd[GRID](between, y, between, COUNT, BLOCK=1024)
        vecadd[GRID](between, x, out, COUNT, BLOCK=1024)
        del between
    others = [memory.from_numpy(np.full(COUNT, -1, np.float32)) for _ in range(8)]
    graph.replay()
    np.testing.assert_array_equal(out.numpy(), np.full(COUNT, 7, np.float32))
    for other in others:
        np.testing.assert_array_equal(other.numpy(), np.full(COUNT, -1, np.float32))


def test_what_a_recording_refuses_leaves_it_whole() -> None:
    x, y, out = _loaded()
    with capture() as graph:
        with pytest.raises(LaunchError, match="would break the capture"):
            out.numpy()
        with pytest.raises(LaunchError, match="would break the capture"):
            graph.stream.synchronize()
        with pytest.raises(LaunchError, match="preload"):
            vecadd[1](x, y, out, COUNT, BLOCK=16)  # was never launched
        vecadd[GRID](x, y, out, COUNT, BLOCK=1024)
    x.copy_from(np.full(COUNT, 5, np.float32))
    graph.replay()
    np.testing.assert_array_equal(out.numpy(), np.full(COUNT, 7, np.float32))
    y.free()
    with pytest.raises(ArgumentError, match="was freed"):
        graph.replay()


def test_an_exception_in_a_recording_leaves_the_device_usable() -> None:
    x, y, out = _loaded()
    with suppress(KeyError), capture() as graph:
        vecadd[GRID](x, y, out, COUNT, BLOCK=1024)
        raise KeyError
    with pytest.raises(LaunchError):
        graph.replay()
    with capture() as second:
        vecadd[GRID](y, y, out, COUNT, BLOCK=1024)
    second.replay()
    np.testing.assert_array_equal(out.numpy(), np.full(COUNT, 4, np.float32))


def test_running_out_of_memory_is_told_and_survived() -> None:
    with pytest.raises(OutOfMemoryError, match="bytes were asked for") as caught:
        memory.empty(1 << 48, int8)
    assert caught.value.requested_bytes == 1 << 48
    assert caught.value.statistics["cached_bytes"] == 0
    assert memory.zeros(16, float32).numpy().sum() == 0


def test_streams_with_priorities_wait_for_each_other() -> None:
    x, y, _ = _loaded()
    with stream.Stream(priority=-1) as first, stream.Stream() as then:
        between = memory.empty(COUNT, float32, stream=first)
        out = memory.empty(COUNT, float32, stream=then)
        for _ in range(10):
            vecadd[GRID](x, y, between, COUNT, BLOCK=1024, stream=first)
            then.wait(first)
            vecadd[GRID](between, y, out, COUNT, BLOCK=1024, stream=then)
            event = then.record()
            first.wait(event)
        np.testing.assert_array_equal(out.numpy(), np.full(COUNT, 5, np.float32))
        assert event.is_done()
        assert then.is_done()


def test_sixteen_threads_launch_on_streams_of_their_own() -> None:
    x, y, _ = _loaded()
    wrong: list[float] = []

    def work(index: int) -> None:
        with stream.Stream() as own:
            out = memory.empty(COUNT, float32, stream=own)
            scale = memory.from_numpy(np.full(COUNT, index, np.float32), stream=own)
            for _ in range(50):
                vecadd[GRID](x, scale, out, COUNT, BLOCK=1024, stream=own)
                vecadd[GRID](out, y, out, COUNT, BLOCK=1024, stream=own)
            wrong.append(float(np.abs(out.numpy() - (index + 3)).max()))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0.0] * 16


def test_a_hundred_thousand_launches_leave_memory_flat() -> None:
    x, y, out = _loaded()
    page = os.sysconf("SC_PAGE_SIZE")

    def held() -> int:
        stream.synchronize()
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    for _ in range(5000):
        vecadd[1](x, y, out, 64, BLOCK=1024)
    before = held()
    for _ in range(100_000):
        vecadd[1](x, y, out, 64, BLOCK=1024)
    assert held() - before < 8 << 20


def test_a_forked_child_gets_a_typed_error(tmp_path: Path) -> None:
    done = run_program(
        """
import os, sys, warnings
warnings.simplefilter("ignore")      # Python itself warns of a fork with threads, which CUDA has
from tilewright import errors
from tilewright.abi.dtypes import float32
from tilewright.runtime import memory, stream
array, own = memory.zeros(64, float32), stream.Stream()
child = os.fork()
if child == 0:
    status = 1
    try:
        memory.empty(64, float32)
    except errors.DriverError as error:
        status = 0 if "does not survive a fork" in str(error) else 2
    del array, own
    os._exit(status)
print(os.waitpid(child, 0)[1], array.numpy().sum())
""",
        tmp_path,
    )
    assert done.code == 0, done.errors
    assert done.output.split() == ["0", "0.0"]


def test_torch_tensors_go_to_torchs_current_stream(torch: ModuleType) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(COUNT, device="cuda")
    out = torch.empty_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(50):
            x += 1
            vecadd[GRID](x, x, out, COUNT, BLOCK=1024)
            x += 1
    side.synchronize()
    assert torch.equal(out, torch.full_like(out, 200))
    ours = stream.Stream.external(side)
    assert ours.handle == side.cuda_stream
    assert ours.is_done()


def test_operations_on_torch_tensors_go_to_torchs_current_stream(torch: ModuleType) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(COUNT, device="cuda")
    out = torch.empty_like(x)
    elementwise.add(x, x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(50):
            x += 1
            elementwise.add(x, x, out=out)
            total = elementwise.add(x, x)
            assert isinstance(total, memory.DeviceArray)
            assert total.stream_handle == side.cuda_stream
            x += 1
        result = torch.from_dlpack(total)
        assert torch.equal(result, torch.full_like(out, 200))
    side.synchronize()
    assert torch.equal(out, torch.full_like(out, 200))
    assert isinstance(total, memory.DeviceArray)
    np.testing.assert_array_equal(total.numpy(), np.full(COUNT, 200, np.float32))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_torch_tensors_of_every_width_and_offset_are_read_right(
    torch: ModuleType, name: str
) -> None:
    x = torch.arange(256, device="cuda").to(getattr(torch, name))
    out = torch.zeros_like(x)
    elementwise.add(x[3:131], x[5:133], out=out[1:129])
    assert torch.equal(out[1:129], x[3:131] + x[5:133])
    assert out[0] == 0
    assert not out[129:].any()
    rows = x.view(16, 16)
    turned = torch.from_dlpack(elementwise.add(rows.T, rows[:, :1]))
    assert torch.equal(turned, rows.T + rows[:, :1])


def test_parameters_are_launched_on_and_tensors_with_lazy_values_are_not(
    torch: ModuleType,
) -> None:
    x = torch.nn.Parameter(torch.arange(1024.0, device="cuda"))
    out = torch.zeros(1024, device="cuda")
    vecadd[1](x, x, out, 1024, BLOCK=1024)
    assert torch.equal(out, 2 * x)
    imaginary = torch.zeros(4, dtype=torch.complex64, device="cuda").conj().imag
    sparse = torch.eye(4, device="cuda").to_sparse()
    for tensor, word in (
        (x, "requires a gradient"),
        (imaginary, "conjugates or negatives"),
        (sparse, "layout torch.sparse_coo"),
        (out.cpu(), "not on a CUDA device"),
        (out.to(torch.complex64), "torch.complex64"),
    ):
        with pytest.raises(ArgumentError, match=word):
            memory.as_device_array(tensor)


def test_torch_captures_our_launches(torch: ModuleType) -> None:
    x = torch.ones(COUNT, device="cuda")
    out = torch.zeros_like(x)
    vecadd[GRID](x, x, out, COUNT, BLOCK=1024)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 3
        vecadd[GRID](x, y, out, COUNT, BLOCK=1024)
        with pytest.raises(LaunchError, match="preload"):
            vecadd[1](x, y, out, COUNT, BLOCK=8)  # was never launched
        z = out * 2
    for value in range(1, 5):
        x.fill_(value)
        graph.replay()
        assert torch.equal(z, torch.full_like(z, 8 * value))


def test_graphs_of_torchs_that_are_gone_leave_no_memory(torch: ModuleType) -> None:
    x = torch.ones(COUNT, device="cuda")
    elementwise.add(x, x)
    size = 4 * COUNT
    before = memory.memory_statistics().live_bytes
    for value in range(1, 41):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            twice = elementwise.add(x, x)
            # With a tensor of torch's the launch goes to the stream that torch captures.
            result = torch.from_dlpack(elementwise.add(x, twice))
        x.fill_(value)
        graph.replay()
        assert torch.equal(result, torch.full_like(x, 3 * value))
        del graph, twice, result
        torch.cuda.synchronize()
    # The driver tells of a graph's end when it comes to it.
    assert memory.memory_statistics().live_bytes - before <= 10 * size


def test_our_graphs_hold_launches_on_torch_tensors(torch: ModuleType) -> None:
    x = torch.ones(COUNT, device="cuda")
    out = torch.zeros_like(x)
    vecadd[GRID](x, x, out, COUNT, BLOCK=1024)
    with capture() as graph:
        vecadd[GRID](x, x, out, COUNT, BLOCK=1024)
        vecadd[GRID](out, x, out, COUNT, BLOCK=1024)
    current = torch.cuda.current_stream()
    for value in range(1, 5):
        x.fill_(value)
        graph.replay(stream=current)
        assert torch.equal(out, torch.full_like(out, 3 * value))
