"""Elementwise operations on arrays of any shape and strides: broadcast, collapse, launch.

NumPy arrays run in the interpreter, device arrays on the GPU; the kernel is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain

from tilewright.errors import ArgumentError
from tilewright.kernels import elementwise as kernels
from tilewright.kernels import elementwise_backward as gradients
from tilewright.language.kernel import Kernel
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    check_computed_in_f32,
    check_has_arithmetic,
)
from tilewright.tensor.configurations import (
    ELEMENTWISE_WIDE,
    GELU_WIDE_16,
    Configuration,
    elementwise_configuration,
)
from tilewright.tensor.geometry import (
    Geometry,
    check_given,
    check_one_dtype,
    operands,
    result_geometry,
)
from tilewright.tensor.launches import (
    Piece,
    PlannedLaunch,
    pieces,
    planned,
    tile_options,
)
from tilewright.tensor.plans import Plan
from tilewright.tensor.strides import broadcast_shape, broadcast_strides


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
    return _unary(kernels.gelu, x, out)


def gelu_backward(x: object, dy: object, *, out: object | None = None) -> Array:
    """Return `dy * (Phi(x) + x * phi(x))`, the gradient of `gelu(x)` for that of its result.

    `x` and `dy` have one shape and dtype. See `reference.elementwise.gelu_backward`.
    """
    arrays, geometries = operands(x=x, dy=dy, out=out)
    return _plan_gelu_backward(*geometries).run(arrays)


def _binary(kernel: Kernel, x: object, y: object, out: object | None) -> Array:
    arrays, geometries = operands(x=x, y=y, out=out)
    return _plan_binary(kernel, *geometries).run(arrays)


def _unary(kernel: Kernel, x: object, out: object | None) -> Array:
    arrays, geometries = operands(x=x, out=out)
    return _plan_unary(kernel, *geometries).run(arrays)


@planned
def _plan_gelu_backward(x: Geometry, dy: Geometry, out: Geometry | None) -> Plan:
    check_given(x=x, dy=dy)
    check_computed_in_f32(x)
    check_one_dtype({"x": x, "dy": dy})
    if dy.shape != x.shape:
        msg = f"dy has shape {dy.shape}, x has {x.shape}; they must be equal"
        raise ArgumentError(msg)
    result = result_geometry(out, x.shape, x.dtype, x)
    apart = partial(_plan_gelu_backward, x, dy, None)
    return _plan(gradients.gelu_backward, (x, dy, result), apart, is_always_wide=True)


@planned
def _plan_binary(kernel: Kernel, x: Geometry, y: Geometry, out: Geometry | None) -> Plan:
    check_given(x=x, y=y)
    check_one_dtype({"x": x, "y": y})
    check_has_arithmetic(x)
    result = result_geometry(out, broadcast_shape(x.shape, y.shape), x.dtype, x)
    return _plan(kernel, (x, y, result), partial(_plan_binary, kernel, x, y, None))


@planned
def _plan_unary(kernel: Kernel, x: Geometry, out: Geometry | None) -> Plan:
    check_given(x=x)
    check_computed_in_f32(x)
    result = result_geometry(out, x.shape, x.dtype, x)
    is_narrow_gelu = kernel is kernels.gelu and x.dtype.bits == 16
    wide = GELU_WIDE_16 if is_narrow_gelu else ELEMENTWISE_WIDE
    return _plan(kernel, (x, result), partial(_plan_unary, kernel, x, None), wide=wide)


def _plan(
    kernel: Kernel,
    geometries: tuple[Geometry, ...],
    apart: Callable[[], Plan],
    *,
    wide: Configuration = ELEMENTWISE_WIDE,
    is_always_wide: bool = False,
) -> Plan:
    """Plan a kernel over the operands, the last of which is the result."""
    result = geometries[-1]
    strides = tuple(
        broadcast_strides(array.shape, array.strides, result.shape) for array in geometries
    )
    launches = tuple(
        _launch(kernel, piece, wide=wide, is_always_wide=is_always_wide)
        for piece in pieces(result.shape, strides, rank=4)
    )
    place = len(geometries) - 1
    return Plan(launches, result, place, apart, in_place=(1 << place) - 1)


def _launch(
    kernel: Kernel, piece: Piece, *, wide: Configuration, is_always_wide: bool
) -> PlannedLaunch:
    sizes, strides = piece.space.sizes, piece.space.strides
    configuration = elementwise_configuration(sizes[3])
    if is_always_wide or configuration == ELEMENTWISE_WIDE:
        configuration = wide
    rows = sizes[0] * sizes[1] * sizes[2]
    grid = (
        -(-sizes[3] // configuration.block_n),
        min(-(-rows // configuration.block_m), GRID_HEIGHT),
        1,
    )
    return PlannedLaunch(
        kernel,
        grid,
        piece.pointers(*range(len(strides))),
        (*sizes, *chain.from_iterable(strides)),
        tile_options(configuration),
    )
