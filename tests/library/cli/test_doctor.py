"""`doctor` in full: every file, every family on every GPU here, and an exit code for each case."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.bundles import PACK, zero_blobs
from helpers.fake_driver import Finished, run_program, run_with_fake_driver
from helpers.launches import write_sample_bundle
from tilewright.abi.manifest import FILE_NAME
from tilewright.abi.pack import write_pack

_CLI = "import sys\nfrom tilewright.cli.main import main\nsys.exit(main({words!r}))\n"
_WITH_DRIVER = """
import sys
from tilewright.cli.main import main
print("code", main({words!r}))
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_sample_bundle(tmp_path / "bundle")
    return tmp_path / "bundle"


def _doctor(folder: Path, *words: str, **environment: str) -> Finished:
    settings = {"TILEWRIGHT_BUNDLE_PATH": str(folder / "bundle"), "TILEWRIGHT_JIT": "off"}
    program = _CLI.format(words=["doctor", *words])
    return run_program(program, folder, **(settings | environment))


def _on_gpus(folder: Path, gpus: str, *words: str, version: str = "12080") -> Finished:
    return run_with_fake_driver(
        _WITH_DRIVER.format(words=["doctor", *words]),
        folder,
        TILEWRIGHT_BUNDLE_PATH=str(folder / "bundle"),
        TILEWRIGHT_JIT="off",
        FAKE_CUDA_DEVICES=gpus,
        FAKE_CUDA_VERSION=version,
    )


@pytest.mark.usefixtures("bundle")
def test_each_family_is_told_for_each_gpu_here(tmp_path: Path) -> None:
    done = _on_gpus(tmp_path, "9.0,8.6,13.0")
    assert done.output.endswith("everything is in order\ncode 0\n")
    for line in (
        "    device 0 (9.0): prebuilt sm_90a for 28 of 28 signatures",
        "      prebuilt sm_90a: made for this GPU",
        "    device 1 (8.6): family sm_80 for 28 of 28 signatures",
        "      family sm_80: sm_80 also runs on 8.6",
        "    device 2 (13.0): ptx for 28 of 28 signatures",
        "      ptx: the driver assembles the portable text",
    ):
        assert line in done.output.splitlines()
    report = json.loads(_on_gpus(tmp_path, "10.3", "--json").output.rpartition("code")[0])
    assert report["schema"] == 1
    assert report["families"]["test"]["device 0 (10.3)"] == {
        "signatures": 28,
        "uses": {"family sm_100f": 28},
        "why": ["family sm_100f: sm_100f also runs on 10.3 (untuned: no tcgen05 schedule)"],
    }


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize(
    ("gpu", "driver", "reason", "code"),
    [
        ("7.5", "12080", "- ptx: the floor needs 8.0 or newer", 8),
        # So old a driver lacks functions too, which is the graver fault.
        ("9.0", "10020", "- ptx: needs a driver for CUDA 11.0, this one is for 10.2", 7),
    ],
)
def test_a_gpu_that_can_run_nothing_of_a_family_is_a_fault(
    tmp_path: Path, gpu: str, driver: str, reason: str, code: int
) -> None:
    done = _on_gpus(tmp_path, gpu, version=driver)
    *_, fault = (line for line in done.output.splitlines() if "FAULT" in line)
    assert fault.startswith(f"  FAULT: family test has nothing that runs on device 0 ({gpu}): ")
    assert reason in fault
    assert done.output.endswith(f"there are faults (exit code {code})\ncode {code}\n")


@pytest.mark.usefixtures("bundle")
def test_without_a_gpu_it_says_where_to_ask(tmp_path: Path) -> None:
    for done in (_doctor(tmp_path), _on_gpus(tmp_path, "none")):
        assert "no GPU here; `tilewright explain K --gpu 9.0`" in done.output
        assert "everything is in order" in done.output


def test_a_driver_that_does_not_start_has_its_exit_code(bundle: Path, tmp_path: Path) -> None:
    program = """
import sys
from tilewright.errors import NoDriverError
from tilewright.runtime import device
def broken():
    raise NoDriverError("the CUDA driver did not start: error 999", code=999, call="cuInit")
device.count = device.driver_version = broken
from tilewright.cli.main import main
sys.exit(main(["doctor"]))
"""
    done = run_program(program, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 7
    assert "FAULT: the CUDA driver did not start: error 999" in done.output


@pytest.mark.usefixtures("bundle")
def test_the_compilers_tools_are_told_with_versions(tmp_path: Path) -> None:
    compiler = json.loads(_doctor(tmp_path, "--json").output)["compiler"]
    assert compiler["nvidia-cuda-nvcc-cu12"] == "12.9.86"


def test_tools_that_the_compiler_refuses_are_told(bundle: Path, tmp_path: Path) -> None:
    program = """
import sys
from tilewright_compiler import toolchain
toolchain.PINNED = {**toolchain.PINNED, toolchain.PTXAS: "12.0.0"}
from tilewright.cli.main import main
sys.exit(main(["doctor"]))
"""
    done = run_program(program, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 0
    (state,) = (line for line in done.output.splitlines() if "state: installed" in line)
    assert "installed, and cannot be used" in state
    assert "12.0.0" in state


def _flip(path: Path, needle: bytes, offset: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(needle) + offset] ^= 1
    path.write_bytes(data)


_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a digit of the version": (
        lambda folder: _flip(folder / FILE_NAME, b'"version":"0"', 11),
        "is damaged in its first line",
    ),
    "a key": (
        lambda folder: _flip(folder / FILE_NAME, b"entry_records", 30),
        "record",
    ),
    "a record": (lambda folder: _flip(folder / FILE_NAME, b'"threads":128', 10), "is damaged"),
    "a pack": (lambda folder: zero_blobs(folder / PACK), "is damaged"),
    "no pack": (lambda folder: (folder / PACK).unlink(), "cannot be opened: No such file"),
    "another pack": (lambda folder: write_pack(folder / PACK, [b"x"]), "holds no blob"),
    "open to all": (lambda folder: (folder / PACK).chmod(0o666), "may be written by everyone"),
    "an open folder": (lambda folder: folder.chmod(0o777), "may be written by everyone"),
    "no manifest": (lambda folder: (folder / FILE_NAME).unlink(), "cannot be read: No such file"),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_every_damage_of_a_bundle_is_a_fault(bundle: Path, tmp_path: Path, damage: str) -> None:
    harm, fault = _DAMAGE[damage]
    harm(bundle)
    done = _doctor(tmp_path)
    faults = [line for line in done.output.splitlines() if "FAULT" in line]
    assert any(fault in line for line in faults), done.output
    assert done.code == 6
    assert "Traceback" not in done.errors


def test_a_second_fault_does_not_hide_behind_the_first(bundle: Path, tmp_path: Path) -> None:
    _flip(bundle / FILE_NAME, b'"threads":128', 10)
    zero_blobs(bundle / PACK)
    faults = json.loads(_doctor(tmp_path, "--json").output)[f"bundle {bundle}"]["faults"]
    assert any(" record " in f" {fault}" for fault in faults)
    # Each damaged blob is told of, whoever uses it.
    assert sum(fault.startswith("blob ") for fault in faults) == 140


def test_files_that_belong_to_nothing_are_named(bundle: Path, tmp_path: Path) -> None:
    (bundle / "notes.txt").write_text("x")
    cache = tmp_path / "cache" / "ab"
    cache.mkdir(parents=True)
    (cache / "mine.txt").write_text("x")
    (tmp_path / "cache" / "top").write_text("x")
    done = _doctor(tmp_path)
    assert done.code == 0
    assert "  files of no entry: notes.txt" in done.output.splitlines()
    assert f"  files of nobody: {cache / 'mine.txt'}, {tmp_path / 'cache' / 'top'}" in done.output


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize(
    ("folder", "answer"),
    [
        ("cache", "yes"),
        ("not/yet/there", "yes"),
        ("/proc/tilewright", "no: what is compiled lives in memory"),
        ("off", "no: what is compiled lives in memory"),
    ],
)
def test_whether_the_cache_can_be_written_is_told_without_writing(
    tmp_path: Path, folder: str, answer: str
) -> None:
    if folder == "/proc/tilewright" and os.geteuid() == 0:
        folder = "/proc/1/tilewright/x"  # root may write to /proc by its permissions alone
    value = folder if folder.startswith("/") or folder == "off" else str(tmp_path / folder)
    done = _doctor(tmp_path, TILEWRIGHT_CACHE_DIR=value)
    if not folder.startswith("/proc"):
        assert f"  writable: {answer}" in done.output.splitlines()
    assert done.code == 0
    assert not (tmp_path / "not").exists()
