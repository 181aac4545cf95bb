"""The bench that is a GPU, on a made-up driver whose clock moves by one with each event."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.bundles import write_bundle
from helpers.launches import run_sample, write_sample_bundle
from tilewright import __version__
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.abi.tuned import Choice
from tilewright.language.kernel import Kernel
from tilewright_release.tuning import candidates
from tilewright_release.tuning.candidates import Candidate
from tilewright_release.tuning.compilation import plan_points
from tilewright_release.tuning.plan import FILE_NAME, Plan, PlannedPoint
from tilewright_release.tuning.points import parse_point
from tilewright_release.tuning.tables import read_tuned

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


_TIME = """
from tilewright.cli.main import main
from tilewright_release.tuning.points import ProductPoint
ProductPoint.problem = lambda *_: ""  # the driver computes nothing
raise SystemExit(main(["tune", "time", {folder!r}, "--out", {out!r}]))
"""


def test_a_folder_of_candidates_is_timed_without_the_compiler(tmp_path: Path) -> None:
    point = parse_point("matmul bf16 64x64x64 kk")
    with pytest.MonkeyPatch.context() as patch:
        tiles = Choice("blocks", (64, 64, 64, 4, 3))
        patch.setattr(f"{candidates.__name__}._other_products", lambda *_: iter([tiles]))
        ((_, found),) = plan_points([point], target=Target(9, 0, "a"), declared_only=False).items()
    assert Candidate(tiles, is_declared=False) in found
    kernels: dict[Kernel, list[KernelSignature]] = {}
    for launches in found.values():
        for kernel, signature in launches:
            kernels.setdefault(kernel, []).append(signature)
    write_bundle(tmp_path / "folder", kernels)
    plan = Plan("sm_90a", __version__, "", (PlannedPoint(point, tuple(found)),))
    (tmp_path / "folder" / FILE_NAME).write_text(plan.to_json())
    program = _TIME.format(folder=str(tmp_path / "folder"), out=str(tmp_path / "out"))
    empty = tmp_path / "empty"
    write_bundle(empty, {})
    done = run_sample(program, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(empty))
    assert "refused" not in done.output
    assert "tune: 1 of 1 points are done" in done.output
    (table,) = read_tuned(tmp_path / "out")
    assert (table.device, table.gpu) == ("90-132", "Fake GPU 9.0")
    assert [line.sizes for line in table.lines] == [(1, 64, 64, 64)]
    # The usual one and every candidate, once to warm up and five times for their times.
    assert len(done.lines("graph")) == 6 * (1 + len(found))
