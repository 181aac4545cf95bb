"""The bench that is a GPU, on a made-up driver whose clock moves by one with each event."""

from __future__ import annotations

from pathlib import Path

from helpers.launches import run_sample, write_sample_bundle

_PROGRAM = """
from tilewright_release.tuning.device_bench import DeviceBench
bench = DeviceBench(0)
x, y, out = (bench.place(np.arange(64, dtype=np.float32)) for _ in range(3))
turned = bench.turned(bench.place(np.zeros((2, 3, 5), np.float32)))
print(turned.shape, turned.strides)
bench.clear(x)
print(bench.read(x).any(), bench.read(y).sum())
contenders = {}
for name in ("usual", "other"):
    def call():
        add[1](x, y, out, 64, BLOCK=64)
    call()
    contenders[name] = bench.record(call)
    print(contenders[name].calls)
times = bench.measure(contenders)
print({name: len(turns) for name, turns in times.items()}, min(min(t) for t in times.values()) > 0)
print(contenders["usual"].graph.is_ready)
"""


def test_calls_are_recorded_and_timed_in_turns(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    write_sample_bundle(bundle)
    done = run_sample(_PROGRAM, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.output.splitlines() == [
        "(2, 5, 3) (15, 1, 5)",
        "False 2016.0",
        "1",
        "1",
        "{'usual': 5, 'other': 5} True",
        "False",
    ]
    # Each is run once to warm up, then timed in five turns.
    assert len(done.lines("graph")) == 2 * 6
