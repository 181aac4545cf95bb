"""Elementwise operations on arrays of any shape and strides: broadcast, collapse, launch.

NumPy arrays run in the interpreter, device arrays on the GPU; the kernel is the same.
"""

from __future__ import annotations

from itertools import chain

from tilewright.errors import ArgumentError
from tilewright.kernels import elementwise as kernels
from tilewright.kernels import elementwise_backward as gradients
from tilewright.language.kernel import Kernel
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    Operand,
    as_array,
    check_computed_in_f32,
    check_has_arithmetic,
    check_same_dtype,
    dtype_of,
    output,
    pieces,
    strides_of,
)
from tilewright.tensor.configurations import (
    ELEMENTWISE_WIDE,
    GELU_WIDE_16,
    Configuration,
    elementwise_configuration,
)
from tilewright.tensor.strides import Shape, broadcast_shape, broadcast_strides


def add(x: object, y: object, *, out: object | None = None) -> Array:
    """Return `x + y` with NumPy broadcasting; raises ArgumentError unless both have one dtype."""
    return _binary(kernels.add, x, y, out)


def mul(x: object, y: object, *, out: object | None = None) -> Array:
    """Return `x * y` with NumPy broadcasting; raises ArgumentError unless both have one dtype."""
    return _binary(kernels.mul, x, y, out)


def exp(x: object, *, out: object | None = None) -> Array:
    """Return `e ** x` elementwise."""
    return _unary(kernels.exp, x, out)


def gelu(x: object, *, out: object | None = None) -> Array:
    """Return `x / 2 * (1 + erf(x / sqrt 2))` elementwise, see `reference.elementwise.gelu`."""
    return _unary(kernels.gelu, x, out, wide_16=GELU_WIDE_16)


def gelu_backward(x: object, dy: object, *, out: object | None = None) -> Array:
    """Return `dy * (Phi(x) + x * phi(x))`, the gradient of `gelu(x)` for that of its result.

    `x` and `dy` have one shape and dtype. See `reference.elementwise.gelu_backward`.
    """
    array, gradient = as_array(x, name="x"), as_array(dy, name="dy")
    check_computed_in_f32(array)
    check_same_dtype({"x": array, "dy": gradient})
    if gradient.shape != array.shape:
        msg = f"dy has shape {gradient.shape}, x has {array.shape}; they must be equal"
        raise ArgumentError(msg)
    result = output(out, array.shape, array)
    arrays = (array, gradient, result)
    _launch(gradients.gelu_backward, array.shape, arrays, is_always_wide=True)
    return result


def _binary(kernel: Kernel, x: object, y: object, out: object | None) -> Array:
    left, right = as_array(x, name="x"), as_array(y, name="y")
    check_same_dtype({"x": left, "y": right})
    check_has_arithmetic(left)
    shape = broadcast_shape(left.shape, right.shape)
    result = output(out, shape, left)
    _launch(kernel, shape, (left, right, result))
    return result


def _unary(
    kernel: Kernel, x: object, out: object | None, *, wide_16: Configuration = ELEMENTWISE_WIDE
) -> Array:
    array = as_array(x, name="x")
    check_computed_in_f32(array)
    result = output(out, array.shape, array)
    wide = wide_16 if dtype_of(array).bits == 16 else ELEMENTWISE_WIDE
    _launch(kernel, array.shape, (array, result), wide=wide)
    return result


def _launch(
    kernel: Kernel,
    shape: Shape,
    arrays: tuple[Array, ...],
    *,
    wide: Configuration = ELEMENTWISE_WIDE,
    is_always_wide: bool = False,
) -> None:
    operands = tuple(
        Operand(array, broadcast_strides(array.shape, strides_of(array), shape)) for array in arrays
    )
    for pointers, space in pieces(shape, operands, rank=4):
        configuration = elementwise_configuration(space.sizes[3])
        if is_always_wide or configuration == ELEMENTWISE_WIDE:
            configuration = wide
        rows = space.sizes[0] * space.sizes[1] * space.sizes[2]
        grid = (
            -(-space.sizes[3] // configuration.block_n),
            min(-(-rows // configuration.block_m), GRID_HEIGHT),
        )
        kernel[grid](
            *pointers,
            *space.sizes,
            *chain.from_iterable(space.strides),
            BLOCK_M=configuration.block_m,
            BLOCK_N=configuration.block_n,
            num_warps=configuration.num_warps,
        )
