"""Effects of whole operations, regions included: what may be removed, merged or moved."""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops import SPECS, Effect


def is_pure(operation: Operation) -> bool:
    """Whether the operation only computes its results and owns no region."""
    return SPECS[operation.name].effect is Effect.PURE


def is_read(operation: Operation) -> bool:
    """Whether the operation reads global memory and does nothing else."""
    return SPECS[operation.name].effect is Effect.READ


def may_write(operation: Operation) -> bool:
    """Whether the operation, or one inside it, writes; a call may do anything."""
    return any(
        inner.name == "call" or SPECS[inner.name].effect in (Effect.WRITE, Effect.ATOMIC)
        for inner in operation.walk()
    )


def may_wait(operation: Operation) -> bool:
    """Whether a loop inside may wait for what another program writes: it must then stay."""
    return any(
        inner.name == "while"
        and any(SPECS[read.name].effect in (Effect.READ, Effect.ATOMIC) for read in inner.walk())
        for inner in operation.walk()
    )
