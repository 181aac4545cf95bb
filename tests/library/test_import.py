"""Importing touches nothing: no driver, no compiler, no arrays, no environment, no file written."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw

ROOT = Path(__file__).resolve().parents[2]

HEAVY = (
    "cuda",
    "ml_dtypes",
    "mlir",
    "numpy",
    "tilewright_compiler",
    "tilewright_release",
    "torch",
    "zstandard",
)

PROBE = """
import json, os, sys

events = []
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & writing:
        events.append(f"open {args[0]} for writing")
    if event.startswith(("subprocess", "os.exec", "os.posix_spawn", "os.fork", "socket", "ctypes")):
        events.append(event)

read = []
real_getitem = type(os.environ).__getitem__

def spy(self, name):
    read.append(str(name))
    return real_getitem(self, name)

sys.dont_write_bytecode = True
sys.addaudithook(watch)
type(os.environ).__getitem__ = spy
exec(sys.argv[1])
loaded = sorted({name.partition(".")[0] for name in sys.modules})
ours = sorted(name for name in sys.modules if name.startswith("tilewright"))
print(json.dumps({"loaded": loaded, "ours": ours, "events": events, "read": read}))
"""


def after(statement: str) -> dict[str, Any]:
    """Run a statement in a new process and return what it loaded and did."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE, statement],
        env={"PYTHONPATH": str(ROOT / "library")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_probe_sees_what_it_watches_for() -> None:
    found = after("import os, numpy, subprocess; subprocess.run(['true']); os.environ.get('X')")
    assert "numpy" in found["loaded"]
    assert any(event.startswith("subprocess") for event in found["events"])
    assert "X" in found["read"]


def test_import_tilewright_loads_nothing_else() -> None:
    found = after("import tilewright")
    assert found["ours"] == ["tilewright"]
    assert found["events"] == []
    assert found["read"] == []


@pytest.mark.parametrize(
    "statement",
    [
        "import tilewright.language as tl",
        "import tilewright.kernels.softmax",
        "import tilewright.abi.keys, tilewright.abi.manifest, tilewright.abi.pack",
        "import tilewright.settings",
        "import tilewright.errors",
    ],
)
def test_the_layers_below_the_runtime_load_nothing_heavy(statement: str) -> None:
    found = after(statement)
    assert sorted(set(found["loaded"]) & set(HEAVY)) == []
    assert found["events"] == []
    assert found["read"] == []


def test_every_public_name_is_there() -> None:
    assert len(tw.__all__) > 10
    for name in tw.__all__:
        assert getattr(tw, name) is not None
        assert name in dir(tw)


def test_names_and_homes_agree() -> None:
    assert sorted({*tw._HOMES, *tw._SUBMODULES}) == sorted(tw.__all__)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sofmax'; it has DeviceArray, "):
        _ = tw.sofmax


def test_the_version_is_the_project_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tw.__version__ == project["version"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "library" / "tilewright" / "py.typed").is_file()


# One thread stands in the middle of the language's import while another asks for a name. If that
# imports a part of it instead of waiting, the first goes on when the other has reached that part.
_TWO_THREADS = """
import sys, threading, time
import tilewright as tw

inside, started, overtaken = threading.Event(), threading.Event(), threading.Event()
faults = []

def watch(event, args):
    if event != "import" or not args[0].startswith("tilewright."):
        return
    if threading.current_thread() is not first:
        started.set()
        if args[0] == "tilewright.language.kernel":
            overtaken.set()
    elif args[0] != "tilewright.language" and not inside.is_set():
        inside.set()
        if started.wait(1) and overtaken.wait(30):
            time.sleep(0.3)

def attempt(act):
    try:
        act()
    except BaseException as error:
        faults.append(repr(error))

def second():
    inside.wait()
    tw.resolved

first = threading.Thread(target=attempt, args=(lambda: __import__("tilewright.language"),))
sys.addaudithook(watch)
threads = [first, threading.Thread(target=attempt, args=(second,))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
assert not faults, faults
tw.resolved
"""


def test_threads_may_import_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TWO_THREADS],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
