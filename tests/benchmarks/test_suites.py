"""What of the suites needs no GPU: shapes, the programs of fresh processes, the PTX kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.kernels import copy_tiles
from benchmarks.processes import PROGRAMS, run_program
from benchmarks.suites import coldstart
from benchmarks.suites import compile as compile_suite
from helpers.fake_driver import run_with_fake_driver
from tilewright.abi.target import Target
from tilewright_compiler.backend.ptxas import assemble

_ROOT = Path(coldstart.__file__).resolve().parents[2]
_NO_TORCH = (
    "import sys; sys.modules.update(torch=None, triton=None, numpy=None); "
    "import runpy; sys.argv = ['benchmarks', *sys.argv[1:]]; "
    "runpy.run_module('benchmarks', run_name='__main__', alter_sys=True)"
)


def _benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _NO_TORCH, *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_every_suite_without_torch() -> None:
    done = _benchmarks("run", "--help")
    assert done.returncode == 0, done.stderr
    for path in (_ROOT / "benchmarks" / "suites").glob("*.py"):
        assert path.stem.replace("_", "-") in done.stdout


def test_gate_and_table_run_without_torch(tmp_path: Path) -> None:
    gate = _benchmarks("gate", "--results", str(tmp_path))
    assert gate.returncode == 1, gate.stderr
    assert "FAIL  rowops.fraction_of_copy" in gate.stdout
    table = _benchmarks("table", "--results", str(tmp_path))
    assert (table.returncode, table.stdout) == (0, "")


def test_rowops_shapes_do_not_fit_the_cache() -> None:
    text = (_ROOT / "benchmarks" / "targets" / "rowops.toml").read_text()
    sizes = {"bf16": 2, "f32": 4}
    for kind, shapes in tomllib.loads(text).items():
        assert set(shapes) == set(sizes), kind
        for dtype, size_bytes in sizes.items():
            assert len({tuple(shape) for shape in shapes[dtype]}) == len(shapes[dtype]) > 0
            for rows, columns in shapes[dtype]:
                # At least one matrix is read and one written.
                assert 2 * rows * columns * size_bytes >= 2**28, (kind, dtype, rows, columns)


def test_every_program_is_run_by_a_case() -> None:
    named = {program for case in coldstart.CASES for program in case.programs.values()}
    named |= {program for program, *_ in compile_suite.programs("vecadd", "cold").values()}
    assert named == {path.name for path in PROGRAMS.glob("*.py")}
    assert all("ours" in case.programs for case in coldstart.CASES)


def test_a_program_gives_its_figure() -> None:
    assert 0 < run_program("import_time.py", from_start=False) < 60


def test_a_program_that_fails_stops_the_suite(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text("import sys; sys.exit('a wrong result')")
    with pytest.raises(RuntimeError, match="a wrong result"):
        run_program(str(program), from_start=True)


def test_time_counts_from_before_the_process(tmp_path: Path) -> None:
    program = tmp_path / "clock.py"
    program.write_text("import time; print('noise'); print(time.time())")
    assert 0 < run_program(str(program), from_start=True) < 60


@pytest.mark.parametrize("kernel", compile_suite.CASES)
def test_kernels_of_the_compile_suite_become_cubins(kernel: str) -> None:
    assert 0 < run_program("compile_ours.py", kernel, "cold", from_start=True) < 60
    assert 0 < run_program("compile_ours.py", kernel, "warm", from_start=False) < 60e3


@pytest.mark.parametrize("target", ["sm_90a", "sm_100f", "sm_120f"])
def test_the_kernel_written_by_hand_assembles(target: str) -> None:
    cubin = assemble(copy_tiles.CODE.decode(), Target.parse(target))
    assert cubin.entry == copy_tiles.ABI.entry
    assert (cubin.spill_bytes, cubin.warnings) == (0, ())
    assert copy_tiles.ABI.offsets() == (0, 128)


def test_two_tensor_maps_are_encoded_once_and_packed(tmp_path: Path) -> None:
    done = run_with_fake_driver(
        """
from benchmarks.kernels import copy_tiles
from tilewright import empty, errors
from tilewright.language import float32
from tilewright.runtime.launcher import native
x, out = empty((64, 96), float32), empty((64, 96), float32)
copy = copy_tiles.dispatcher()
for _ in range(3):
    copy((3, 2))(x, out, 64, 96)
try:
    copy((3, 2))(x, out, 64, 95)
except errors.LaunchError as error:
    print(error)
print(*native.tensor_map_statistics().values())
""",
        tmp_path,
        PYTHONPATH=os.pathsep.join((str(_ROOT), *filter(None, sys.path))),
    )
    refusal, statistics = done.output.splitlines()
    assert "columns % 4 == 0" in refusal
    # Launches that repeat their arguments do not even ask the cache.
    assert statistics == "0 2"
    encoded = "encode type=7 rank=2 swizzle=0 sizes=96/32/384,64/32/0,"
    assert done.lines("encode") == [encoded, encoded]
    launches = done.lines("launch")
    assert len(launches) == 3
    assert all("launch copy_tiles grid=3,2,1 block=32 shared=0" in line for line in launches)
    # Both maps, of 128 bytes, start at a multiple of 64 bytes, as the copy engine wants them.
    assert all(" at=0 " in line for line in launches)
    assert {len(bytes.fromhex(line.partition("packed=")[2])) for line in launches} == {256}


@pytest.mark.parametrize("program", ["first_result.py", "first_load.py"])
def test_a_program_notices_a_result_that_was_not_written(program: str, tmp_path: Path) -> None:
    # The fake driver runs no kernel, so the poison stays in the output: all of the program runs but
    # its last line.
    done = run_with_fake_driver(
        f"""
import runpy
try:
    runpy.run_path({str(PROGRAMS / program)!r}, run_name="__main__")
except SystemExit as refusal:
    print(refusal)
""",
        tmp_path,
    )
    assert done.output.endswith("gave a wrong result\n")
    assert len(done.lines("launch")) == (1 if program == "first_result.py" else 2)


def test_mma_shapes_have_operands_of_two_layouts_and_whole_groups() -> None:
    table = tomllib.loads((_ROOT / "benchmarks" / "targets" / "mma.toml").read_text())
    assert set(table) == {"matmul", "attention", "convolution"}
    assert [4096, 4096, 4096, "nn"] in table["matmul"]["bf16"]  # the gate reads this one
    for cases in table["matmul"].values():
        assert len({tuple(case) for case in cases}) == len(cases) > 0
        assert {layout for *_, layout in cases} <= {"nn", "nt", "tn", "tt"}
    for _, heads, shared, _, dim in table["attention"]["bf16"]:
        assert heads % shared == 0
        assert dim <= 256
    for case in table["convolution"]["bf16"]:
        assert len(case) == 6
