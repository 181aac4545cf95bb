"""Tile IR -> smaller tile IR with the same meaning: an ordered list of passes, each its own file.

`optimize` is what the pipeline calls. The list is the whole policy: no pass calls another, and none
depends on a later one for correctness, only for its effect.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes.cse import cse
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.drop_references import drop_references
from tilewright_compiler.passes.drop_unit_axes import drop_unit_axes
from tilewright_compiler.passes.fold import fold
from tilewright_compiler.passes.inline import inline
from tilewright_compiler.passes.licm import licm
from tilewright_compiler.passes.narrow_comparisons import narrow_comparisons
from tilewright_compiler.passes.unroll import unroll

__all__ = ["PASSES", "Pass", "optimize"]

Pass = Callable[[Module], Module]

PASSES: tuple[Pass, ...] = (
    inline,  # first: the others look at one function at a time
    fold,  # decides branches on constexpr arguments before their contents cost anything
    drop_unit_axes,  # after inline, which brings loads and reshapes together
    unroll,  # after fold, which makes steps constant; what the copies share is then merged
    cse,  # after fold, which makes equal constants out of different expressions
    narrow_comparisons,  # after cse, which shares what it looks at; licm moves its scalars
    licm,  # after cse: of two equal operations only the visible one is left to move
    cse,  # what two loops had each to themselves now stands in one block
    drop_references,  # before dce, which takes what only they used
    dce,  # last: removes what the others left without users
)


def optimize(module: Module, *, verify_each: bool = False) -> Module:
    """Return the optimised module. `verify_each` checks the input and the result of every pass."""
    if verify_each:
        verify(module)
    for run in PASSES:
        module = run(module)
        if verify_each:
            verify(module)
    return module
