"""What a wheel was made of and by, as `provenance.json` in its dist-info.

It names the commit, the tools with their versions, the compiler's fingerprint and the bundle with
all its keys, so that whoever distrusts a wheel can build it again and compare. Nothing in it
depends on the machine or the time, so the wheel's bytes do not either.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from shutil import which

from tilewright.abi.manifest import Manifest
from tilewright.errors import ReleaseError
from tilewright_compiler.toolchain import PINNED, compiler_fingerprint

FILE_NAME = "provenance.json"
SCHEMA = 1

# What decides bytes of the wheel, beside the compiler's own tools.
_BUILD_TOOLS = ("cmake", "scikit-build-core", "ziglang", "zstandard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """The bundle in a wheel: the digest of its manifest and of all keys in it, and how many."""

    manifest_sha256: str
    keys_sha256: str
    entries: int
    blobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a wheel comes from.

    `commit` is None when it was built from no git checkout, as from an sdist; `is_modified` says
    whether files differed from the commit. `bundle` is None in a wheel without one.
    """

    name: str
    version: str
    machine: str
    commit: str | None
    is_modified: bool
    compiler: str
    tools: Mapping[str, str]
    bundle: Bundled | None
    schema: int = SCHEMA

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return (json.dumps(asdict(self), indent=1, sort_keys=True) + "\n").encode()

    @staticmethod
    def from_bytes(data: bytes) -> Provenance:
        """Read what `to_bytes` wrote; raises ReleaseError when it is not that."""
        try:
            fields = json.loads(data)
            if fields["schema"] != SCHEMA:
                msg = f"{FILE_NAME} has schema {fields['schema']!r}, this is for {SCHEMA}"
                raise ReleaseError(msg)
            bundle = fields.pop("bundle")
            return Provenance(**fields, bundle=None if bundle is None else Bundled(**bundle))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"{FILE_NAME} cannot be read: {error!r}"
            raise ReleaseError(msg) from error


def gather(
    root: Path, *, name: str, version: str, machine: str, manifest: Manifest | None
) -> Provenance:
    """Return the provenance of a wheel that is built from the checkout `root` now."""
    commit, is_modified = commit_of(root)
    return Provenance(
        name=name,
        version=version,
        machine=machine,
        commit=commit,
        is_modified=is_modified,
        compiler=compiler_fingerprint(),
        tools=dict(PINNED) | {tool: metadata.version(tool) for tool in _BUILD_TOOLS},
        bundle=None if manifest is None else bundled(manifest),
    )


def bundled(manifest: Manifest) -> Bundled:
    """Return what a provenance says of a bundle."""
    digest = hashlib.sha256()
    blobs = 0
    for key, entry in sorted(manifest.entries.items()):
        for name, blob in sorted(entry.blobs.items()):
            digest.update(f"{key} {name} {blob.build_key} {blob.sha256}\n".encode())
            blobs += 1
    return Bundled(
        manifest_sha256=hashlib.sha256(manifest.to_bytes()).hexdigest(),
        keys_sha256=digest.hexdigest(),
        entries=len(manifest.entries),
        blobs=blobs,
    )


def commit_of(root: Path) -> tuple[str | None, bool]:
    """Return the commit that `root` is a checkout of, and whether files differ from it.

    There is none where git is not installed: `make wheel` does without, a release does not.
    """
    # A copy inside another repository is not a checkout of that.
    if not (root / ".git").exists() or which("git") is None:
        return None, False
    commit = _git(root, "rev-parse", "HEAD").strip()
    return commit, bool(_git(root, "status", "--porcelain").strip())


def _git(root: Path, *words: str) -> str:
    # Whoever builds may not be whoever owns the files, as in a container, and builds them anyway.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"git {words[0]} failed in {root}: {done.stderr.strip()}"
        raise ReleaseError(msg)
    return done.stdout
