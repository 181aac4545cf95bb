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

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The allowed relative error of each family by dtype of the result."""

    families: Mapping[str, Mapping[str, float]]

    def allowed(self, family: str, dtype: str) -> float:
        """Return the allowed error, 0 for what is not in the table and must be equal."""
        return self.families.get(family, {}).get(dtype, 0.0)

    def problem(self, family: str, found: object, expected: object) -> str | None:
        """Return how a result is further from the expected one than its family allows, or None."""
        got, want = np.asarray(found), np.asarray(expected)
        if got.shape != want.shape:
            return f"has shape {got.shape}, not {want.shape}"
        allowed = self.allowed(family, from_numpy(got.dtype).name)
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
        for dtype, value in table.items() if isinstance(table, dict) else ((family, table),):
            if dtype not in BY_NAME or not isinstance(value, float) or not 0 <= value < 1:
                msg = (
                    f"{file}: {family}.{dtype} is {value!r}; a dtype's allowed relative error is a "
                    "float below 1"
                )
                raise FormatError(msg)
    return Tolerances(families)


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
    numbers = want[is_number]
    scale = np.sqrt(np.mean(np.square(numbers))) if numbers.size else 0.0
    error = np.abs(got - want, where=is_number, out=np.zeros_like(want))
    size = np.maximum(np.abs(want, where=is_number, out=np.zeros_like(want)), scale)
    return float(np.max(error / np.where(size > 0, size, 1.0)))
