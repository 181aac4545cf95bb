"""Launches through the C extension, seen from the driver: what is packed and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from helpers.fake_driver import Finished
from helpers.launches import Run
from helpers.sample_kernels import add


def _packed(line: str) -> bytes:
    return bytes.fromhex(line.partition("packed=")[2])


def test_pointers_and_integers_are_packed_in_order(run: Run) -> None:
    done = run("""
x, y, out = arrays()
add[(2, 3)](x, y, out, 77, BLOCK=64)
print(x.address, y.address, out.address)
""")
    (line,) = done.lines("launch")
    assert line.startswith("launch add grid=2,3,1 block=128 shared=0 stream=0 device=0")
    addresses = tuple(map(int, done.output.split()))
    assert _packed(line) == struct.pack("<QQQq", *addresses, 77)


def test_numpy_scalars_keep_their_dtype_and_fields_their_alignment(run: Run) -> None:
    done = run("""
(out,) = arrays(1)
mixed[1](out, np.int8(-3), np.float64(0.1), np.float16(1.5), ml_dtypes.bfloat16(-2.5), True,
         np.uint64(2**64 - 1))
print(out.address)
""")
    (line,) = done.lines("launch")
    # i8 at 8, f64 at 16, f16 at 24, bf16 at 26, i1 at 28, u64 at 32
    expected = struct.pack(
        "<Qb7xde2sB3xQ", int(done.output), -3, 0.1, 1.5, b"\x20\xc0", 1, 2**64 - 1
    )
    assert _packed(line) == expected


def test_a_python_float_is_f32_and_other_types_are_other_signatures(run: Run) -> None:
    done = run("""
(out,) = arrays(1)
bf16 = ml_dtypes.bfloat16(1)
call = lambda b: lambda: mixed[1](out, np.int8(1), b, np.float16(1), bf16, True, np.uint64(1))
refused(errors.ResolveError, call(0.5))
refused(errors.ResolveError, call(np.float32(0.5)))
call(np.float64(0.5))()
""")
    assert done.output.count("ResolveError") == 2
    assert len(done.lines("launch")) == 1


@pytest.mark.parametrize("code", [9, 10, 11, 12])
def test_scalars_round_as_numpy_rounds(code: int) -> None:
    import ml_dtypes
    import numpy as np

    from tilewright.runtime.launcher import native

    kind = {9: np.float16, 10: ml_dtypes.bfloat16, 11: np.float32, 12: np.float64}[code]
    random = np.random.default_rng(3)
    values = [0.0, -0.0, 1.0, 65504.0, 65520.0, 6e-8, 2.9e-8, 3.1e-8, float("inf"), -float("inf")]
    values += [float(v) for v in random.normal(size=300) * 10.0 ** random.integers(-9, 9, 300)]
    for value in values:
        # bf16 is reached through f32; scalars of that type are exact in it anyway.
        exact = np.float32(value) if code == 10 else np.float64(value)
        with np.errstate(over="ignore"):
            expected = int.from_bytes(np.array(exact).astype(kind).tobytes(), "little")
        assert native.scalar_bits(float(exact), code) == expected, value


def test_eight_bit_floats_come_in_arrays_and_not_as_scalars(run: Run) -> None:
    done = run("""
arrays8 = arrays(dtype=dtypes.float8e4nv)
refused(errors.ResolveError, lambda: add[1](*arrays8, 64, BLOCK=64))
call = lambda: add[1](*arrays(), ml_dtypes.float8_e4m3fn(1), BLOCK=64)
refused(errors.ArgumentError, call)
""")
    unknown, scalar = done.output.splitlines()
    assert unknown.startswith("ResolveError")
    assert scalar.startswith("ArgumentError")
    assert "float8_e4m3fn" in scalar


def test_nan_stays_nan_in_every_width(run: Run) -> None:
    done = run("""
(out,) = arrays(1)
nan = float("nan")
bf16 = ml_dtypes.bfloat16(nan)
mixed[1](out, np.int8(0), np.float64(nan), np.float16(nan), bf16, False, np.uint64(0))
""")
    packed = _packed(done.lines("launch")[0])
    (b, c) = struct.unpack("<16xde", packed[:26])
    bf16 = int.from_bytes(packed[26:28], "little")
    assert b != b
    assert c != c
    assert bf16 & 0x7F80 == 0x7F80
    assert bf16 & 0x7F


def test_each_kind_of_launch_is_resolved_once(run: Run) -> None:
    done = run("""
x, y, out = arrays()
hx, hy, hout = arrays(dtype=dtypes.float16)
d = add.launcher
for _ in range(3):
    add[1](x, y, out, 64, BLOCK=64)                  # fast
    add[1](x, y, out, 2**31, BLOCK=64)               # too large for fast
    add[1](x[1:], y, out, 64, BLOCK=64)              # unaligned
    add[1](x, y, out, np.int32(64), BLOCK=64)        # another integer
    add[1](x, y, out, 64, BLOCK=128)                 # another constexpr
    add[1](hx, hy, hout, 64, BLOCK=64)               # another dtype
    add[1](x, y, out, 64, BLOCK=np.int64(64))        # the same constexpr as int
print(d.misses, d.entries)
d.forget()
add[1](x, y, out, 64, BLOCK=64)
print(d.misses, d.entries)
""")
    assert done.output.split() == ["5", "5", "6", "1"]
    assert len(done.lines("launch")) == 22
    assert len(done.lines("cuLibraryLoadData")) == 5


def test_launcher_and_specialize_agree_on_every_fact(run: Run) -> None:
    # On each miss the runtime compares the launcher's bit with abi.signature.specialize and raises.
    done = run("""
import random
random.seed(5)
x, out = arrays(2, size=4096)
edge = [0, 1, 2, 15, 16, 17, -1, -16, 2**31 - 1, 2**31 - 16, 2**31, -2**31, -2**31 + 16, 2**40]
edge += [2**63 - 1, -2**63]
for _ in range(3000):
    strided.launcher.forget()
    start, unit = random.choice([0, 1, 2, 4, 8]), random.choice([0, 1, 2, 16])
    strided[1](x[start:], out, random.choice(edge), unit, BLOCK=64)
print(strided.launcher.misses)
""")
    assert done.output.strip() == "3000"


def test_equal_constexprs_of_different_types_are_different(run: Run) -> None:
    done = run("""
x, y, out = arrays()
for block in (64.0, True, "64", None, dtypes.float32):
    refused(errors.ResolveError, lambda: add[1](x, y, out, 64, BLOCK=block))
add[1](x, y, out, 64, BLOCK=64)
refused(errors.ArgumentError, lambda: add[1](x, y, out, 64, BLOCK=[64]))
refused(errors.ArgumentError, lambda: add[1](x, y, out, 64, BLOCK=x))
""")
    assert done.output.count("ResolveError") == 5
    assert done.output.count("is tl.constexpr, which is an int") == 2


def test_one_thread_block_a_program_may_be_said() -> None:
    x = np.arange(64, dtype=np.float32)
    out = np.zeros_like(x)
    add[1](x, x, out, 64, BLOCK=64, num_ctas=1)
    np.testing.assert_array_equal(out, 2 * x)


_WRONG_ARGUMENTS = (
    (
        "add[1](x, y, out, None, BLOCK=64)",
        "argument 'n' is None, which only a parameter annotated tl.constexpr takes",
    ),
    ("add[1](x, y, out, 'abc', BLOCK=64)", "argument 'n' is of <class 'str'>"),
    ("add[1](x, y, out, 1j, BLOCK=64)", "argument 'n' is of <class 'complex'>"),
    ("add[1](x, y, out, [1], BLOCK=64)", "argument 'n' is of <class 'list'>"),
    ("add[1](x, y, out, 2**63, BLOCK=64)", "which does not fit in i64"),
    ("add[1](x, y, out, -2**63 - 1, BLOCK=64)", "which does not fit in i64"),
    ("add[1](x, y, out, 10**400, BLOCK=64)", "which does not fit in i64"),
    ("add[1](x, y, out, BLOCK=64)", "argument 'n' is missing"),
    ("add[1](x, y, out, 64)", "argument 'BLOCK' is missing"),
    ("add[1](x, y, out, 64, 64, 64)", "takes 5 arguments, but 6 were given"),
    ("add[1](x, y, out, 64, BLOCK=64, blok=1)", "there is no argument 'blok'"),
    ("add[1](x, y, out, 64, BLOCK=64, num_ctas=2)", "num_ctas must be 1, not 2"),
    ("add[1](x, y, out, 64, x=x, BLOCK=64)", "argument 'x' was given twice"),
    ("add[1](x, y, out, 64, BLOCK=64, num_warps=3)", "num_warps must be a power of two"),
    ("add[1](x, y, out, 64, BLOCK=64, num_warps=0)", "num_warps must be a small positive"),
    ("add[1](x, y, out, 64, BLOCK=64, num_warps=True)", "num_warps must be a small positive"),
    ("add[1](x, y, out, 64, BLOCK=64, num_stages='3')", "num_stages must be a small positive"),
    ("add[1](x, y, out, 64, BLOCK=64, stream='s')", "is not a stream"),
    ("add[1](x, np.zeros(64), out, 64, BLOCK=64)", "'y' is on the host and 'x' is on device 0"),
    ("add[1](x, freed, out, 64, BLOCK=64)", "argument 'y' is a buffer that was freed"),
    ("add[1](x, freed[1:], out, 64, BLOCK=64)", "this buffer was freed"),
)


@pytest.fixture(scope="module")
def wrong_arguments(run: Run) -> Finished:
    """Run all wrong calls in one process, which also shows that each leaves the launcher usable."""
    calls = "".join(
        f"refused(errors.ArgumentError, lambda: {call})\n" for call, _ in _WRONG_ARGUMENTS
    )
    return run(f"""
x, y, out = arrays()
(freed,) = arrays(1)
freed.free()
freed.free()
{calls}""")


@pytest.mark.parametrize("case", range(len(_WRONG_ARGUMENTS)), ids=lambda i: _WRONG_ARGUMENTS[i][0])
def test_wrong_arguments_are_named(wrong_arguments: Finished, case: int) -> None:
    line = wrong_arguments.output.splitlines()[case]
    assert line.startswith("ArgumentError")
    assert _WRONG_ARGUMENTS[case][1] in line
    assert not wrong_arguments.lines("launch")


def test_an_empty_grid_is_nothing_to_do(run: Run) -> None:
    done = run("""
x, y, out = arrays()
for grid in (0, (0,), (4, 0, 2), lambda a: 0, np.int64(0)):
    add[grid](x, y, out, 64, BLOCK=64)
    refused(errors.ArgumentError, lambda: add[grid](x, y, out, "wrong", BLOCK=64))
print(out.version)
""")
    assert done.output.count("ArgumentError") == 5
    assert done.output.split()[-1] == "0"
    assert not done.lines("launch", "cuLibraryLoadData")


_WRONG_GRIDS = (
    ("-1", "a grid axis of -1 programs is impossible"),
    ("(1, -5)", "a grid axis of -5 programs is impossible"),
    ("2**31", "is too large"),
    ("2**70", "is impossible"),
    ("(1, 65536)", "is too large"),
    ("(1, 1, 65536)", "is too large"),
    ("()", "a grid has 1 to 3 axes, not 0"),
    ("(1, 1, 1, 1)", "a grid has 1 to 3 axes, not 4"),
    ("1.5", "the grid must be an int"),
    ("None", "the grid must be an int"),
    ("('a',)", "the grid must be an int"),
    ("lambda a: None", "the grid must be an int"),
)


def test_impossible_grids_are_refused(run: Run) -> None:
    done = run(
        "x, y, out = arrays()\n"
        + "".join(
            f"refused(errors.LaunchError, lambda: add[{grid}](x, y, out, 64, BLOCK=64))\n"
            for grid, _ in _WRONG_GRIDS
        )
    )
    for line, (grid, message) in zip(done.output.splitlines(), _WRONG_GRIDS, strict=True):
        assert line.startswith("LaunchError"), grid
        assert message in line, grid
    assert not done.lines("launch")


def test_a_grid_function_sees_all_arguments_by_name(run: Run) -> None:
    done = run("""
x, y, out = arrays()
def grid(arguments):
    assert list(arguments) == ["x", "y", "out", "n", "BLOCK"] and arguments["x"] is x
    return -(-arguments["n"] // arguments["BLOCK"]), np.int32(2)
add[grid](x, y, out=out, n=129, BLOCK=64)
add[[3, 4, 5]](x, y, out, 129, BLOCK=64)
""")
    assert [line.split()[2] for line in done.lines("launch")] == ["grid=3,2,1", "grid=3,4,5"]


def test_launches_count_versions_of_what_they_write(run: Run) -> None:
    done = run("""
x, y, out = arrays()
view = out[16:]
add[1](x, y, view, 64, BLOCK=64)
add[1](x, y, out, 64, BLOCK=64)
print(x.version, out.version, view.version)
""")
    assert done.output.split() == ["0", "2", "2"]


def test_numpy_arrays_run_in_the_interpreter_without_a_driver(run: Run) -> None:
    done = run("""
x = np.arange(100, dtype=np.float32)
out = np.zeros_like(x)
assert add[2](x, x, out, np.int32(100), BLOCK=64) is None
np.testing.assert_array_equal(out, 2 * x)
""")
    assert not done.log


def test_interpret_setting_runs_device_arrays_on_the_host(run: Run) -> None:
    done = run(
        """
x = np.arange(64, dtype=np.float32)
device = memory.from_numpy(x)
out = memory.zeros(64, dtypes.float32)
add[1](device, device, out, 64, BLOCK=64)
np.testing.assert_array_equal(out.numpy(), 2 * x)
""",
        TILEWRIGHT_INTERPRET="on",
    )
    assert not done.lines("launch", "cuLibraryLoadData")


def test_launch_trace_is_logged(run: Run) -> None:
    done = run(
        """
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
""",
        TILEWRIGHT_TRACE="launch,resolve",
    )
    assert "loaded prebuilt sm_90a" in done.errors
    assert "launch helpers.sample_kernels.add grid=1" in done.errors


def test_a_hundred_thousand_launches_take_no_memory(run: Run) -> None:
    done = run(
        """
import gc, resource
x, y, out = arrays()
def rounds(n):
    for i in range(n):
        add[lambda a: 1](x, y, out, i, BLOCK=64)
        memory.empty(1000, dtypes.float32)
        x[1:]
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
rounds(2000)
before = resident()
rounds(100_000)
print(resident() - before)
print(native.pool_statistics(0)["driver_allocations"], add.launcher.entries)
""",
        FAKE_CUDA_LOG="",
    )
    grown, allocations, entries = map(int, done.output.split())
    assert grown < 1 << 20
    assert allocations == 4
    assert entries == 1


def test_ever_new_constexprs_do_not_fill_memory(run: Run) -> None:
    done = run("""
from tilewright.runtime import launch
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
loaded = next(iter(launch._loaded.values()))
launch.loaded_kernel = lambda *ignored: loaded     # every constexpr gets the same code
for i in range(10_000):
    add[1](x, y, out, 64, BLOCK=float(i))
print(add.launcher.entries, add.launcher.misses)
""")
    entries, misses = map(int, done.output.split())
    assert entries <= 4096
    assert misses == 10_001


def test_threads_may_launch_one_kernel(run: Run) -> None:
    done = run("""
import threading
def work():
    x, y, out = arrays()
    for i in range(2000):
        add[1](x, y, out, i, BLOCK=64 if i % 3 else 128)
        if i % 100 == 0:
            add.launcher.forget()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(native.pool_statistics(0)["live_bytes"])
""")
    assert done.output.strip() == "0"
    assert len(done.lines("launch")) == 8000
    assert len(done.lines("cuLibraryLoadData")) == 2


def test_a_forked_child_gets_an_error_not_a_crash(run: Run) -> None:
    done = run("""
import os
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
sys.stdout.flush()
child = os.fork()
if child == 0:
    refused(errors.DriverError, lambda: add[1](x, y, out, 64, BLOCK=64))
    refused(errors.DriverError, lambda: memory.empty(4, dtypes.float32))
    del x, y, out
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
add[1](x, y, out, 64, BLOCK=64)
""")
    assert done.output.count("does not survive a fork") == 2
    assert len(done.lines("launch")) == 2


def test_a_fork_before_first_use_is_fine(run: Run) -> None:
    done = run("""
import os
child = os.fork()
if child == 0:
    x, y, out = arrays()
    add[1](x, y, out, 64, BLOCK=64)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")
    assert len(done.lines("launch")) == 1
