"""Replaces every call by the callee's body and keeps only the kernel.

Nothing downstream then knows calls: facts about a value are facts about its one use, and a
function's cost is that of what it computes. Calls are not recursive (the verifier checks it), so
this ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright_compiler.ir.builder import Builder, ValueMap, clone_operation, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value


def inline(module: Module) -> Module:
    """Return the kernel with all calls expanded."""

    def expand(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> Sequence[Value] | None:
        if operation.name != "call":
            return None
        callee = module.functions[operation.attributes["callee"]].body
        values: ValueMap = dict(zip(callee.arguments, operands, strict=True))
        for inner in callee.operations[:-1]:
            clone_operation(inner, values, builder, expand)
        return [values[value] for value in callee.terminator.operands]

    kernel = module.kernel
    only_kernel = Module({kernel.name: kernel}, module.signature, module.attributes)
    return rewrite_module(only_kernel, expand)
