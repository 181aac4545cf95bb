"""The campaign of `test_corruption.py`: damage, load, examine, and again.

Runs in a process of its own with the fake driver.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from helpers import stub_compiler
from helpers.bundles import signatures, write_bundle
from helpers.corruption import Damage, damage
from helpers.sample_kernels import add, mixed, strided
from tilewright import settings as settings_module
from tilewright.abi import keys
from tilewright.abi.dtypes import bfloat16, float16, float32, float64, int1, int8, int64, uint64
from tilewright.abi.manifest import read_manifest
from tilewright.abi.pack import PackReader
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import ComputeCapability
from tilewright.cli import doctor
from tilewright.errors import FormatError, ResolveError
from tilewright.language.kernel import Kernel
from tilewright.runtime import cache, jit, module, sources, store
from tilewright.runtime.cache_file import read_cached
from tilewright.runtime.device import DeviceFacts
from tilewright.runtime.launcher import native
from tilewright.runtime.module import LoadedKernel, load
from tilewright.runtime.resolve import Policy

_SUFFIXES = (".json", ".pack", ".twk")
_FACTS = DeviceFacts(ComputeCapability(9, 0), 12080, 232448)
_BUNDLED: tuple[tuple[Kernel, KernelSignature], ...] = tuple(
    (kernel, signature)
    for kernel, found in (
        (add, signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)),
        (
            strided,
            signatures(
                strided,
                x=(float32,),
                out=(float32,),
                row_stride=int64,
                column_stride=int64,
                BLOCK=64,
            ),
        ),
        (
            mixed,
            signatures(
                mixed,
                out=(float32,),
                a=int8,
                b=float64,
                c=float16,
                d=bfloat16,
                flag=int1,
                big=uint64,
                MODE="sum",
            ),
        ),
    )
    for signature in found
)
_CACHED = tuple(
    (add, signature)
    for block in (32, 128)
    for signature in signatures(
        add, x=(float16,), y=(float16,), out=(float16,), n=int64, BLOCK=block
    )
)


def run(folder: Path, *, seed: int, rounds: range) -> list[str]:
    """Run the rounds of a seed; return what went wrong, and last how many were run and harmless.

    Each round has a generator of its own, so that one can be run alone.
    """
    logging.disable(logging.CRITICAL)
    # No power is cut here, and each call takes its time.
    vars(os)["fsync"] = lambda _: None
    # What is the same in every round, and takes longer than the round.
    vars(store)["installed_folders"] = lambda _: ()
    vars(jit)["tool_versions"] = dict
    wrong: list[str] = []
    campaign = _Campaign(folder)
    harmless = 0
    for number in rounds:
        draw = random.Random(f"{seed} {number}")
        try:
            problems, is_harmless = campaign.round(draw)
        except Exception as error:  # what the campaign is here to find
            problems, is_harmless = [f"{type(error).__name__}: {error}"], False
        harmless += is_harmless
        wrong += (f"round {number}: {campaign.last}: {problem}" for problem in problems)
    return [*wrong, f"{len(rounds)} {harmless}"]


class _Campaign:
    """Intact files, and a copy of them that is damaged anew in each round."""

    def __init__(self, folder: Path) -> None:
        self._intact, self._copy = folder / "intact", folder / "copy"
        wanted: dict[Kernel, list[KernelSignature]] = {}
        for kernel, signature in _BUNDLED:
            wanted.setdefault(kernel, []).append(signature)
        write_bundle(self._intact / "bundle", wanted)
        stub_compiler.install(folder)
        os.environ["TILEWRIGHT_BUNDLE_PATH"] = str(self._copy / "bundle")
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(self._intact / "cache")
        _forget()
        for kernel, signature in _CACHED:
            self._load(kernel, signature)
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(self._copy / "cache")
        self._codes = dict(self._intact_codes())
        self.last: Damage | None = None
        self._seen: list[bytes] = []
        native_load = native.load

        def recorded(device: int, code: Any, entry: str, shared_bytes: int) -> Any:
            self._seen.append(bytes(code))
            return native_load(device, code, entry, shared_bytes)

        vars(module)["native"] = _Recorder(recorded)

    def round(self, draw: random.Random) -> tuple[list[str], bool]:
        """Damage a fresh copy one to three times; return what went wrong and if it was harmless."""
        _remove(self._copy)
        shutil.copytree(self._intact, self._copy)
        files = sorted(path for path in self._copy.rglob("*") if path.suffix in _SUFFIXES)
        done: list[Damage] = []
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            usable = [path for path in files if path.is_file() and path.stat().st_size]
            done.append(damage(draw, usable))
        self.last = done[0]
        is_void = all(each.is_void for each in done)
        faults = self._faults()
        problems = []
        if not faults and not is_void and not self._is_harmless(files):
            problems.append(f"doctor reports nothing of {[(d.name, d.path.name) for d in done]}")
        if is_void and faults:
            problems.append(f"doctor reports {faults} and nothing was changed")
        problems += self._launch_all()
        return problems, not faults

    def _launch_all(self) -> Iterator[str]:
        """Load each kernel as a new process would; yield what is wrong with how it went."""
        _forget()
        for kernel, signature in (*_BUNDLED, *_CACHED):
            self._seen.clear()
            key = keys.source_key(kernel.digest, signature)
            try:
                loaded: LoadedKernel | None = self._load(kernel, signature)
            except (ResolveError, FormatError) as error:
                loaded = None
                if "remedy" not in str(error):
                    yield f"{kernel.name}: an error without a remedy: {error}"
            for code in self._seen:
                allowed = self._codes[key]
                if hashlib.sha256(code.removesuffix(b"\0")).hexdigest() not in allowed:
                    yield f"{kernel.name} {signature}: the driver got {code[:80]!r}"
            if loaded is not None and len(self._seen) != 1:
                yield f"{kernel.name}: loaded {len(self._seen)} binaries"
        for bundle in store.bundles():
            bundle.close()

    def _load(self, kernel: Kernel, signature: KernelSignature) -> LoadedKernel:
        """Resolve and load as a launch does; what is bundled may not be compiled instead."""
        key = sources.source_key(kernel, signature)
        is_bundled = (kernel, signature) in _BUNDLED
        decision = sources.decide_key(
            kernel.qualified_name,
            str(signature),
            key,
            facts=_FACTS,
            policy=Policy(jit=not is_bundled),
        )
        fetch = (
            partial(sources.fetch_bundled, key)
            if is_bundled
            else sources.Fetcher(kernel, signature, key)
        )
        return load(decision, device=0, fetch=fetch)

    def _intact_codes(self) -> Iterator[tuple[str, set[str]]]:
        """Yield which code each key may run: what the bundle holds, or what the stub makes."""
        manifest = read_manifest(self._intact / "bundle" / "manifest.json")
        with PackReader(self._intact / "bundle" / "test.pack") as reader:
            for key, entry in manifest.entries.items():
                assert all(reader.read(blob.sha256) for blob in entry.blobs.values())
                yield key, {blob.sha256 for blob in entry.blobs.values()}
        for path in sorted((self._intact / "cache").rglob("*.twk")):
            cached = read_cached(path)
            yield path.name.partition("-")[0], set(cached.codes)

    def _faults(self) -> list[str]:
        _forget()
        found: list[str] = []
        for section in doctor.examine():
            if section.name.partition(" ")[0] in ("bundle", "cache"):
                found += section.faults
        for bundle in store.bundles():
            bundle.close()
        return found

    def _is_harmless(self, files: Sequence[Path]) -> bool:
        """Return whether what changed is nothing that anyone could be harmed by.

        A file of the cache that is gone is a file that was never written; a mode that still lets
        its owner read and no stranger write; a link to a file that is as it was.
        """
        for path in files:
            intact = self._intact / path.relative_to(self._copy)
            if path.suffix == ".twk" and not path.exists() and not path.is_symlink():
                continue
            if not path.is_file() or path.read_bytes() != intact.read_bytes():
                return False
            if path.stat().st_mode & stat.S_IWOTH or not os.access(path, os.R_OK):
                return False
        return True


class _Recorder:
    """The launcher extension with another `load`."""

    def __init__(self, load_: Callable[..., Any]) -> None:
        self.load = load_

    def __getattr__(self, name: str) -> Any:
        return getattr(native, name)


def _forget() -> None:
    """Become a process that has read nothing yet."""
    settings_module.settings.cache_clear()
    store.bundles.cache_clear()
    store._bundle.cache_clear()
    store._warn.cache_clear()
    cache.user_cache.cache_clear()


def _remove(folder: Path) -> None:
    if folder.exists():
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)
