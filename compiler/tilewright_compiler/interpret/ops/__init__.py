"""One NumPy function for each operation, in files of the same names as `ir/ops`.

`COMPUTE` holds the operations that map operands to a result; `CONTROL` those that run regions.
Terminators have no function: their operands are what the block gives. `convert_layout` is the
identity.
"""

from __future__ import annotations

from tilewright_compiler.interpret.ops import (
    arithmetic,
    atomics,
    combine,
    control,
    debug,
    dot,
    hints,
    indexing,
    inline_asm,
    libdevice,
    math,
    memory,
    reduction,
    shape,
)
from tilewright_compiler.interpret.ops.form import Compute, Control

__all__ = ["COMPUTE", "CONTROL", "Compute", "Control"]

COMPUTE: dict[str, Compute] = {
    **shape.COMPUTE,
    **arithmetic.COMPUTE,
    **math.COMPUTE,
    **libdevice.COMPUTE,
    **memory.COMPUTE,
    **atomics.COMPUTE,
    **debug.COMPUTE,
    **dot.COMPUTE,
    **hints.COMPUTE,
    **reduction.COMPUTE,
    **indexing.COMPUTE,
    **control.COMPUTE,
}
CONTROL: dict[str, Control] = {**control.CONTROL, **combine.CONTROL, **inline_asm.CONTROL}
