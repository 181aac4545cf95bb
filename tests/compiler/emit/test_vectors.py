"""Every vector gives its result as executed PTX too: what a GPU would run, without one."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.kernel_source import signature_of
from helpers.vectors import Array, Vector, differences, families, kernel_and_arrays, load_vectors
from tilewright.abi.numpy_types import from_numpy
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

VECTORS = [vector for family in families() for vector in load_vectors(family)]


def _executed(vector: Vector) -> tuple[Array, ...]:
    kernel, inputs, outputs = kernel_and_arrays(vector)
    values = [*inputs, *outputs]
    types = {
        parameter.name: f"{'*' if value.ndim else ''}{from_numpy(value.dtype)}"
        for parameter, value in zip(kernel.parameters, values, strict=False)
    }
    signature = signature_of(kernel, {**types, **vector.constants})
    module = schedule_module(optimize(lower_kernel(kernel, signature)))
    run_scheduled(module, [value if value.ndim else value[()] for value in values])
    return tuple(
        np.asarray(array)[: result.size].reshape(result.shape)
        for array, result in zip(outputs, vector.results, strict=True)
    )


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_executed_ptx_gives_the_result(vector: Vector) -> None:
    assert not differences(vector, _executed(vector))
