"""What a machine can have wrong around a launch: typed errors, reasons, and never a crash or hang.

Damage of bundles is in `test_bundles.py` and `test_module.py`, of the cache's files in
`test_cache.py`; `test_corruption.py` does all of it at random.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import signatures, write_bundle
from helpers.fake_driver import Finished, run_program
from helpers.launches import PRELUDE, Run, run_sample
from helpers.sample_kernels import add
from helpers.stub_compiler import compilations
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.manifest import FILE_NAME, write_manifest
from tilewright.runtime.cache import UserCache
from tilewright.runtime.cache_file import read_cached

_LAUNCH = """
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
(loaded,) = launch._loaded.values()
print(loaded.candidate)
"""


def _miss(folder: Path, setup: str = "", *, launch_: str = _LAUNCH, **environment: str) -> Finished:
    """Run a launch that no bundle serves, with the stub as compiler."""
    folder.mkdir(exist_ok=True)
    write_bundle(folder / "bundle", {})
    stub = f"""
from pathlib import Path
from helpers import stub_compiler
FOLDER = Path({str(folder)!r})
stub_compiler.install(FOLDER)
{setup}
"""
    settings = {"TILEWRIGHT_BUNDLE_PATH": str(folder / "bundle"), "TILEWRIGHT_JIT": "on"}
    given = settings | environment
    return run_sample(stub + launch_, folder, has_library_api=True, **given)


def test_sixteen_cold_processes_compile_once_and_all_load(tmp_path: Path) -> None:
    def process(index: int) -> Finished:
        return _miss(
            tmp_path / str(index),
            f"stub_compiler.install(Path({str(tmp_path)!r}), seconds=0.5)",
            TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"),
        )

    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(process, range(16)))
    assert len(compilations(tmp_path)) == 1
    assert all(len(each.lines("launch")) == 1 for each in done)
    assert {each.output.strip() for each in done} <= {"compile sm_90a", "cached sm_90a"}
    assert all(each.errors == "" for each in done)
    (file,) = UserCache((tmp_path / "cache",)).files()
    assert set(read_cached(file).entry.blobs) == {"sm_90a", "ptx"}
    assert not list((tmp_path / "cache").rglob("*.partial"))


@pytest.mark.parametrize(
    "homes",
    [
        {"HOME": "/proc/nonexistent", "TMPDIR": "/proc/nonexistent"},
        {"HOME": "", "TMPDIR": "/proc"},
        {"HOME": "/proc", "XDG_CACHE_HOME": "/proc/sys", "TMPDIR": "/proc/sys"},
        {"HOME": "/dev/null", "TMPDIR": "/dev/null"},
    ],
    ids=["missing", "none", "read-only", "a file"],
)
def test_a_kernel_is_compiled_and_launched_without_any_place_to_keep_it(
    tmp_path: Path, homes: dict[str, str]
) -> None:
    done = _miss(tmp_path, TILEWRIGHT_CACHE_DIR="", **homes)
    assert done.output.strip() == "compile sm_90a"
    assert len(done.lines("launch")) == 1
    assert len(compilations(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["zeroed", "truncated", "flipped", "empty", "another's"])
def test_a_damaged_cached_file_is_compiled_again(tmp_path: Path, damage: str) -> None:
    assert _miss(tmp_path).output.strip() == "compile sm_90a"
    (path,) = UserCache((tmp_path / "cache",)).files()
    data = bytearray(path.read_bytes())
    match damage:
        case "zeroed":
            data[-200:] = bytes(200)
        case "truncated":
            del data[-1:]
        case "flipped":
            data[-30] ^= 4
        case "empty":
            data.clear()
        case _:
            # A whole file, of this very version, that was made for another signature.
            _miss(tmp_path, launch_=_LAUNCH.replace("BLOCK=64", "BLOCK=128"))
            other = next(p for p in UserCache((tmp_path / "cache",)).files() if p != path)
            data = bytearray(other.read_bytes())
    path.write_bytes(data)
    done = _miss(tmp_path)
    assert done.output.strip() in ("cached sm_90a", "compile sm_90a")
    assert "is set aside and compiled again" in done.errors
    (line,) = done.lines("cuLibraryLoadData")
    assert "add" in line
    # The file is good again: another process takes it without a word.
    done = _miss(tmp_path)
    assert (done.output.strip(), done.errors) == ("cached sm_90a", "")


_FAILURES = {
    "ToolchainError": 'errors.ToolchainError("ptxas is gone")',
    "InternalCompilerError": 'errors.InternalCompilerError("a pass failed")',
    "UnsupportedTargetError": 'errors.UnsupportedTargetError("no such target")',
}


@pytest.mark.parametrize("kind", _FAILURES)
def test_a_compiler_that_fails_is_a_reason_in_the_trace(tmp_path: Path, kind: str) -> None:
    done = _miss(
        tmp_path,
        f"""
def fail():
    raise {_FAILURES[kind]}
stub_compiler.install(FOLDER, before=fail)
def launched():
    x, y, out = arrays()
    add[1](x, y, out, 64, BLOCK=64)
try:
    launched()
except errors.ResolveError as error:
    print(error)
sys.exit(0)
""",
    )
    assert f"- compile sm_90a: {kind}: " in done.output
    assert f"- compiled ptx: {kind}: " in done.output
    assert not done.lines("launch")


def test_a_kernel_that_is_wrong_is_no_matter_of_candidates(tmp_path: Path) -> None:
    done = _miss(
        tmp_path,
        """
def fail():
    raise errors.KernelTypeError("x is no pointer")
stub_compiler.install(FOLDER, before=fail)
x, y, out = arrays()
refused(errors.KernelTypeError, lambda: add[1](x, y, out, 64, BLOCK=64))
sys.exit(0)
""",
    )
    assert done.output.strip() == "KernelTypeError x is no pointer"


@pytest.mark.parametrize(
    ("gpu", "driver", "settings", "parts"),
    [
        (
            "9.0",
            "10020",
            {},
            ["needs a driver for CUDA 12.0, this one is for 10.2", "newer NVIDIA driver"],
        ),
        (
            "13.0",
            "13000",
            {"TILEWRIGHT_PTX": "off"},
            ["sm_90a: does not run on compute capability 13.0", "(TILEWRIGHT_PTX=on)"],
        ),
        ("7.5", "13000", {}, ["the floor needs 8.0", "older than 8.0 are not supported"]),
    ],
    ids=["old driver", "unknown gpu, no floor", "old gpu"],
)
def test_what_cannot_run_says_what_would_help(
    run: Run, gpu: str, driver: str, settings: dict[str, str], parts: list[str]
) -> None:
    done = run(
        """
x, y, out = arrays()
try:
    add[1](x, y, out, 64, BLOCK=64)
except errors.ResolveError as error:
    print(error)
""",
        FAKE_CUDA_DEVICES=gpu,
        FAKE_CUDA_VERSION=driver,
        **settings,  # type: ignore[arg-type]  # none of them is has_library_api
    )
    for part in ("no binary of kernel helpers.sample_kernels.add", *parts):
        assert part in done.output
    assert not done.lines("cuLibraryLoadData", "launch")


def test_a_machine_without_devices_or_driver_has_typed_errors(
    run: Run, bundle: Path, tmp_path: Path
) -> None:
    program = """
import tilewright as tw
print(tw.device_count())
for _ in range(2):
    refused(errors.NoDriverError, arrays)
    refused(errors.NoDriverError, lambda: tw.preload(add))
x = np.ones(64, np.float32)
out = np.zeros_like(x)
add[1](x, x, out, 64, BLOCK=64)
print(out.sum())
"""
    done = run(program, FAKE_CUDA_DEVICES="none")
    assert done.output.splitlines()[0] == "0"
    assert done.output.count("NoDriverError") == 4
    assert done.output.endswith("128.0\n")
    for library in (None, b"no ELF file at all", b"\x7fELF" + bytes(60)):
        folder = tmp_path / f"lib{library is not None and len(library)}"
        folder.mkdir()
        if library is not None:
            (folder / "libcuda.so.1").write_bytes(library)
        settings = {"TILEWRIGHT_BUNDLE_PATH": str(bundle), "LD_LIBRARY_PATH": str(folder)}
        done = run_program(PRELUDE + program, folder, **settings)
        assert done.code == 0, done.errors
        assert done.output.count("NoDriverError") == 4
        assert done.output.endswith("128.0\n")


def test_forced_ptx_takes_the_floor_of_a_kernel_that_has_cubins(run: Run) -> None:
    """So the text for GPUs that nobody here has runs on the one that is here."""
    done = run(_LAUNCH, CUDA_FORCE_PTX_JIT="1")
    assert done.output.strip() == "ptx"
    assert [line.split()[1] for line in done.lines("cuLibraryLoadData")] == ["ptx"]


def test_a_binary_that_was_validated_nowhere_is_told_of_once(tmp_path: Path) -> None:
    wanted = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)
    manifest = write_bundle(tmp_path / "bundle", {add: wanted})
    entries = {}
    for key, entry in manifest.entries.items():
        seen = replace(entry.blobs["sm_90a"], validated=("NVIDIA H200",))
        entries[key] = replace(entry, blobs={**entry.blobs, "sm_90a": seen})
    write_manifest(tmp_path / "bundle" / FILE_NAME, replace(manifest, entries=entries))

    def warnings(gpu: str) -> list[str]:
        program = _LAUNCH + "add[1](x, y, out, 2**40, BLOCK=64)\n"
        settings = {"TILEWRIGHT_BUNDLE_PATH": str(tmp_path / "bundle"), "FAKE_CUDA_DEVICES": gpu}
        done = run_sample(program, tmp_path, has_library_api=True, **settings)
        assert len(done.lines("launch")) == 2
        return done.errors.splitlines()

    assert warnings("9.0") == []
    (warning,) = warnings("8.6")
    assert warning == (
        "binaries for sm_80 run on compute capability 8.6 by the vendor's rules and were validated "
        "on no GPU; other binaries of the kernels were, on NVIDIA H200"
    )


def test_devices_of_several_kinds_each_get_their_binary(run: Run) -> None:
    """Resolution asks the device of the launch, not device 0."""
    done = run(
        """
for device in (2, 0, 1, 3):
    x, y, out = arrays(device=device)
    add[1](x, y, out, 64, BLOCK=64)
print(*(loaded.candidate for loaded in launch._loaded.values()), sep="; ")
""",
        FAKE_CUDA_DEVICES="9.0,8.6,12.0,13.0",
    )
    expected = "prebuilt sm_120f; prebuilt sm_90a; family sm_80; ptx"
    assert done.output.strip() == expected


def test_the_library_never_ends_the_process(run: Run) -> None:
    """Other libraries exit on a GPU that they do not know; here every way out is an exception."""
    done = run(
        """
import os
def never(*_):
    raise AssertionError("the library called exit")
sys.exit = os._exit = os.abort = never
import builtins
builtins.exit = builtins.quit = never
x, y, out = arrays()
refused(errors.ResolveError, lambda: add[1](x, y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](x, y, out, BLOCK=64))
refused(errors.LaunchError, lambda: add[-1](x, y, out, 64, BLOCK=64))
""",
        FAKE_CUDA_DEVICES="7.5",
    )
    assert done.output.count("Error") == 3


def test_a_prebuilt_launch_waits_for_nobody(bundle: Path, tmp_path: Path) -> None:
    """Every lock of the cache is held elsewhere, and the folder cannot be read: it is not asked."""
    cache = tmp_path / "cache"
    (cache / "locks").mkdir(parents=True)
    for index in range(256):
        os.mkfifo(cache / "locks" / f"{index:02x}")
    cache.chmod(0)
    try:
        done = run_sample(_LAUNCH, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    finally:
        cache.chmod(0o700)
    assert done.output.strip() == "prebuilt sm_90a"


def test_killed_compilations_leave_a_cache_that_works(tmp_path: Path) -> None:
    """Processes are killed at any moment of a miss; whoever comes later finds no half of a file."""
    folder = tmp_path / "killed"
    folder.mkdir()
    program = folder / "program.py"
    program.write_text(f"""
import sys
from pathlib import Path
from helpers import stub_compiler
from helpers.sample_kernels import add
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.target import Target
from helpers.bundles import signatures
from tilewright.runtime import sources
from tilewright.runtime.resolve import Candidate
stub_compiler.install(Path({str(folder)!r}))
print("ready", flush=True)
for block in range(16, 100_000, 16):
    for signature in signatures(
        add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=block
    ):
        key = sources.source_key(add, signature)
        sources.Fetcher(add, signature, key)(Candidate("compile", "sm_90a", None, None))
""")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_")},
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), *filter(None, sys.path))),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
    }
    for wait in (0.05, 0.0, 0.1):
        with subprocess.Popen(
            [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=wait)
            process.kill()
    files = UserCache((tmp_path / "cache",)).files()
    assert files
    assert all(read_cached(file).name == file.stem for file in files)
