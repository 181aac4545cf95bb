"""Result rows and their files: `results/<gpu>/<suite>.json`, a row a case, no figure by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One case. `ours` and `baselines` are medians in `unit`, `ratios` medians of per-round ratios.

    A ratio is above 1 where ours is better, whatever `better` says. `err` holds the largest error
    relative to the fp64 result's largest value.
    """

    case: str
    unit: str
    better: Literal["lower", "higher"]
    ours: float
    spread: tuple[float, float]
    checked: bool
    baselines: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    err: dict[str, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)


def write_results(
    suite: str, rows: list[Row], versions: dict[str, str], *, folder: Path | None, commit: str = ""
) -> Path:
    """Write a suite's rows with where, when and with what they were measured; return the path.

    `folder` is by default the one of this GPU's results. `commit` is what was measured; a checkout
    with its history knows it itself.
    """
    gpu, driver = _gpu()
    slug = "-".join(gpu.lower().split())
    folder = folder or ROOT / "benchmarks" / "results" / slug
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "schema": SCHEMA,
        "suite": suite,
        "gpu": gpu,
        "driver": driver,
        "commit": commit or _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "versions": versions,
        "rows": [asdict(row) for row in rows],
    }
    path = folder / f"{suite}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def load_results(folder: Path) -> dict[str, list[Row]]:
    """Read every suite recorded in a folder."""
    results: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("*.json")):
        data: dict[str, Any] = json.loads(path.read_text())
        if data["schema"] != SCHEMA:
            msg = f"{path} has schema {data['schema']}, this reads {SCHEMA}: measure it again"
            raise ValueError(msg)
        results[data["suite"]] = [
            Row(**{**row, "spread": tuple(row["spread"])}) for row in data["rows"]
        ]
    return results


def print_table(suite: str, rows: list[Row]) -> None:
    """Print a suite's rows, baselines beside ours."""
    print(f"{suite}: case | ours | ratio to each baseline (above 1: ours is better) | error")
    for row in rows:
        ratios = "  ".join(f"{name} {value:.2f}x" for name, value in row.ratios.items())
        error = f"  err {row.err['ours']:.1e}" if "ours" in row.err else ""
        state = "" if row.checked else "  WRONG RESULT"
        print(f"  {row.case:46s} {row.ours:9.4f} {row.unit:3s} {ratios}{error}{state}")


def _gpu() -> tuple[str, str]:
    if shutil.which("nvidia-smi") is None:  # what a wheel takes to make, say, needs no GPU
        return "none", "none"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    output = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    name, driver = output.splitlines()[0].split(",")
    return name.strip(), driver.strip()


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*"]
    result = subprocess.run([*command, "--dirty"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
