"""Add two vectors with a kernel of your own: on the GPU if there is one, else in the interpreter.

The wheel holds a compiled form of this very kernel: it is found by what the source says, not by where the
file lies, so a copy of this file runs without a compiler too.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tl.kernel
def vecadd(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)
