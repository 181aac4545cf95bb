"""What `import tilewright` and its language cost; prints seconds."""

# Imports are what is timed, so they stand between the clock's readings.
# ruff: noqa: E402, F401
from __future__ import annotations

import time

start = time.perf_counter()
import tilewright
import tilewright.language

print(time.perf_counter() - start)
