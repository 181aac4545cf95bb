"""Dots that run on after they were started: the warpgroup's, until a `dot_wait`."""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.layout.atoms import ATOMS


def is_asynchronous(operation: Operation) -> bool:
    """Whether an operation is a dot that runs on after it was started."""
    if operation.name != "dot" or operation.attributes.get("atom") not in ATOMS:
        return False
    return ATOMS[operation.attributes["atom"]].is_wgmma
