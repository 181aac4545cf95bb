"""A folder of candidates: `plan.json` says what is tried where, a bundle beside it holds binaries.

The folder is made where the compiler is and timed where the GPU is, by the same version of the
library; it is all that goes from one to the other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.abi.tuned import Choice
from tilewright.errors import FormatError
from tilewright_release.tuning.candidates import Candidate
from tilewright_release.tuning.points import AttentionPoint, ProductPoint, parse_point

FILE_NAME = "plan.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A point with the candidates that can serve it."""

    point: ProductPoint | AttentionPoint
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be timed, on devices that run `target`; `commit` is empty if unknown."""

    target: str
    version: str
    commit: str
    points: tuple[PlannedPoint, ...]

    def to_json(self) -> str:
        """Return the file's content."""
        points = [
            {
                "point": str(planned.point),
                "candidates": [
                    [choice.kernel, choice.tiles, choice.parts, choice.copied, is_declared]
                    for choice, is_declared in planned.candidates
                ],
            }
            for planned in self.points
        ]
        data = {
            "schema": _SCHEMA,
            "target": self.target,
            "version": self.version,
            "commit": self.commit,
            "points": points,
        }
        return json.dumps(data, indent=1) + "\n"

    @property
    def digest(self) -> str:
        """What tells plans apart."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def read_plan(folder: Path) -> Plan:
    """Read the plan of a folder; raises FormatError if there is none."""
    path = folder / FILE_NAME
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != _SCHEMA:
            msg = f"{path} has schema {data['schema']!r}; this tool reads {_SCHEMA}"
            raise FormatError(msg)
        return Plan(
            str(data["target"]),
            str(data["version"]),
            str(data["commit"]),
            tuple(
                PlannedPoint(
                    parse_point(planned["point"]), tuple(map(_candidate, planned["candidates"]))
                )
                for planned in data["points"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{folder} holds no candidates: {error!r}; make them with `tilewright tune compile`"
        raise FormatError(msg) from error


def _candidate(values: Any) -> Candidate:
    kernel, (m, n, k, warps, stages), parts, copied, is_declared = values
    choice = Choice(str(kernel), (m, n, k, warps, stages), int(parts), tuple(copied))
    return Candidate(choice, bool(is_declared))
