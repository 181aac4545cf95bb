"""Change a wheel as an accident would, with RECORD in order or not; build wrong launchers."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path


def change_wheel(
    wheel: Path,
    folder: Path,
    changes: Mapping[str, bytes | None],
    *,
    name: str = "",
    record: bool = True,
) -> Path:
    """Write a copy of `wheel` with files replaced, added or (None) removed and return its path.

    `record=False` leaves RECORD as it was.
    """
    with zipfile.ZipFile(wheel) as archive:
        contents = {item: archive.read(item) for item in archive.namelist()}
    for file, data in changes.items():
        if data is None:
            del contents[file]
        else:
            contents[file] = data
    (listing,) = (item for item in contents if item.endswith(".dist-info/RECORD"))
    if record:
        lines = [f"{listing},,"]
        for file, data in contents.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if file != listing:
                lines.append(f"{file},sha256={digest},{len(data)}")
        contents[listing] = "\n".join(lines).encode()
    path = folder / (name or wheel.name)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in contents.items():
            archive.writestr(file, data)
    return path


def compile_extension(folder: Path, source: str, *flags: str, glibc: str) -> bytes:
    """Compile C as a shared object for x86_64 and a version of glibc, and return its bytes."""
    (folder / "extension.c").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{glibc}"]
    command += ["-shared", "-fPIC", *flags, "extension.c", "-o", "extension.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "extension.so").read_bytes()
