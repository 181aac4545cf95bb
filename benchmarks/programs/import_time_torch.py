"""What `import torch` costs; prints seconds."""

# The import is what is timed, so it stands between the clock's readings.
# ruff: noqa: E402, F401
from __future__ import annotations

import time

start = time.perf_counter()
import torch

print(time.perf_counter() - start)
