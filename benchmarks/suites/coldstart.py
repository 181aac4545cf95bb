"""Suite `coldstart`: a fresh process to its first checked result, ours against torch with Triton.

Every round starts new processes and interleaves the contenders. The clock is the system's wall
clock, read by the parent before it starts the child and by the child where the program says `MARK`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.record import Row

import tilewright

ROUNDS = 7

_VECADD = """
import numpy as np
import tilewright as tw
import tilewright.language as tl
from pathlib import Path
import importlib.util, sys
spec = importlib.util.spec_from_file_location("vecadd_example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
x, y = np.random.default_rng(0).standard_normal((2, 4096)).astype(np.float32)
dx, dy = tw.from_numpy(x), tw.from_numpy(y)
out = tw.empty((4096,), tl.float32)
example.vecadd[(4,)](dx, dy, out, 4096, BLOCK=1024)
assert np.array_equal(out.numpy(), x + y)
mark("first_result")
"""

_IMPORT = """
start = time.perf_counter()
import tilewright
import tilewright.language
report("import", time.perf_counter() - start)
"""

_FIRST_LOAD = """
import numpy as np
import tilewright as tw
from tilewright.tensor import elementwise, rows
x = tw.from_numpy(np.random.default_rng(0).standard_normal((64, 1000)).astype(np.float32))
out = tw.empty((64, 1000), tw.language.float32)
elementwise.exp(x, out=out)
tw.synchronize()
def first_and_second(call):
    times = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        tw.synchronize()
        times.append(time.perf_counter() - start)
    return times
first, second = first_and_second(lambda: rows.softmax(x, out=out))
report("first_load", (first - second) * 1e3)
"""

_TRITON = """
import torch
import triton
sys.path.insert(0, sys.argv[2])
from benchmarks.baselines.triton_vecadd import launcher
x, y = torch.randn(2, 4096, device="cuda")
out = torch.empty_like(x)
launcher(x, y, out)()
assert torch.equal(out, x + y)
mark("first_result")
"""

_TORCH_IMPORT = """
start = time.perf_counter()
import torch
report("import", time.perf_counter() - start)
"""

_PRELUDE = """
import json, sys, time
def report(name, value):
    print(json.dumps([name, value]), flush=True)
def mark(name):
    report(name, time.time())
"""

PROGRAMS: dict[str, dict[str, str]] = {
    "first_result": {"ours": _VECADD, "triton": _TRITON},
    "import": {"ours": _IMPORT, "torch.eager": _TORCH_IMPORT},
    "first_load": {"ours": _FIRST_LOAD},
}
UNITS = {"first_result": "s", "import": "s", "first_load": "ms"}


def measure() -> tuple[list[Row], dict[str, str]]:
    """Time every program over interleaved rounds; a program checks its own result."""
    rows = []
    for case, contenders in PROGRAMS.items():
        figures: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, program in contenders.items():
                figures[name].append(_run(case, program))
        ours = figures["ours"]
        baselines = {name: median(values) for name, values in figures.items() if name != "ours"}
        ratios = {
            name: median(t / o for t, o in zip(figures[name], ours, strict=True))
            for name in baselines
        }
        rows.append(
            Row(
                case=f"{case}/vecadd/4096/-/-" if case == "first_result" else f"{case}/-/-/-/-",
                unit=UNITS[case],
                better="lower",
                ours=median(ours),
                spread=(min(ours), max(ours)),
                checked=True,
                baselines=baselines,
                ratios=ratios,
            )
        )
    return rows, {"tilewright": tilewright.__version__, "python": sys.version.split()[0]}


def _run(case: str, program: str) -> float:
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(_PRELUDE + program)
        command = [sys.executable, str(script), str(root / "examples" / "vecadd.py"), str(root)]
        environment = {**os.environ, "TILEWRIGHT_JIT": "off"}
        start = time.time()
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=folder, env=environment
        )
    name, value = json.loads(done.stdout.splitlines()[-1])
    if name != case:
        msg = f"program reported {name}, expected {case}"
        raise RuntimeError(msg)
    return float(value) - start if case == "first_result" else float(value)
