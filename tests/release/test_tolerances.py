from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import FormatError
from tilewright_release.tolerances import Tolerances, read_tolerances, relative_error

ROOT = Path(__file__).resolve().parents[2]
TABLE = Tolerances({"sums": {"f32": 1e-3, "bf16": 8e-3}})


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.2], [1.0, 2.0], 0.1),
        # Beside numbers of 100, a difference of 1 at an expected 0 is one of 1 %.
        ([1.0, 100.0, 100.0, 100.0], [0.0, 100.0, 100.0, 100.0], 1 / np.sqrt(7500)),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, -np.inf], [np.inf, -np.inf], 0.0),
        ([np.inf], [-np.inf], np.inf),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.nan], np.inf),
        ([0.0], [0.0], 0.0),
        ([2.0], [0.0], 2.0),
        ([], [], 0.0),
    ],
)
def test_differences_count_against_the_value_or_the_mean_square(
    found: list[float], expected: list[float], error: float
) -> None:
    got = relative_error(np.array(found, np.float32), np.array(expected, np.float32))
    assert got == pytest.approx(error, rel=1e-6)


def test_integers_must_be_equal() -> None:
    limits = np.iinfo(np.int64)
    ends = np.array([limits.min, limits.max])
    assert relative_error(ends, ends) == 0
    assert relative_error(ends, ends[::-1]) == np.inf
    assert TABLE.problem("sums", ends, ends) is None


def test_a_result_is_held_to_its_own_dtype() -> None:
    exact = np.linspace(1, 2, 64)
    single, half = exact.astype(np.float32), exact.astype(ml_dtypes.bfloat16)
    assert TABLE.problem("sums", single * np.float32(1.0005), single) is None
    assert TABLE.problem("sums", half, single) is None
    problem = TABLE.problem("sums", single * np.float32(1.01), single)
    assert problem == "is off by 0.01, allowed is 0.001"
    # What no line allows must be equal.
    assert TABLE.problem("moves", single, single) is None
    assert TABLE.problem("moves", single + np.float32(1e-6), single) is not None


def test_another_shape_is_a_problem() -> None:
    ones = np.ones((2, 3), np.float32)
    assert TABLE.problem("sums", ones.T, ones) == "has shape (3, 2), not (2, 3)"


@pytest.mark.parametrize(
    "text", ["sums", "[sums]\nf33 = 0.1", "[sums]\nf32 = 1", "[sums]\nf32 = 1.5", "f32 = 0.1"]
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tolerances.toml").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=r"tolerances\.toml"):
        read_tolerances(tmp_path / "tolerances.toml")


def test_ours_is_read() -> None:
    table = read_tolerances(ROOT / "prebuilt" / "tolerances.toml")
    assert table.allowed("matmul", "f32") == 1e-5
    assert table.allowed("movement", "f32") == 0
