"""Add two vectors with a kernel of your own: on the GPU if there is one, else in the interpreter.

The wheel holds a compiled form of this very kernel: it is found by what the source says, not by
where the file lies, so a copy of this file runs without a compiler too.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tl.kernel
def vecadd(x, y, out, n, BLOCK: tl.constexpr):  # noqa: D103
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


def main() -> None:
    """Add a million and one elements and compare with NumPy."""
    n = 1_000_001
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    grid = (-(-n // 1024),)
    if tw.device_count():
        out = tw.empty((n,), tl.float32)
        vecadd[grid](tw.from_numpy(x), tw.from_numpy(y), out, n, BLOCK=1024)
        result = out.numpy()
    else:
        result = np.empty_like(x)
        vecadd[grid](x, y, result, n, BLOCK=1024)
    for line in tw.resolved():
        print(line)
    print(f"vecadd: {n} elements, largest error against NumPy {np.abs(result - (x + y)).max()}")


if __name__ == "__main__":
    main()
