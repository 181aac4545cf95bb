"""Effects of whole operations, regions included: what may be removed, merged or moved."""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops import SPECS, Effect


def effect_of(operation: Operation) -> Effect:
    """Return what an operation does besides computing its results, regions left out.

    A volatile load is like an atomic operation: each one happens, in order.
    """
    if operation.name == "load" and operation.attributes["cache"] == "volatile":
        return Effect.ATOMIC
    return SPECS[operation.name].effect


def is_pure(operation: Operation) -> bool:
    """Whether the operation only computes its results and owns no region."""
    return effect_of(operation) is Effect.PURE


def is_read(operation: Operation) -> bool:
    """Whether the operation reads global memory and does nothing else."""
    return effect_of(operation) is Effect.READ


def may_write(operation: Operation) -> bool:
    """Whether the operation, or one inside it, writes; a call may do anything."""
    return any(
        inner.name == "call" or effect_of(inner) in (Effect.WRITE, Effect.ATOMIC)
        for inner in operation.walk()
    )


def may_wait(operation: Operation) -> bool:
    """Whether a loop inside may wait for what another program writes: it must then stay."""
    return any(
        inner.name == "while"
        and any(effect_of(read) in (Effect.READ, Effect.ATOMIC) for read in inner.walk())
        for inner in operation.walk()
    )
