"""Launches on a real device by kernels that the wheel has: results, streams, events, memory."""

from __future__ import annotations

import numpy as np
import pytest

from examples.vecadd import vecadd
from helpers.gpu import requires_gpu
from tilewright.abi.dtypes import float32
from tilewright.errors import LaunchError, ResolveError
from tilewright.runtime import driver, launch, memory, stream
from tilewright.runtime.launcher import native
from tilewright.tensor import elementwise

pytestmark = requires_gpu()


@pytest.mark.parametrize("count", [1, 63, 64, 1000, 100_003])
def test_results_are_right(count: int) -> None:
    random = np.random.default_rng(count)
    x, y = random.normal(size=(2, count)).astype(np.float32)
    out = memory.empty(count, float32)
    vecadd[lambda a: -(-a["n"] // a["BLOCK"])](
        memory.from_numpy(x), memory.from_numpy(y), out, count, BLOCK=1024
    )
    np.testing.assert_array_equal(out.numpy(), x + y)


def test_unaligned_arrays_take_the_general_kernel() -> None:
    host = np.arange(1000, dtype=np.float32)
    array, out = memory.from_numpy(host), memory.zeros(1000, float32)
    vecadd[1](array[3:], array[1:], out[7:], 900, BLOCK=1024)
    np.testing.assert_array_equal(out.numpy()[7:907], host[3:903] + host[1:901])
    assert not out.numpy()[907:].any()


def test_strided_arrays_are_walked_as_they_lie() -> None:
    host = np.arange(64 * 70, dtype=np.float32).reshape(64, 70)
    array = memory.from_numpy(host)[:, 3::2]
    out = elementwise.add(array, array)
    assert isinstance(out, memory.DeviceArray)
    np.testing.assert_array_equal(out.numpy(), 2 * host[:, 3::2])


def test_work_on_a_stream_is_ordered_with_arrays_of_the_legacy_stream() -> None:
    count = 1 << 22
    x = memory.from_numpy(np.ones(count, np.float32))
    with stream.Stream() as own:
        out = memory.empty(count, float32)
        for _ in range(20):
            vecadd[count // 1024](x, x, out, count, BLOCK=1024, stream=own)
            vecadd[count // 1024](out, x, out, count, BLOCK=1024)
        np.testing.assert_array_equal(out.numpy(), np.full(count, 3, np.float32))


@pytest.mark.parametrize("count", [1000, 100_003, 1 << 22])
def test_each_kernel_sees_what_the_one_before_wrote(count: int) -> None:
    """Launches may begin while the kernel before them ends, and then wait for it."""
    one = memory.from_numpy(np.ones(count, np.float32))
    left, right = memory.zeros(count, float32), memory.zeros(count, float32)
    programs = -(-count // 1024)
    for _ in range(500):
        vecadd[programs](left, one, right, count, BLOCK=1024)
        vecadd[programs](right, one, left, count, BLOCK=1024)
    np.testing.assert_array_equal(left.numpy(), np.full(count, 1000, np.float32))


def test_events_time_work() -> None:
    count = 1 << 24
    x = memory.zeros(count, float32)
    out = memory.empty(count, float32)
    vecadd[count // 1024](x, x, out, count, BLOCK=1024)
    first, last = stream.Event(), stream.Event()
    first.record()
    for _ in range(10):
        vecadd[count // 1024](x, x, out, count, BLOCK=1024)
    last.record()
    last.synchronize()
    # 2 GB in all, which no device moves in 0.1 ms and every device in 1 s.
    assert 0.1 < first.elapsed_ms(last) < 1000


def test_memory_is_given_back() -> None:
    native.pool_trim(0)
    stream.synchronize()
    free_before, _ = driver.memory_info(0)
    for _ in range(100):
        memory.empty(1 << 20, float32)
    native.pool_trim(0)
    stream.synchronize()
    free_after, _ = driver.memory_info(0)
    assert free_before - free_after < 64 << 20


def test_a_refused_launch_leaves_the_device_usable() -> None:
    x = memory.zeros(64, float32)
    with pytest.raises(LaunchError, match="too large"):
        vecadd[2**31](x, x, x, 64, BLOCK=1024)
    with pytest.raises((LaunchError, ResolveError, TypeError)):
        vecadd[1](x, x, x, None, BLOCK=1024)
    vecadd[1](x, x, x, 64, BLOCK=1024)
    np.testing.assert_array_equal(x.numpy(), np.zeros(64))


def test_what_was_loaded_says_from_where() -> None:
    x = memory.zeros(64, float32)
    vecadd[1](x, x, x, 64, BLOCK=1024)
    loaded = next(iter(launch._loaded.values()))
    assert loaded.trace[-1].text == "loaded"
