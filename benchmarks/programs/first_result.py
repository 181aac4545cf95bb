"""A fresh process to a checked vector addition; prints the wall clock at that moment."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
# As a file of the user's, not as a module of the checkout.
from vecadd import vecadd

x, y = np.random.default_rng().standard_normal((2, 4096)).astype(np.float32)
out = tw.from_numpy(np.full(4096, np.nan, np.float32))
vecadd[(4,)](tw.from_numpy(x), tw.from_numpy(y), out, 4096, BLOCK=1024)
if not np.array_equal(out.numpy(), x + y):
    sys.exit("vecadd gave a wrong result")
print(time.time())
