"""`prebuilt/validated/<gpu>.json`: what ran on which GPU and gave the right result, by sha256.

The one source of the word "validated" in manifest, coverage, `explain` and the documents. A file
names the blobs themselves, not their kernels: a kernel that changed, or another compiler's cubin,
is validated only when it has run again, and what stayed the same byte for byte keeps its evidence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import FormatError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ValidatedGpu:
    """What `validate` found on one GPU.

    `driver` is the CUDA version that the driver reports, 13000 for 13.0. The numbers are of blobs:
    `declared` in the bundle for this GPU, of which `driven` ran and `skipped` did not, with the
    number of them by reason; `blobs` are the sha256 of those that gave the right result.
    """

    gpu: str
    compute_capability: str
    driver: int
    date: str
    version: str
    declared: int
    failed: int
    skipped: Mapping[str, int]
    blobs: tuple[str, ...]

    def to_json(self) -> str:
        """Return the file's content."""
        data = {
            "schema": SCHEMA,
            "gpu": self.gpu,
            "compute_capability": self.compute_capability,
            "driver": self.driver,
            "date": self.date,
            "version": self.version,
            "declared": self.declared,
            "failed": self.failed,
            "skipped": dict(self.skipped),
            "blobs": sorted(self.blobs),
        }
        return json.dumps(data, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class Validations:
    """All files of a checkout."""

    files: tuple[ValidatedGpu, ...] = ()

    def gpus(self, sha256: str) -> tuple[str, ...]:
        """Return the GPUs on which a blob is validated, by name."""
        return tuple(sorted(file.gpu for file in self.files if sha256 in file.blobs))


def read_validated(folder: Path) -> Validations:
    """Read every file of the folder, which may be absent; raises FormatError for a wrong one."""
    return Validations(tuple(_read(path) for path in sorted(folder.glob("*.json"))))


def file_name(gpu: str) -> str:
    """Return the name of a GPU's file: `NVIDIA H200` is `nvidia-h200.json`."""
    words = "".join(letter if letter.isalnum() else " " for letter in gpu.lower()).split()
    return "-".join(words) + ".json"


def _read(path: Path) -> ValidatedGpu:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            msg = f"{path} has schema {data['schema']!r}; this tool reads {SCHEMA}"
            raise FormatError(msg)
        return ValidatedGpu(
            gpu=str(data["gpu"]),
            compute_capability=str(data["compute_capability"]),
            driver=int(data["driver"]),
            date=str(data["date"]),
            version=str(data["version"]),
            declared=int(data["declared"]),
            failed=int(data["failed"]),
            skipped={str(reason): int(count) for reason, count in data["skipped"].items()},
            blobs=tuple(map(str, data["blobs"])),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is no record of a validation: {error!r}"
        raise FormatError(msg) from error
