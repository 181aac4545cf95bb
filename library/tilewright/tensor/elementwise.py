"""Elementwise operations on arrays of any shape and strides: broadcast, collapse, launch.

NumPy arrays run in the interpreter, device arrays on the GPU; the kernel is the same.
"""

from __future__ import annotations

from tilewright.kernels import elementwise as kernels
from tilewright.language.kernel import Kernel
from tilewright.tensor.arrays import (
    Array,
    as_array,
    broadcast_to,
    check_same_dtype,
    output,
    pieces,
)
from tilewright.tensor.configurations import elementwise_configuration
from tilewright.tensor.strides import broadcast_shape

_GRID_HEIGHT = 65535  # the highest grid that CUDA allows along axes 1 and 2


def add(x: object, y: object, *, out: object | None = None) -> Array:
    """Return `x + y` with NumPy broadcasting. Arrays have one dtype; raises ArgumentError otherwise."""
    return _binary(kernels.add, x, y, out)


def mul(x: object, y: object, *, out: object | None = None) -> Array:
    """Return `x * y` with NumPy broadcasting. Arrays have one dtype; raises ArgumentError otherwise."""
    return _binary(kernels.mul, x, y, out)


def exp(x: object, *, out: object | None = None) -> Array:
    """Return `e ** x` elementwise."""
    return _unary(kernels.exp, x, out)


def gelu(x: object, *, out: object | None = None) -> Array:
    """Return `x / 2 * (1 + erf(x / sqrt 2))` elementwise, see `reference.elementwise.gelu`."""
    return _unary(kernels.gelu, x, out)


def _binary(kernel: Kernel, x: object, y: object, out: object | None) -> Array:
    left, right = as_array(x, name="x"), as_array(y, name="y")
    check_same_dtype({"x": left, "y": right})
    shape = broadcast_shape(tuple(left.shape), tuple(right.shape))
    result = output(out, shape, left)
    _launch(kernel, (broadcast_to(left, shape), broadcast_to(right, shape), result))
    return result


def _unary(kernel: Kernel, x: object, out: object | None) -> Array:
    array = as_array(x, name="x")
    result = output(out, tuple(array.shape), array)
    _launch(kernel, (array, result))
    return result


def _launch(kernel: Kernel, arrays: tuple[Array, ...]) -> None:
    for operands, space in pieces(arrays, rank=4):
        configuration = elementwise_configuration(space.sizes[3])
        rows = space.sizes[0] * space.sizes[1] * space.sizes[2]
        grid = (
            -(-space.sizes[3] // configuration.block_n),
            min(-(-rows // configuration.block_m), _GRID_HEIGHT),
        )
        kernel[grid](
            *operands,
            *space.sizes,
            *(stride for strides in space.strides for stride in strides),
            BLOCK_M=configuration.block_m,
            BLOCK_N=configuration.block_n,
            num_warps=configuration.num_warps,
        )
