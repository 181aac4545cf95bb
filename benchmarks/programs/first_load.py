"""What the first launch of one more kernel costs over its second; prints milliseconds."""

from __future__ import annotations

import sys
import time

import numpy as np

import tilewright as tw

# Names of the package are imported at first use; that is no part of loading a kernel.
from tilewright import softmax


def launch_ms() -> float:
    """Take the softmax of `x` and return the time until it is there."""
    start = time.perf_counter()
    softmax(x, out=out)
    tw.synchronize()
    return (time.perf_counter() - start) * 1e3


values = np.random.default_rng().standard_normal((64, 1000)).astype(np.float32)
x = tw.from_numpy(values)
out = tw.from_numpy(np.full((64, 1000), np.nan, np.float32))
# Another kernel first, so that the driver, the context and the bundle's manifest are there.
tw.exp(x, out=out)
tw.synchronize()

first = launch_ms()
exponentials = np.exp(values.astype(np.float64))
exact = exponentials / exponentials.sum(axis=1, keepdims=True)
if not np.allclose(out.numpy(), exact, rtol=1e-5, atol=1e-9):
    sys.exit("softmax gave a wrong result")
print(first - launch_ms())
