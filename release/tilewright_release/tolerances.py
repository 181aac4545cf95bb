"""`prebuilt/tolerances.toml`: how far a kernel's result may be from its definition, by family."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.abi.dtypes import BY_NAME
from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import FormatError

TF32 = "tf32"
"""Among the dtypes of a family: results in f32 of which a part was rounded to tf32."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The allowed relative error of each family by dtype of the result."""

    families: Mapping[str, Mapping[str, float]]

    def allowed(self, family: str, dtype: str) -> float:
        """Return the allowed error, 0 for what is not in the table and must be equal."""
        return self.families.get(family, {}).get(dtype, 0.0)

    def problem(
        self, family: str, found: object, expected: object, *, precision: str = ""
    ) -> str | None:
        """Return how a result is further from the expected one than its family allows, or None.

        `precision` is "tf32" where f32 is rounded to it inside an operation.
        """
        if isinstance(expected, tuple):
            assert isinstance(found, tuple)
            return next(
                (
                    f"[{place}] {problem}"
                    for place, (one, other) in enumerate(zip(found, expected, strict=True))
                    if (problem := self.problem(family, one, other, precision=precision))
                ),
                None,
            )
        if expected is None:
            return None if found is None else "is something, where nothing is expected"
        got, want = np.asarray(found), np.asarray(expected)
        if got.shape != want.shape:
            return f"has shape {got.shape}, not {want.shape}"
        allowed = self.allowed(family, precision or from_numpy(got.dtype).name)
        error = relative_error(got, want)
        if error <= allowed:
            return None
        return f"is off by {error:.3g}, allowed is {allowed:g}"


def read_tolerances(file: Path) -> Tolerances:
    """Read the table; raises FormatError that names what is wrong."""
    try:
        families = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{file} cannot be read: {error}"
        raise FormatError(msg) from error
    for family, table in families.items():
        if not isinstance(table, dict):
            msg = f"{file}: {family} is no table of dtypes"
            raise FormatError(msg)
        for dtype, value in table.items():
            if dtype not in (*BY_NAME, TF32) or not isinstance(value, float) or not 0 <= value < 1:
                msg = (
                    f"{file}: {family}.{dtype} is {value!r}; a dtype's allowed relative error is a "
                    "float below 1"
                )
                raise FormatError(msg)
    return Tolerances(families)


@np.errstate(invalid="ignore", over="ignore")
def relative_error(found: Array, expected: Array) -> float:
    """Return the largest difference, against the expected value or the root mean square of all.

    Infinite where only one of the two is NaN, or an infinity of that sign.
    """
    if not expected.size:
        return 0.0
    if not (np.issubdtype(expected.dtype, np.floating) or expected.dtype.kind == "V"):
        # Differences of integers may overflow, and none is allowed.
        return 0.0 if np.array_equal(found, expected) else float("inf")
    got, want = found.astype(np.float64), expected.astype(np.float64)
    is_same = (got == want) | (np.isnan(got) & np.isnan(want))
    is_number = np.isfinite(got) & np.isfinite(want)
    if not np.all(is_same | is_number):
        return float("inf")
    if not np.any(is_number):
        return 0.0
    got, want = got[is_number], want[is_number]
    size = np.maximum(np.abs(want), np.sqrt(np.mean(np.square(want))))
    return float(np.max(np.abs(got - want) / np.where(size > 0, size, 1.0)))
