"""Vectors of reductions, scans, sorts and look-ups give one result in every way without a GPU:
interpreted, as their schedule under the checker, and as PTX. What that result is, `test_vectors`
says.
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.every_way import run_every_way
from helpers.vectors import Vector, arguments_of, kernel_text, load_vectors

FAMILIES = ("reduce", "scan", "sort", "indexing")
VECTORS = [vector for family in FAMILIES for vector in load_vectors(family)]


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_every_way_gives_one_result(vector: Vector) -> None:
    arrays = arguments_of(vector)
    left = run_every_way(kernel_text(vector), arrays, num_warps=2)
    assert any(not np.array_equal(left[name], array) for name, array in arrays.items())
