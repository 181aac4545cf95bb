"""Launches of which all but the arrays and a scalar are known: as those with all arguments."""

from __future__ import annotations

from helpers.launches import Run

_PREPARED = """
from tilewright.runtime.launch import prepare
def prepared(**more):
    return prepare(add, (1, 1, 1), {"BLOCK": 64}, {"x": 0, "y": 1, "out": 2, "n": -1}, **more)
"""


def test_it_launches_what_a_call_with_all_arguments_does(run: Run) -> None:
    done = run(
        _PREPARED
        + """
x, y, out = arrays()
other = memory.empty(64, dtypes.float16)
launch_ = prepared()
for array, n in ((x, 64), (x, 7), (x[1:], 64), (memory.empty(64, dtypes.float16), 64), (x, 64)):
    three = [array, array, array]
    add[1](*three, n, BLOCK=64)
    launch_(three, (n,))
add.launcher.forget()
launch_([x, y, out], (64,))
print(add.launcher.misses)
"""
    )
    lines = done.lines("launch")
    assert lines[0:10:2] == lines[1:10:2]
    assert len(set(lines[:10])) == 4
    # Aligned f32, f32 that is not, f16; and once more what was forgotten.
    assert done.output.split() == ["4"]


def test_streams_versions_and_recordings_are_as_of_other_launches(run: Run) -> None:
    done = run(
        _PREPARED
        + """
from helpers.exchange import Exporter, offer
from tilewright.runtime.graph import capture
class First(Exporter): pass
offer(First, stream=96)
x, y, out = arrays()
launch_ = prepared()
launch_([x, y, out], (64,))
launch_([First(x), y, memory.as_device_array(First(out))], (64,))
print(out.version)
with capture() as graph:
    launch_([x, y, out], (64,))
graph.replay()
print(graph.nodes, out.version)
"""
    )
    assert [line.split()[5] for line in done.lines("launch")][:2] == ["stream=0", "stream=96"]
    assert done.output.split() == ["1", "1", "3"]


def test_wrong_arguments_are_refused_by_name(run: Run) -> None:
    done = run(
        _PREPARED
        + """
x, y, out = arrays()
launch_ = prepared()
freed = memory.empty(64, dtypes.float32)
freed.free()
refused(errors.ArgumentError, lambda: launch_([freed, y, out], (64,)))
refused(errors.ArgumentError, lambda: launch_([x, None, out], (64,)))
refused(errors.ArgumentError, lambda: launch_([x, np.zeros(64, np.float32), out], (64,)))
refused(IndexError, lambda: launch_([x, y], (64,)))
refused(TypeError, lambda: launch_((x, y, out), (64,)))
pointers = {"x": 0, "y": 1, "out": 2}
places = pointers | {"n": -1, "BLOCK": -2}
refused(errors.ArgumentError, lambda: prepare(add, (1, 1, 1), {}, places))
refused(errors.ArgumentError, lambda: prepare(add, (1, 1, 1), {"BLOCK": 64, "n": x}, pointers))
refused(errors.LaunchError, lambda: prepare(add, (-1, 1, 1), {"BLOCK": 64}, {"x": 0}))
refused(errors.ArgumentError, lambda: prepared(num_warps=0))
refused(errors.ArgumentError, lambda: prepared(num_warps=3)([x, y, out], (64,)))
"""
    )
    words = (
        "'x' is a buffer that was freed",
        "'y' is None, which only",
        "'y' is on the host and 'x' is on device 0",
        "list index out of range",
        "a list of arrays and a tuple of scalars",
        "'BLOCK' is a constexpr",
        "'n' is no scalar",
        "grid",
        "num_warps and num_stages are 1 or more",
        "num_warps must be a power of two",
    )
    for line, word in zip(done.output.splitlines(), words, strict=True):
        assert word in line
    assert not done.lines("launch")


def test_an_empty_grid_launches_nothing(run: Run) -> None:
    done = run(
        _PREPARED
        + """
x, y, out = arrays()
prepare(add, (0, 1, 1), {"BLOCK": 64}, {"x": 0, "y": 1, "out": 2, "n": -1})([x, y, out], (64,))
"""
    )
    assert not done.lines("launch")


def test_host_arrays_run_in_the_interpreter(run: Run) -> None:
    done = run(
        _PREPARED
        + """
x = np.arange(64, dtype=np.float32)
out = np.zeros_like(x)
prepared()([x, x, out], (60,))
print((out[:60] == 2 * x[:60]).all(), out[60:].any())
""",
        TILEWRIGHT_JIT="on",
    )
    assert done.output.split() == ["True", "False"]


def test_what_the_settings_ask_for_around_a_launch_holds(run: Run) -> None:
    program = (
        _PREPARED
        + """
x = memory.from_numpy(np.arange(64, dtype=np.float32))
out = memory.zeros(64, dtypes.float32)
prepared()([x, x, out], (64,))
print(out.numpy().sum())
"""
    )
    traced = run(program, TILEWRIGHT_TRACE="launch")
    assert "launch helpers.sample_kernels.add" in traced.errors
    assert len(traced.lines("launch")) == 1
    interpreted = run(program, TILEWRIGHT_INTERPRET="1", TILEWRIGHT_JIT="on")
    assert interpreted.output.split() == ["4032.0"]
    assert not interpreted.lines("launch")
