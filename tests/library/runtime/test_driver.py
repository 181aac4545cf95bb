"""The door to cuda.bindings: old drivers, missing symbols, and what an error says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.fake_driver import run_program
from helpers.launches import Run

_OTHER_BINDINGS = "TILEWRIGHT_OTHER_BINDINGS"
"""Names a folder with another version of cuda-bindings, as `pip install --no-deps --target` makes
one: 12.9 where 13 is installed, or the other way round."""


@pytest.mark.parametrize("version", ["12000", "12040", "12080", "13000"])
def test_drivers_of_every_age_answer(run: Run, version: str) -> None:
    done = run(
        """
from tilewright.runtime import driver
print(driver.device_name(0), driver.memory_info(0), native.driver_version())
""",
        FAKE_CUDA_VERSION=version,
        FAKE_CUDA_MEMORY="1000000",
    )
    assert done.output.strip() == f"Fake GPU 9.0 (1000000, 1000000) {version}"


def test_an_older_driver_gets_the_substitute_or_a_reason(run: Run) -> None:
    done = run(
        """
from tilewright.runtime import driver
driver.SYMBOLS["cuNew"] = driver.Symbol("cuNew", since=12040, substitute="cuDeviceGet")
driver.SYMBOLS["cuOnly"] = driver.Symbol("cuOnly", since=12040)
print(int(driver.call("cuNew", 0)))
refused(errors.DriverError, lambda: driver.call("cuOnly", 0))
try:
    driver.call("cuDeviceGet", 5)
except errors.DriverError as error:
    print(error.code, error.call, error)
""",
        FAKE_CUDA_VERSION="12000",
    )
    lines = done.output.splitlines()
    assert lines[0] == "0"
    assert lines[1] == "DriverError cuOnly needs a driver for CUDA 12.4, this one is for 12.0"
    assert lines[2].startswith("101 cuDeviceGet cuDeviceGet failed with 101 (")


def test_the_calling_thread_keeps_its_own_context(run: Run) -> None:
    done = run(
        """
from tilewright.runtime import driver
a = memory.empty(4, dtypes.float32, device=1)     # a thread without a context gets the first used
print(driver.memory_info(0)[1] > 0)
add[1](*arrays(device=0), 64, BLOCK=64)
b = memory.empty(4, dtypes.float32, device=1)
""",
        FAKE_CUDA_DEVICES="9.0,9.0",
    )
    devices = [line.split()[-1] for line in done.lines("cuMemAllocAsync")]
    assert devices == ["device=1", "device=0", "device=0", "device=0", "device=1"]
    assert done.output.strip() == "True"


@pytest.mark.parametrize("version", ["12000", "12090", "13000"])
@pytest.mark.parametrize("which", ["installed", "other"])
def test_both_versions_of_the_bindings_serve_every_driver(
    run: Run, version: str, which: str
) -> None:
    other = os.environ.get(_OTHER_BINDINGS, "")
    if which == "other" and not other:
        pytest.skip(f"{_OTHER_BINDINGS} names no folder with another version of cuda-bindings")
    done = run(
        f"""
if {which == "other"}:
    sys.path.insert(0, {other!r})
from cuda.bindings import driver as bindings
from tilewright.runtime import driver
print(driver.bindings_version(), driver.device_name(0), driver.memory_info(0)[1])
assert all(callable(getattr(bindings, name)) for name in driver.SYMBOLS)
add[1](*arrays(), 64, BLOCK=64)
refused(errors.DriverError, lambda: driver.call("cuDeviceGet", 5))
""",
        FAKE_CUDA_VERSION=version,
        FAKE_CUDA_MEMORY="1000000",
    )
    answer, refusal = done.output.splitlines()
    assert answer.split()[0].startswith(("12.9", "13."))
    assert answer.endswith("Fake GPU 9.0 1000000")
    assert refusal.startswith("DriverError cuDeviceGet failed with 101 (CUDA_ERROR_INVALID_DEVICE)")
    assert len(done.lines("launch")) == 1


_OPENED = """
import numpy as np
import tilewright as tw
from tilewright.errors import NoDriverError

assert tw.device_count() == 0
assert tw.softmax(np.ones(4, np.float32)).sum() == 1
try:
    tw.empty((1,), tw.language.float32)
except NoDriverError as error:
    print(error.call, error)
"""


@pytest.mark.parametrize("kind", ["garbage", "folder"])
def test_a_driver_that_cannot_be_loaded_is_not_called_absent(tmp_path: Path, kind: str) -> None:
    library = tmp_path / "libcuda.so.1"
    if kind == "garbage":
        library.write_bytes(b"garbage" * 1000)
    else:
        library.mkdir()
    done = run_program(_OPENED, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert done.code == 0, done.errors
    assert done.output.startswith("libcuda.so.1 the CUDA driver cannot be loaded (")
    program = "import sys\nfrom tilewright.cli.main import main\nsys.exit(main(['doctor']))\n"
    report = run_program(program, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert "FAULT: the CUDA driver cannot be loaded (" in report.output
