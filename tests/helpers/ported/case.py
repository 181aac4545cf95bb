"""What a ported kernel is run on and what it must give, for the interpreter and a GPU alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.language.kernel import Kernel

Array = np.ndarray[Any, np.dtype[Any]]
Arguments = dict[str, Any]
Random = np.random.Generator
F8 = ml_dtypes.float8_e4m3fn
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Case:
    """A launch: `make` gives the run-time arguments by name, `expected` the outputs in f64.

    Outputs may differ by `tolerance` of the largest element that is expected, on a GPU of 9.0 by
    `hopper_tolerance` if that is given; integers must be equal. `options` are the compile-time
    arguments and options of the launch.
    """

    kernel: Kernel
    grid: tuple[int, ...]
    make: Callable[[np.random.Generator], Arguments]
    expected: Callable[[Arguments], Mapping[str, Any]]
    tolerance: float
    options: Mapping[str, Any] = field(default_factory=dict)
    hopper_tolerance: float | None = None

    def arguments(self) -> Arguments:
        """Return new arguments, the same each time; arrays are aligned as on a device."""
        made = self.make(np.random.default_rng(0))
        return {name: _aligned(v) if isinstance(v, np.ndarray) else v for name, v in made.items()}

    def run(self, *, on_device: bool) -> dict[str, Array]:
        """Launch the kernel and return the outputs."""
        from tilewright.runtime.memory import from_numpy

        given = self.arguments()
        wanted = self.expected(given)
        arguments: Arguments = {
            name: from_numpy(v) if on_device and isinstance(v, np.ndarray) else v
            for name, v in given.items()
        }
        self.kernel[self.grid](**arguments, **self.options)
        return {name: arguments[name].numpy() if on_device else arguments[name] for name in wanted}

    def check(self, found: Mapping[str, Array], *, on_hopper: bool = False) -> None:
        """Compare outputs with what is expected of the same arguments."""
        coarse = self.hopper_tolerance if on_hopper else None
        tolerance = self.tolerance if coarse is None else coarse
        for name, wanted in self.expected(self.arguments()).items():
            right = np.asarray(wanted)
            if right.dtype.kind in "iub":
                np.testing.assert_array_equal(found[name], right, err_msg=name)
                continue
            bound = tolerance * np.nanmax(np.abs(right))
            given = found[name].astype(np.float64)
            np.testing.assert_allclose(given, right, rtol=0, atol=bound, err_msg=name)


def _aligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    result: Array = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def cdiv(x: int, y: int) -> int:
    """Return `x / y` rounded up."""
    return -(-x // y)


def half(random: Random, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float16)


def single(random: Random, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def poison(*shape: int, dtype: Any = np.float32) -> Array:
    if np.dtype(dtype).kind in "iu":
        return np.full(shape, -77, dtype)
    return np.full(shape, np.nan, dtype)


def f64(*arrays: Array) -> list[Array]:
    return [array.astype(np.float64) for array in arrays]


def softmax_of(x: Array, axis: int = -1) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    result: Array = powers / powers.sum(axis, keepdims=True)
    return result


def sigmoid_of(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result
