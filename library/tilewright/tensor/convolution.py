"""2-D convolution of arrays of any sizes and strides: check, choose how tiles are read, launch."""

from __future__ import annotations

from math import prod
from numbers import Integral

from tilewright.abi.dtypes import bfloat16, float16, float32
from tilewright.errors import ArgumentError
from tilewright.kernels.convolution import convolution as kernel
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import GRID_HEIGHT, Array, fits_fast
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.configurations import convolution_configuration
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    check_one_dtype,
    new_array,
    operands,
    result_geometry,
)
from tilewright.tensor.launches import PlannedLaunch, Pointer, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import check_choice, count_tiles, launch_options, precision_of
from tilewright.tensor.strides import broadcast_strides

PRECISIONS = ("ieee", "tf32")
Pair = int | tuple[int, int]

# The operands by number, as the kernel takes them.
_X, _W, _BIAS, _OUT = range(4)

_LARGEST = 2**29 - 1  # so that sums of a size and paddings fit in 32 bits


def convolution(
    x: object,
    w: object,
    *,
    bias: object | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    input_precision: str = "ieee",
    out: object | None = None,
) -> Array:
    """Return the cross-correlation of `x` with `w`, `[images, filters, out height, out width]`.

    `x` is `[images, channels, height, width]`, `w` `[filters, channels / groups, taps, taps]` of
    any strides, `bias` contiguous `[filters]`, all of one dtype, f32, f16 or bf16; sums are in f32.
    Along each axis the result has `(size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1`
    elements, and what lies outside the image is 0. Without `out` the result is laid out channels
    last if `x` is. `input_precision` is what becomes of f32 operands, "ieee" or "tf32". See
    `reference.convolution`.
    """
    if type(input_precision) is not str or input_precision != "ieee":
        check_choice("input_precision", input_precision, PRECISIONS)
    steps = _pair("stride", stride, lowest=1)
    pads = _pair("padding", padding, lowest=0)
    gaps = _pair("dilation", dilation, lowest=1)
    if type(groups) is not int and not isinstance(groups, Integral):
        msg = f"groups is {groups!r}; it is an int"
        raise ArgumentError(msg)
    arrays, geometries = operands(x=x, w=w, bias=bias, out=out)
    launch, result = _plan(steps, pads, gaps, int(groups), input_precision, *geometries)
    array = arrays[_OUT]
    if array is None:
        array = arrays[_OUT] = _new_result(result, arrays)
    elif must_be_apart(arrays, _OUT, 0):
        apart = convolution(
            x, w,
            bias=bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
            input_precision=input_precision,
        )  # fmt: skip
        copy_elements(apart, array)
        return array
    if launch is not None:
        launch.run(arrays, ())
    return array


@planned
def _plan(
    steps: tuple[int, int],
    pads: tuple[int, int],
    gaps: tuple[int, int],
    groups: int,
    input_precision: str,
    x: Geometry,
    w: Geometry,
    bias: Geometry | None,
    out: Geometry | None,
) -> tuple[PlannedLaunch | None, Geometry]:
    """Check a convolution; return its launch, unless the result is empty, and its result."""
    check_given(x=x, w=w)
    check_one_dtype({"x": x, "w": w} | ({} if bias is None else {"bias": bias}))
    if x.dtype not in (float32, float16, bfloat16):
        msg = f"x has dtype {x.dtype}; convolution takes f32, f16 and bf16"
        raise ArgumentError(msg)
    if len(x.shape) != 4 or len(w.shape) != 4:
        msg = f"x and w have four axes each, got shapes {x.shape} and {w.shape}"
        raise ArgumentError(msg)
    images, channels, *size = x.shape
    count, inner, *taps = w.shape
    if groups < 1 or count % groups or channels != inner * groups:
        msg = (
            f"w of shape {w.shape} does not fit the {channels} channels of x in {groups} "
            f"groups: it has [filters, channels / groups, taps, taps], filters a multiple of groups"
        )
        raise ArgumentError(msg)
    if bias is not None and (bias.shape != (count,) or (bias.strides != (1,) and count > 1)):
        msg = (
            f"bias must be contiguous of shape ({count},), got shape {bias.shape} "
            f"with strides {bias.strides}"
        )
        raise ArgumentError(msg)
    results = [
        (size[axis] + 2 * pads[axis] - gaps[axis] * (taps[axis] - 1) - 1) // steps[axis] + 1
        for axis in (0, 1)
    ]
    if min(results) < 0 or min(taps) < 1:
        msg = f"taps {tuple(taps)} reach over images of {tuple(size)} with padding {pads}"
        raise ArgumentError(msg)
    if groups > GRID_HEIGHT:
        msg = f"there are {groups} groups; a grid has at most {GRID_HEIGHT}"
        raise ArgumentError(msg)
    reach = [gap * tap for gap, tap in zip(gaps, taps, strict=True)]
    if max(*size, *pads, *reach, inner * prod(taps)) > _LARGEST:
        msg = f"sizes, padding, reach of the taps and elements of a filter are at most {_LARGEST}"
        raise ArgumentError(msg)
    is_last = x.strides[1] == 1 and channels > 1
    result = result_geometry(out, (images, count, *results), x.dtype, x)
    if out is None and is_last:
        height, width = results
        strides = (height * width * count, 1, width * count, count)
        result = result._replace(strides=strides)
    if not prod(result.shape):
        return None, result
    walked = [broadcast_strides(a.shape, a.strides, a.shape) for a in (x, w, result)]
    integers = (
        images,
        inner,
        *size,
        count // groups,
        *taps,
        *results,
        *(stride for strides in walked for stride in strides),
        *steps,
        *pads,
        *gaps,
        int(bias is not None),
    )
    pointers = (
        Pointer(_X, 0, x.shape, x.strides),
        Pointer(_W, 0, w.shape, w.strides),
        # What is absent is never read; the result's address keeps the pointer valid.
        Pointer(_OUT if bias is None else _BIAS, 0, (count,), (1,)),
        Pointer(_OUT, 0, result.shape, result.strides),
    )
    given = [array for array in (x, w, bias, result) if array is not None]
    fast = all(array.is_aligned for array in given) and fits_fast(kernel, 4, integers)
    configuration = convolution_configuration(count // groups, x.dtype, fast=fast)
    tiles = count_tiles(images * prod(results), count // groups, configuration)
    options = {
        "CHANNELS_LAST": is_last,
        "PRECISION": precision_of(x.dtype, input_precision),
        **launch_options(configuration),
    }
    return PlannedLaunch(kernel, (tiles, groups, 1), pointers, integers, options), result


def _pair(name: str, value: Pair, *, lowest: int) -> tuple[int, int]:
    if type(value) is int and value >= lowest:
        return value, value
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(x, Integral) and x >= lowest for x in pair):
        msg = f"{name} is an int or two, at least {lowest}, got {value!r}"
        raise ArgumentError(msg)
    return int(pair[0]), int(pair[1])


def _new_result(geometry: Geometry, arrays: Arrays) -> Array:
    """Return a new array with the axes of a result, which may lie channels last."""
    if geometry.strides[1] != 1 or geometry.strides[3] == 1:
        return new_array(geometry, arrays)
    images, filters, height, width = geometry.shape
    dense = geometry._replace(
        shape=(images, height, width, filters),
        strides=(height * width * filters, width * filters, filters, 1),
    )
    laid_out = new_array(dense, arrays)
    if isinstance(laid_out, DeviceArray):
        return laid_out.view(geometry.shape, geometry.strides)
    return laid_out.transpose(0, 3, 1, 2)
