"""What each function of the language builds, one file for each file of `tilewright.language`.

Importing the package fills the registry.
"""

from __future__ import annotations

from tilewright_compiler.frontend.builtins import (
    atomics,
    block_pointers,
    debug,
    descriptor,
    dot,
    hints,
    indexing,
    inline_asm,
    libdevice,
    math,
    memory,
    program,
    random,
    reduce,
    scan,
    shape,
    solve,
    sort,
)

__all__ = [
    "atomics",
    "block_pointers",
    "debug",
    "descriptor",
    "dot",
    "hints",
    "indexing",
    "inline_asm",
    "libdevice",
    "math",
    "memory",
    "program",
    "random",
    "reduce",
    "scan",
    "shape",
    "solve",
    "sort",
]
