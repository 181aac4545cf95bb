"""A built wheel gets files into its dist-info, with RECORD in order: provenance and SBOM.

They speak of the other files, the launcher among them, so they can be written only when the build
is over. The archive is written anew in one order, with the times that the build gave it; packs are
stored as they are, because their frames are compressed already.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tilewright_release.wheel_file import WheelFile


def seal(wheel: Path, files: Mapping[str, bytes]) -> None:
    """Add `files`, by their path under dist-info, to a wheel in place."""
    folder = WheelFile(wheel).dist_info
    record = f"{folder}/RECORD"
    added = {f"{folder}/{name}": data for name, data in sorted(files.items())}
    partial = wheel.with_name(f"{wheel.name}.partial")
    with zipfile.ZipFile(wheel) as old:
        infos = [info for info in old.infolist() if info.filename not in {record, *added}]
        template = old.getinfo(record)
        contents = {info.filename: old.read(info) for info in infos} | added
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as new:
            for info in infos:
                _write(new, info.filename, contents[info.filename], like=info)
            for name in added:
                _write(new, name, contents[name], like=template)
            # Last, as the wheel format recommends: a reader that has it has all the rest.
            _write(new, record, _record(contents, record), like=template)
    partial.replace(wheel)


def _write(archive: zipfile.ZipFile, name: str, data: bytes, *, like: zipfile.ZipInfo) -> None:
    info = zipfile.ZipInfo(name, like.date_time)
    info.external_attr = like.external_attr
    info.compress_type = zipfile.ZIP_STORED if name.endswith(".pack") else zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


def _record(contents: Mapping[str, bytes], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(data)))
    writer.writerow((record, "", ""))
    return text.getvalue().encode()
