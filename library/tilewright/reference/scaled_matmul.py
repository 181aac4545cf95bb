"""Products of 8-bit floats with scales: a is `[M, K]`, b `[K, N]`, the result `[M, N]`."""

from __future__ import annotations

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16
from tilewright.reference.precision import Array, factor, rounded

# Elements along an axis that share a scale, where neither all do nor each has its own.
SCALED_BLOCK = 128


@np.errstate(all="ignore")
def scaled_matmul(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    *,
    bias: Array | None = None,
    out_dtype: DType | None = None,
) -> Array:
    """Return `(a * a_scale) @ (b * b_scale) + bias`, rounded once to `out_dtype`, by default bf16.

    `a` is `[M, K]` and `b` `[K, N]`, of 8-bit floats. Along each axis a scale has one element, or
    one for each row or column, or one for each block of 128, the last one shorter.
    """
    left, right = (
        factor(x, input_precision="ieee", operation="scaled_matmul") * _over(scale, x)
        for x, scale in ((a, a_scale), (b, b_scale))
    )
    result = left @ right
    if bias is not None:
        result = result + bias.astype(result.dtype)
    return rounded(result, out_dtype or bfloat16)


def _over(scale: Array, x: Array) -> Array:
    """Return the scale of every element of a matrix."""
    if scale.ndim < 2:
        scale = scale.reshape(1, 1)
    for axis, extent in enumerate(x.shape):
        if scale.shape[axis] not in (1, extent):
            scale = np.repeat(scale, SCALED_BLOCK, axis=axis)
    rows, columns = x.shape
    return scale[:rows, :columns]
