"""Device arrays: geometry, copies, the pool, and running out of memory."""

from __future__ import annotations

from helpers.launches import Run


def test_arrays_go_to_the_device_and_back(run: Run) -> None:
    run("""
for dtype in (np.float32, np.float16, np.int8, np.uint64, np.bool_, ml_dtypes.bfloat16,
              ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    for shape in ((), (1,), (0,), (3, 0, 2), (5, 7), (2, 3, 4)):
        host = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 100).astype(dtype)
        array = memory.from_numpy(host)
        assert array.shape == shape and array.numpy().dtype == host.dtype
        np.testing.assert_array_equal(array.numpy(), host)
transposed = np.arange(12.0).reshape(3, 4).T
np.testing.assert_array_equal(memory.from_numpy(transposed).numpy(), transposed)
assert memory.zeros((3, 4), dtypes.int32).numpy().sum() == 0
""")


def test_views_are_numpy_views(run: Run) -> None:
    done = run("""
host = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
array = memory.from_numpy(host)
slices = [np.s_[1], np.s_[-1], np.s_[1:3], np.s_[:, 2], np.s_[:], np.s_[::2, 1:, 3],
          np.s_[2:, 4, ::3], np.s_[4:], np.s_[3, 4, 5], np.s_[:, :, 5:2]]
for s in slices:
    np.testing.assert_array_equal(array[s].numpy(), host[s], err_msg=str(s))
inner = array[1:][:, 1:]
np.testing.assert_array_equal(inner[1, ::2].numpy(), host[1:][:, 1:][1, ::2])
row = array[2, 3]
np.testing.assert_array_equal(row.view((4, 6), (0, 1)).numpy(), np.broadcast_to(host[2, 3], (4, 6)))
refused(IndexError, lambda: array[4])
refused(IndexError, lambda: array[-5])
refused(IndexError, lambda: array[0, 0, 0, 0])
refused(errors.ArgumentError, lambda: array[::-1])
refused(errors.ArgumentError, lambda: array.view((121,)))
refused(errors.ArgumentError, lambda: row.view((7,)))
refused(errors.ArgumentError, lambda: array.view((2,), (-1,), offset=1))
refused(errors.ArgumentError, lambda: array.view((2,), (1, 1)))
refused(errors.ArgumentError, lambda: memory.empty((-1,), dtypes.float32))
refused(errors.ArgumentError, lambda: memory.empty((2.5,), dtypes.float32))
refused(errors.ArgumentError, lambda: memory.empty("ab", dtypes.float32))
refused(errors.ArgumentError, lambda: memory.zeros(3, "f32"))
refused(errors.ArgumentError, lambda: memory.from_numpy([1, 2]))
refused(errors.ArgumentError, lambda: array[1:].copy_from(host))
refused(errors.ArgumentError, lambda: array[:, 1].copy_from(host[:, 1]))
print(len(array), array[1, 2].shape, repr(array))
""")
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["IndexError"] * 3
    assert [line.split()[0] for line in lines[3:-1]] == ["ArgumentError"] * 12
    assert lines[-1] == "4 (6,) DeviceArray(shape=(4, 5, 6), dtype=i32, device=0)"


def test_the_interface_says_what_the_array_is(run: Run) -> None:
    run("""
array = memory.empty((3, 4), dtypes.float16)
interface = array.__cuda_array_interface__
assert interface["shape"] == (3, 4) and interface["strides"] is None
assert interface["typestr"] == "<f2"
assert interface["data"] == (array.address, False) and interface["version"] == 3
assert interface["stream"] == 1
assert array[:, 1].__cuda_array_interface__["strides"] == (8,)
def foreign(array):
    return type("Foreign", (), {"__cuda_array_interface__": array.__cuda_array_interface__})()
view = memory.as_device_array(foreign(array[:, ::2]))
assert (view.shape, view.strides, view.dtype) == ((3, 2), (4, 2), dtypes.float16)
for dtype in (dtypes.bfloat16, dtypes.float8e4nv, dtypes.float8e5):
    assert memory.as_device_array(foreign(memory.empty(4, dtype))).dtype == dtype
""")


def test_every_dtype_goes_through_dlpack(run: Run) -> None:
    run("""
class Foreign:
    def __init__(self, array):
        self.array = array
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__(stream=stream)
for dtype in dtypes.ALL:
    array = memory.empty((3, 4), dtype)
    view = memory.as_device_array(Foreign(array))
    assert (view.dtype, view.shape, view.address) == (dtype, (3, 4), array.address)
""")


def test_what_is_no_device_array_is_refused_by_name(run: Run) -> None:
    done = run("""
for value in (None, 3, "abc", np.zeros(3)):
    refused(errors.ArgumentError, lambda: memory.as_device_array(value, name="weights"))
""")
    assert done.output.count("ArgumentError weights is") == 4


def test_freed_memory_is_reused_by_size_class_and_counted(run: Run) -> None:
    done = run("""
a = memory.empty(1000, dtypes.float32)
address = a.address
view = a[10:]
del a
b = memory.empty(1000, dtypes.float32)
assert b.address != address          # the view still holds it
del view
c = memory.empty(1020, dtypes.float32)
assert c.address == address          # the same class of 4096 bytes
print(*native.pool_statistics(0).values())
c.free()
assert c.is_freed
print(native.pool_trim(0), *native.pool_statistics(0).values())
refused(errors.ArgumentError, lambda: c.address)
native.pool_set_limit(0, 0)
del b
print(native.pool_statistics(0)["cached_bytes"])
""")
    lines = done.output.splitlines()
    # live, peak, cached, allocations, reuses, from the driver, to the driver
    assert lines[0] == "8192 8192 0 3 1 2 0"
    assert lines[1] == "4096 4096 8192 0 3 1 2 1"
    assert lines[2].startswith("ArgumentError")
    assert lines[3] == "0"
    assert len(done.lines("cuMemFreeAsync")) == 2


def test_a_device_without_pools_allocates_plainly(run: Run) -> None:
    done = run(
        """
native.pool_set_limit(0, 0)
memory.empty(1000, dtypes.float32)
""",
        FAKE_CUDA_NO_POOLS="1",
    )
    assert len(done.lines("cuMemAlloc ")) == 1
    assert len(done.lines("cuMemFree ")) == 1


def test_cached_memory_is_given_back_before_memory_runs_out(run: Run) -> None:
    done = run(
        """
native.pool_set_limit(0, 1 << 40)
for size in (100_000, 120_000, 150_000):
    memory.empty(size, dtypes.int8)
held = memory.empty(900_000, dtypes.int8)
try:
    memory.empty(500_000, dtypes.int8)
except errors.OutOfMemoryError as error:
    assert isinstance(error, MemoryError) and isinstance(error, errors.DriverError)
    assert (error.device, error.requested_bytes, error.call) == (0, 500_000, "cuMemAllocAsync")
    assert memory.MemoryStatistics(**error.statistics) == memory.memory_statistics()
    print(error.code, error)
print(memory.empty(1000, dtypes.int8).size)
""",
        FAKE_CUDA_MEMORY="1000000",
    )
    first, second = done.output.splitlines()
    assert first.startswith("2 out of memory on device 0: 500000 bytes were asked for")
    assert "82496 of 1000000 are free" in first
    assert "917504 bytes in live buffers" in first
    assert "0 bytes in its free list" in first
    assert second == "1000"
    assert len(done.lines("cuMemFreeAsync")) == 3


def test_zero_sized_arrays_take_nothing(run: Run) -> None:
    done = run("""
a = memory.empty((0, 5), dtypes.float32)
print(a.address, a.numpy().shape, native.pool_statistics(0)["allocations"])
add[1](a, a, a, 0, BLOCK=64)
""")
    assert done.output.strip() == "0 (0, 5) 0"
    assert len(done.lines("launch")) == 1


def test_without_a_driver_errors_are_typed_and_quick(run: Run) -> None:
    done = run(
        """
import time
for _ in range(3):
    refused(errors.NoDriverError, lambda: memory.empty(4, dtypes.float32))
refused(errors.NoDriverError, lambda: stream.Stream())
from tilewright.runtime import driver
refused(errors.NoDriverError, lambda: driver.device_name(0))
assert "cuda" not in sys.modules
""",
        LD_LIBRARY_PATH="",
    )
    assert done.output.count("no CUDA driver on this machine") == 5


def test_a_driver_without_devices_is_no_driver(run: Run) -> None:
    done = run(
        "refused(errors.NoDriverError, lambda: memory.empty(4, dtypes.float32))",
        FAKE_CUDA_DEVICES="none",
    )
    assert "it sees no device" in done.output


def test_statistics_tell_what_is_held_and_trimming_gives_it_back(run: Run) -> None:
    done = run("""
a = memory.empty(1000, dtypes.float32)
b = memory.empty(1000, dtypes.float32)
del b
print(memory.memory_statistics())
print(memory.trim_memory(keep_bytes=4096), memory.trim_memory(), memory.trim_memory())
print(memory.memory_statistics().cached_bytes, memory.memory_statistics().driver_frees)
refused(errors.ArgumentError, lambda: memory.trim_memory(keep_bytes=-1))
refused(errors.ArgumentError, lambda: memory.memory_statistics(1000))
refused(errors.ArgumentError, lambda: memory.trim_memory(3))
""")
    lines = done.output.splitlines()
    assert lines[0] == (
        "MemoryStatistics(live_bytes=4096, peak_bytes=8192, cached_bytes=4096, allocations=2, "
        "reuses=0, driver_allocations=2, driver_frees=0)"
    )
    assert lines[1:3] == ["0 4096 0", "0 1"]
    assert [line.split()[0] for line in lines[3:]] == ["ArgumentError"] * 3


def test_running_out_again_and_again_loses_nothing(run: Run) -> None:
    done = run(
        """
held = memory.empty(900_000, dtypes.int8)
for _ in range(3):
    refused(errors.OutOfMemoryError, lambda: memory.zeros(200_000, dtypes.float32))
held.free()
print(memory.zeros(200_000, dtypes.float32).size, memory.memory_statistics().live_bytes)
""",
        FAKE_CUDA_MEMORY="1000000",
    )
    assert done.output.count("OutOfMemoryError") == 3
    assert done.output.splitlines()[-1] == "200000 0"
