"""Every vector of `tests/vectors/` gives its result, in the interpreter and on a GPU."""

from __future__ import annotations

import pytest

from helpers.gpu import requires_gpu
from helpers.vectors import Vector, differences, families, load_vectors, run_vector

VECTORS = [vector for family in families() for vector in load_vectors(family)]


def test_families_are_found() -> None:
    assert "operators" in families()


@pytest.mark.parametrize(
    "on_device",
    [
        pytest.param(False, id="host"),
        pytest.param(True, id="gpu", marks=[pytest.mark.gpu, requires_gpu()]),
    ],
)
@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_vector_gives_its_result(vector: Vector, on_device: bool) -> None:
    assert not differences(vector, run_vector(vector, on_device=on_device))


def test_a_wrong_result_is_told() -> None:
    (vector,) = (v for v in load_vectors("operators") if v.name == "division truncates")
    (right,) = run_vector(vector, on_device=False)
    wrong = right.copy()
    wrong[1] += 1
    (line,) = differences(vector, (wrong,))
    assert "operators-division-truncates: result 0 at (1,)" in line
