"""Atomic operations of PTX on bytes of memory: one thread after the other replaces an element."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.ptx_arithmetic import DTYPES, Array
from helpers.ptx_program import Instruction

_SCOPES = ("cta", "gpu", "sys")
_SEMANTICS = {
    "red": ("relaxed", "release"),
    "atom": ("relaxed", "acquire", "release", "acq_rel"),
}


def is_known(instruction: Instruction) -> bool:
    """Return whether PTX has this order, scope and state space for the operation."""
    name, sem, scope, space, *_ = instruction.opcode
    return sem in _SEMANTICS[name] and scope in _SCOPES and space in ("global", "shared")


def word_type(instruction: Instruction) -> str:
    """Return the type as which registers and memory hold an element, or a pair of halves."""
    type_ = instruction.opcode[-1]
    return "u32" if type_.endswith("x2") else type_


def in_turn(
    instruction: Instruction, memory: Array, places: Array, values: list[Array], *, reverse: bool
) -> Array:
    """Replace elements at byte `places`, one a thread; return what each thread found."""
    _, _, _, _, kind, *_, type_ = instruction.opcode
    dtype = np.dtype(DTYPES[word_type(instruction)])
    old = np.zeros(len(places), dtype)
    threads = range(len(places))
    for thread in reversed(threads) if reverse else threads:
        first = int(places[thread])
        element = memory[first : first + dtype.itemsize].view(dtype)
        old[thread] = element[0]
        element[0] = _left(kind, type_, old[thread], *(value[thread] for value in values))
    return old


def _left(kind: str, type_: str, old: Any, value: Any, exchanged: Any = None) -> Any:
    """Return what an operation leaves; sums of f32 flush subnormals (PTX ISA, atom)."""
    match kind:
        case "cas":
            return exchanged if old == value else old
        case "exch":
            return value
        case "add" if type_ == "f32":
            return _flushed(_flushed(old) + _flushed(value))
        case "add" if type_ == "f16x2":
            left, right = (np.array([word]).view(np.float16) for word in (old, value))
            return np.asarray((left + right).view(np.uint32))[0]
        case "add":
            return old + value
        case "max" | "min":
            assert type_[0] in "su", "floats have none"
            return max(old, value) if kind == "max" else min(old, value)
        case "and" | "or" | "xor":
            return {"and": old & value, "or": old | value, "xor": old ^ value}[kind]
    msg = f"atomic operation {kind}"
    raise NotImplementedError(msg)


def _flushed(value: Any) -> Any:
    is_small = abs(value) < np.finfo(np.float32).smallest_normal
    return np.copysign(np.float32(0), value) if is_small else value
