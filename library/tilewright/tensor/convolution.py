"""2-D convolution of arrays of any sizes and strides: check, choose how tiles are read, launch."""

from __future__ import annotations

from math import prod
from numbers import Integral

from tilewright.abi.dtypes import bfloat16, float16, float32
from tilewright.errors import ArgumentError
from tilewright.kernels.convolution import convolution as kernel
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    as_array,
    check_same_dtype,
    dtype_of,
    is_fast,
    output,
    strides_of,
)
from tilewright.tensor.configurations import convolution_configuration
from tilewright.tensor.products import check_choice, count_tiles, launch_options, precision_of
from tilewright.tensor.strides import Shape, broadcast_strides

PRECISIONS = ("ieee", "tf32")
Pair = int | tuple[int, int]

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
    image, filters = as_array(x, name="x"), as_array(w, name="w")
    arrays = {"x": image, "w": filters}
    if bias is not None:
        arrays["bias"] = as_array(bias, name="bias")
    check_same_dtype(arrays)
    dtype = dtype_of(image)
    if dtype not in (float32, float16, bfloat16):
        msg = f"x has dtype {dtype}; convolution takes f32, f16 and bf16"
        raise ArgumentError(msg)
    check_choice("input_precision", input_precision, PRECISIONS)
    steps = _pair("stride", stride, lowest=1)
    pads = _pair("padding", padding, lowest=0)
    gaps = _pair("dilation", dilation, lowest=1)
    if len(image.shape) != 4 or len(filters.shape) != 4:
        msg = f"x and w have four axes each, got shapes {image.shape} and {filters.shape}"
        raise ArgumentError(msg)
    images, channels, *size = image.shape
    count, inner, *taps = filters.shape
    if (
        not isinstance(groups, Integral)
        or groups < 1
        or count % groups
        or channels != inner * groups
    ):
        msg = (
            f"w of shape {filters.shape} does not fit the {channels} channels of x in {groups} "
            f"groups: it has [filters, channels / groups, taps, taps], filters a multiple of groups"
        )
        raise ArgumentError(msg)
    if bias is not None and (
        arrays["bias"].shape != (count,) or (strides_of(arrays["bias"]) != (1,) and count > 1)
    ):
        msg = (
            f"bias must be contiguous of shape ({count},), got shape {arrays['bias'].shape} "
            f"with strides {strides_of(arrays['bias'])}"
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
    is_last = strides_of(image)[1] == 1 and channels > 1
    result = _result(out, (images, count, *results), image, channels_last=is_last)
    if not prod(result.shape):
        return result
    walked = [broadcast_strides(a.shape, strides_of(a), a.shape) for a in (image, filters, result)]
    pointers = (image, filters, arrays.get("bias", result), result)
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
    configuration = convolution_configuration(
        count // groups, dtype, fast=is_fast(kernel, pointers, integers)
    )
    tiles = count_tiles(images * prod(results), count // groups, configuration)
    kernel[(tiles, groups)](
        *pointers,
        *integers,
        CHANNELS_LAST=is_last,
        PRECISION=precision_of(dtype, input_precision),
        **launch_options(configuration),
    )
    return result


def _pair(name: str, value: Pair, *, lowest: int) -> tuple[int, int]:
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(x, Integral) and x >= lowest for x in pair):
        msg = f"{name} is an int or two, at least {lowest}, got {value!r}"
        raise ArgumentError(msg)
    return int(pair[0]), int(pair[1])


def _result(out: object | None, shape: Shape, like: Array, *, channels_last: bool) -> Array:
    if out is not None or not channels_last:
        return output(out, shape, like)
    images, filters, height, width = shape
    laid_out = output(None, (images, height, width, filters), like)
    if isinstance(laid_out, DeviceArray):
        strides = (height * width * filters, 1, width * filters, filters)
        return laid_out.view(shape, strides)
    return laid_out.transpose(0, 3, 1, 2)
