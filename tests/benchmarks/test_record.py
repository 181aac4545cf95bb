"""Result rows go to files and come back; what is recorded has the schema and says all of it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record
from benchmarks.record import Row, load_results, print_table, write_results
from benchmarks.rounds import Timing

_RESULTS = Path(record.__file__).parent / "results"
_FILES = sorted(_RESULTS.glob("*/*.json"))
_BASELINES = {
    *("copy", "cublas", "cudnn", "torch.flash", "torch.scaled_mm", "torch.eager"),
    *("torch.compile", "torch.compile+graphs", "triton", "cuda.core", "cuda.bindings", "driver"),
    "cuequivariance",
}
_ROWS = [
    Row(
        case="softmax/bf16/64x1000/fwd/eager",
        unit="ms",
        better="lower",
        ours=0.5,
        spread=(0.4, 0.75),
        checked=True,
        baselines={"copy": 0.25},
        ratios={"copy": 0.5},
        err={"ours": 1e-3},
        peak_bytes={"ours": 4096},
    ),
    Row("import/-/-/-/-", "s", "lower", 0.1, (0.1, 0.2), checked=False),
]


@pytest.fixture
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_gpu", lambda: ("NVIDIA H200", "580.159"))


@pytest.mark.usefixtures("_a_gpu")
def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = write_results("rowops", _ROWS, {"torch": "2.11.0"}, folder=tmp_path, commit="abc")
    assert load_results(tmp_path) == {"rowops": _ROWS}
    data = json.loads(path.read_text())
    _check_schema(data)
    assert data["commit"] == "abc"
    assert (data["gpu"], data["driver"]) == ("NVIDIA H200", "580.159")
    assert data["versions"] == {"torch": "2.11.0"}


@pytest.mark.usefixtures("_a_gpu")
def test_the_folder_is_named_after_the_gpu_and_the_commit_is_the_checkouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "ROOT", tmp_path)
    path = write_results("launch", _ROWS, {}, folder=None)
    assert path == tmp_path / "benchmarks" / "results" / "nvidia-h200" / "launch.json"
    assert json.loads(path.read_text())["commit"] == "unknown"


def test_results_of_another_schema_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"schema": 0, "suite": "old", "rows": []}')
    with pytest.raises(ValueError, match="schema 0"):
        load_results(tmp_path)


def test_the_table_shows_ratios_errors_and_wrong_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table("rowops", _ROWS)
    _, first, second = capsys.readouterr().out.splitlines()
    assert "copy 0.50x" in first
    assert "err 1.0e-03" in first
    assert "WRONG RESULT" not in first
    assert second.endswith("WRONG RESULT")


def test_the_ratio_is_the_median_of_the_rounds_own() -> None:
    # The medians alone would say 4 / 2; a round in which both were slow must not change the ratio.
    timing = Timing({"ours": [1.0, 2.0, 10.0], "triton": [4.0, 2.0, 30.0]})
    row = timing.row("vecadd/f32/64/-/eager", unit="us", checked=True)
    assert row.ours == 2.0
    assert row.spread == (1.0, 10.0)
    assert row.baselines == {"triton": 4.0}
    assert row.ratios == {"triton": 3.0}
    assert row.checked


def test_recorded_results_have_the_schema() -> None:
    for path in _FILES:
        data = json.loads(path.read_text())
        _check_schema(data)
        assert path.stem == data["suite"]
        assert path.parent.name == "-".join(data["gpu"].lower().split())


def _check_schema(data: dict[str, Any]) -> None:
    assert list(data) == [
        *("schema", "suite", "gpu", "driver", "commit", "date", "versions", "rows")
    ]
    assert data["schema"] == record.SCHEMA
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["date"])
    assert data["commit"]
    assert all(isinstance(version, str) for version in data["versions"].values())
    cases = [row["case"] for row in data["rows"]]
    assert len(cases) == len(set(cases)) > 0
    for row in data["rows"]:
        assert list(row) == [field.name for field in fields(Row)]
        operation, _, _, direction, mode = row["case"].split("/")
        assert operation
        assert direction in ("fwd", "bwd", "fwdbwd", "-")
        assert mode in ("eager", "graph", "cold", "warm", "-")
        assert row["better"] in ("lower", "higher")
        low, high = row["spread"]
        assert 0 < low <= row["ours"] <= high < math.inf
        assert set(row["ratios"]) == set(row["baselines"]) <= _BASELINES
        assert set(row["err"]) <= {"ours"} | _BASELINES
        assert all(math.isfinite(error) for error in row["err"].values()) or not row["checked"]
