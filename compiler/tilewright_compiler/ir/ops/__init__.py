"""The operation set of the tile IR, one file a family. `SPECS` maps a name to its spec."""

from __future__ import annotations

from tilewright_compiler.ir.ops import (
    arithmetic,
    atomics,
    combine,
    control,
    debug,
    descriptor,
    dot,
    hints,
    indexing,
    inline_asm,
    libdevice,
    math,
    memory,
    reduction,
    roles,
    shape,
    shared,
)
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec

__all__ = ["SPECS", "Effect", "OperationSpec"]

SPECS: dict[str, OperationSpec] = {
    spec.name: spec
    for family in (
        shape,
        arithmetic,
        math,
        libdevice,
        inline_asm,
        memory,
        descriptor,
        atomics,
        dot,
        reduction,
        combine,
        indexing,
        control,
        hints,
        debug,
        shared,
        roles,
    )
    for spec in family.SPECS
}
