"""Importing the runtime touches nothing: no driver, torch, compiler or process, no file written."""

from __future__ import annotations

from pathlib import Path

from helpers.fake_driver import run_program, run_with_fake_driver

_AUDIT = """
import sys
seen = []
def audit(event, arguments):
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        seen.append((event, arguments[0]))
    if event in {"subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system",
                 "socket.connect", "ctypes.dlopen", "os.mkdir", "os.rename", "os.remove"}:
        seen.append((event, *map(str, arguments)))
sys.dont_write_bytecode = True
sys.addaudithook(audit)
import tilewright
import tilewright.language
import tilewright.kernels.elementwise
from tilewright.runtime import (cache, device, driver, expression, graph, jit, launch, launcher,
                                memory, module, preload, resolve, sources, store, stream)
from tilewright.cli import doctor, explain, main
assert not seen, seen
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"torch", "cuda", "mlir", "tilewright_compiler", "tilewright_release"}, loaded
assert "libcuda" not in open("/proc/self/maps").read()
"""


def test_import_touches_nothing(tmp_path: Path) -> None:
    done = run_with_fake_driver(_AUDIT, tmp_path, HOME="/nonexistent", PATH="")
    assert done.log == ()
    assert not (tmp_path / "cache").exists()


def test_import_needs_no_home_and_no_path(tmp_path: Path) -> None:
    done = run_program(_AUDIT, tmp_path, HOME="", PATH="", TILEWRIGHT_CACHE_DIR="")
    assert done.code == 0, done.errors


def test_a_prebuilt_launch_starts_no_process_and_writes_no_file(
    bundle: Path, tmp_path: Path
) -> None:
    program = (
        _AUDIT
        + """
from helpers.sample_kernels import add
from tilewright.abi import dtypes
x, y, out = (memory.empty(64, dtypes.float32) for _ in range(3))
add[1](x, y, out, 64, BLOCK=64)
with stream.Stream() as own, graph.capture(stream=own) as recorded:
    add[1](x, y, out, 64, BLOCK=64)
assert not seen, seen
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"torch", "cuda", "mlir", "tilewright_compiler", "tilewright_release"}, loaded
"""
    )
    done = run_with_fake_driver(
        program, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle), HOME="/nonexistent", PATH=""
    )
    assert len(done.lines("launch")) == 2
    assert not (tmp_path / "cache").exists()


def test_only_public_names_are_listed() -> None:
    import tilewright

    names = [name for name in dir(tilewright) if not name.startswith("__")]
    assert names == sorted(name for name in tilewright.__all__ if not name.startswith("__"))
    assert "__version__" in dir(tilewright)
