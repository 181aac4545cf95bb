"""2-D convolution, in the sense of neural networks: a cross-correlation."""

from __future__ import annotations

import numpy as np

from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentError
from tilewright.reference.precision import Array, factor, rounded

Pair = tuple[int, int]


@np.errstate(all="ignore")
def convolution(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    input_precision: str = "ieee",
) -> Array:
    """Return `out[n, f, y, x] = bias[f] + sum over c, r, s of w[f, c, r, s] * x[n, c, y', x']`.

    There `y' = y * stride + r * dilation - padding`, likewise x', and `x` is zero outside. `x` is
    `[images, channels, height, width]`, `w` `[filters, channels / groups, taps_y, taps_x]`: the
    filters of group g see the channels of group g. The result is `[images, filters, out_y, out_x]`
    with `out = (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1`, in the dtype of
    `x`. Arrays that lie in memory as NHWC are passed as transposed views.
    """
    images, channels, *extents = x.shape
    filters, group_channels, *taps = w.shape
    if channels != group_channels * groups or filters % groups:
        msg = f"convolution: x of shape {x.shape} and w of {w.shape} do not fit {groups} groups"
        raise ArgumentError(msg)
    image, weights = (
        factor(array, input_precision=input_precision, operation="convolution") for array in (x, w)
    )
    out = [
        (extents[i] + 2 * padding[i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    ]
    if min(out) < 0:
        msg = f"convolution: taps {taps} at dilation {dilation} exceed the padded image {extents}"
        raise ArgumentError(msg)
    image = np.pad(image, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    image = image.reshape(images, groups, group_channels, *image.shape[2:])
    weights = weights.reshape(groups, filters // groups, group_channels, *taps)
    total = np.zeros((images, groups, filters // groups, *out), image.dtype)
    for tap in np.ndindex(*taps):
        begins = [tap[i] * dilation[i] for i in (0, 1)]
        rows, columns = (
            slice(begins[i], begins[i] + out[i] * stride[i], stride[i]) for i in (0, 1)
        )
        seen = image[..., rows, columns]
        total += np.einsum("ngcyx,gfc->ngfyx", seen, weights[..., tap[0], tap[1]], optimize=True)
    result = total.reshape(images, filters, *out)
    if bias is not None:
        result = result + bias.astype(result.dtype)[:, None, None]
    return rounded(result, from_numpy(x.dtype))
