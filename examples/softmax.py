"""Row softmax with a kernel of your own, on a matrix whose rows lie apart in memory.

`tilewright.softmax` takes any width and shape; this kernel shows the idea on rows of up to `BLOCK`
columns.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tl.kernel
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):  # noqa: D103
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < columns
    values = tl.load(x + row * x_stride + lanes, mask=mask, other=float("-inf"))
    exponentials = tl.exp(values - tl.max(values, axis=0))
    result = exponentials / tl.sum(exponentials, axis=0)
    tl.store(out + row * out_stride + lanes, result, mask=mask)


def main() -> None:
    """Take the softmax of a slice of a matrix and compare with NumPy in float64."""
    rows, columns = 1823, 781
    matrix = np.random.default_rng(0).standard_normal((rows, 1000)).astype(np.float32)
    x = matrix[:, :columns]
    if tw.device_count():
        device_x = tw.from_numpy(matrix)[:, :columns]
        out = tw.empty((rows, columns), tl.float32)
        softmax[(rows,)](device_x, out, columns, device_x.strides[0], columns, BLOCK=1024)
        result = out.numpy()
    else:
        result = np.empty((rows, columns), np.float32)
        softmax[(rows,)](x, result, columns, 1000, columns, BLOCK=1024)
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    for line in tw.resolved():
        print(line)
    error = np.abs(result - exact).max()
    print(f"softmax: {rows} x {columns}, largest error against NumPy {error:.1e}")


if __name__ == "__main__":
    main()
