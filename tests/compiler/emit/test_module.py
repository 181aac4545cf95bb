"""The emitted text as a whole: parameters, determinism, refusals."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.schedule.plan import schedule_module

_KERNEL = """signature (x:*f32:16, flag:i1, h:f16, b:i8, n:i64:s, out:*f32) fast \
num_warps=4 num_stages=3

kernel @many(%x: ptr<f32>, %flag: i1, %h: f16, %b: i8, %n: i64, %out: ptr<f32>) {
  %range = arange {start = 0, end = 256} : tile<256xi32>
  %xs = splat %x : tile<256xptr<f32>>
  %xp = addptr %xs, %range : tile<256xptr<f32>>
  %v = load %xp {cache = "", eviction = ""} : tile<256xf32>
  %hf = cast %h : f32
  %hs = splat %hf : tile<256xf32>
  %scaled = mul %v, %hs : tile<256xf32>
  %total = reduce %scaled {axis = 0, kind = "sum"} : f32
  %bf = cast %b : f32
  %sum = add %total, %bf : f32
  %chosen = select %flag, %sum, %bf : f32
  %p = addptr %out, %n : ptr<f32>
  store %p, %chosen {cache = "", eviction = ""}
  return
}
"""


def test_parameters_carry_no_promise_about_aliasing() -> None:
    mlir = emit_module(schedule_module(parse_module(_KERNEL)))
    assert "noalias" not in mlir.text
    assert "readonly" not in mlir.text
    # Nor may LLVM find one: .nc loads would read stale data in a launch in place.
    assert "ld.global.nc" not in lower_to_ptx(mlir).text


def test_text_says_what_the_launch_needs() -> None:
    mlir = emit_module(schedule_module(parse_module(_KERNEL)))
    assert (mlir.entry, mlir.num_threads, mlir.writes) == ("many", 128, ("out",))
    assert mlir.shared_bytes == 16
    ptx = lower_to_ptx(mlir).text
    assert ".reqntid 128" in ptx
    assert ".extern .shared" in ptx
    types = [line.split()[1] for line in ptx.splitlines() if line.startswith("\t.param")]
    assert types == [".u64", ".u8", ".u16", ".u8", ".u64", ".u64"]


def test_text_is_the_same_in_every_process() -> None:
    program = (
        "import hashlib; from tilewright_compiler.ir.parser import parse_module; "
        "from tilewright_compiler.schedule.plan import schedule_module; "
        "from tilewright_compiler.emit.module import emit_module; import sys; "
        "text = emit_module(schedule_module(parse_module(sys.stdin.read()))).text; "
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    here = emit_module(schedule_module(parse_module(_KERNEL))).text
    digests = {hashlib.sha256(here.encode()).hexdigest()}
    path = ":".join(str(entry) for entry in map(Path, sys.path) if entry.is_dir())
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=_KERNEL,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_tile_without_layout_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="has no layout"):
        emit_module(parse_module(_KERNEL))


def test_unknown_operation_is_refused() -> None:
    module = schedule_module(parse_module(_KERNEL))
    module.kernel.body.operations[0].name = "frobnicate"
    with pytest.raises(InternalCompilerError, match="frobnicate has no emitter"):
        emit_module(module)
