"""A legalised dot -> the layouts that its instruction gives its operands and its result."""

from __future__ import annotations

from functools import lru_cache

from tilewright.errors import InternalCompilerError
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import shape_of
from tilewright_compiler.layout.atoms import ATOMS, DotLayouts, dot_layouts

_cached_layouts = lru_cache(maxsize=64)(dot_layouts)


def layouts_of_dot(operation: Operation, *, num_warps: int) -> DotLayouts:
    """Return the layouts of a dot that `passes.legalize_dot` has given its `atom` and `warps`."""
    if "atom" not in operation.attributes:
        msg = "a dot has no atom: legalize_dot comes before anything that asks for its layouts"
        raise InternalCompilerError(msg)
    a, b, _ = (shape_of(value.type) for value in operation.operands)
    return _cached_layouts(
        ATOMS[operation.attributes["atom"]],
        shape=(a[0], b[1], a[1]),
        warps=operation.attributes["warps"],
        num_warps=num_warps,
    )
