"""The PTX of two commits: which kernels does a change of the compiler leave as they are?

Both commits compile in processes of their own from their own sources, with the entries matched by
kernel and signature, because a source key follows the kernel's text.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tilewright.errors import ReleaseError
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signatures

# Runs with another commit's packages, so it uses only what has long been there.
_PROGRAM = """
import hashlib, json, sys
from pathlib import Path
from tilewright.abi.target import Target
from tilewright_compiler.driver import compile_kernel
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signatures
from tilewright_release.stage_cache import StageCache

request = json.load(sys.stdin)
store = StageCache(Path(request["cache"]), "stages")
found = {}
for entry in read_signatures(Checkout(Path(request["root"]))):
    name = f"{entry.reference} {entry.signature}"
    if name in request["names"]:
        compiled = compile_kernel(entry.kernel, entry.signature, (Target(9, 0, "a"),), store=store)
        texts = [compiled.ptx, *getattr(compiled, "own_ptx", {}).values()]
        found[name] = hashlib.sha256("\\0".join(texts).encode()).hexdigest()
json.dump(found, sys.stdout)
"""
_SOURCES = ("library", "compiler", "release")
_SHOWN = 20


def compare_with_revision(
    checkout: Checkout, revision: str, count: int | None, *, seed: int
) -> str:
    """Return a line that all of `count` entries, or all there are, have the PTX of `revision`.

    Raises ReleaseError that names the entries whose PTX differs, or that git knows no such commit.
    """
    names = sorted(f"{entry.reference} {entry.signature}" for entry in read_signatures(checkout))
    if count is not None:
        names = sorted(random.Random(seed).sample(names, min(count, len(names))))
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        other = Path(folder, "sources")
        _extract(checkout.root, revision, other)
        cache = Path(folder, "cache")
        before = _texts(other, names, cache)
        after = _texts(checkout.root, names, cache)
    differing = differing_texts(before, after)
    if differing:
        more = [f"and {len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else []
        lines = (
            f"{len(differing)} of {len(names)} entries have other PTX than at {revision}:",
            *differing[:_SHOWN],
            *more,
        )
        raise ReleaseError("\n  ".join(lines))
    return f"verify: {len(after)} entries have the PTX that they have at {revision}"


def differing_texts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each entry whose PTX differs, or that only one of the two has."""
    found = []
    for name in sorted({*before, *after}):
        if name not in before:
            found.append(f"{name} is new")
        elif name not in after:
            found.append(f"{name} is gone")
        elif before[name] != after[name]:
            found.append(name)
    return found


def _extract(root: Path, revision: str, folder: Path) -> None:
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    # Not in the form of an option, whatever the caller wrote.
    command = ["git", "-C", str(root), "archive", "-o", str(archive), "--end-of-options", revision]
    for step in (command, ["tar", "-xf", str(archive), "-C", str(folder)]):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            msg = f"the sources of {revision} cannot be had: {done.stderr.strip()}"
            raise ReleaseError(msg)


def _texts(root: Path, names: list[str], cache: Path) -> dict[str, str]:
    own = [str(root / name) for name in _SOURCES]
    start = f"import sys; sys.path[:0] = {own!r}; {_others()}"
    done = subprocess.run(
        [sys.executable, "-c", f"{start}\n{_PROGRAM}"],
        input=json.dumps({"root": str(root), "names": names, "cache": str(cache)}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        msg = f"the kernels of {root} do not compile: {done.stderr.strip()[-2000:]}"
        raise ReleaseError(msg)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _others() -> str:
    return f"sys.path += [p for p in {sys.path!r} if p not in sys.path]"
