"""Atomic operations of PTX on bytes of memory: one thread after the other replaces an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from helpers.ptx_arithmetic import DTYPES, Array, bits_of
from helpers.ptx_program import Instruction, names_of

if TYPE_CHECKING:
    from helpers.ptx_interpreter import Machine

_SCOPES = ("cta", "gpu", "sys")
_SEMANTICS = {
    "red": ("relaxed", "release"),
    "atom": ("relaxed", "acquire", "release", "acq_rel"),
}


def atom(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Replace elements and give what was there."""
    target, *rest = instruction.operands
    old = _replaced(machine, instruction, threads, *rest)
    machine.write(target, threads, old, _word_type(instruction))


def red(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Replace elements, or vectors of them."""
    pointer, given = instruction.operands
    names = names_of(given) if given.startswith("{") else (given,)
    size = bits_of(_word_type(instruction)) // 8
    machine.check_aligned(instruction, machine.address(pointer, threads), size * len(names))
    for index, name in enumerate(names):
        _replaced(machine, instruction, threads, pointer, name, offset=index * size)


def _replaced(
    machine: Machine,
    instruction: Instruction,
    threads: Array,
    pointer: str,
    *given: str,
    offset: int = 0,
) -> Array:
    machine.expect(_is_known(instruction), instruction, "no such atomic operation")
    type_ = _word_type(instruction)
    address, size = machine.address(pointer, threads) + offset, bits_of(type_) // 8
    machine.check_aligned(instruction, address, size)
    values = [machine.read(operand, threads, type_) for operand in given]
    old = np.zeros(len(threads), DTYPES[type_])
    for memory, rows, where, chosen in machine.places(instruction, threads, address, size):
        mine, is_reversed = [value[chosen] for value in values], machine.order == "descending"
        if memory.ndim == 2:  # that of each CTA behind the other
            where = rows * memory.shape[-1] + where
            memory = memory.reshape(-1)
        old[chosen] = _in_turn(instruction, memory, where, mine, reverse=is_reversed)
        machine.stored_bytes += size * len(where)
    return old


def _is_known(instruction: Instruction) -> bool:
    """Return whether PTX has this order, scope and state space for the operation."""
    name, sem, scope, space, *_ = instruction.opcode
    return sem in _SEMANTICS[name] and scope in _SCOPES and space in ("global", "shared")


def _word_type(instruction: Instruction) -> str:
    """Return the type as which registers and memory hold an element, or a pair of halves."""
    type_ = instruction.opcode[-1]
    return "u32" if type_.endswith("x2") else type_


def _in_turn(
    instruction: Instruction, memory: Array, places: Array, values: list[Array], *, reverse: bool
) -> Array:
    """Replace elements at byte `places`, one a thread; return what each thread found.

    Threads with elements of their own are done at once; where some meet, one after the other.
    """
    _, _, _, _, kind, *_, type_ = instruction.opcode
    dtype = np.dtype(DTYPES[_word_type(instruction)])
    old = np.zeros(len(places), dtype)
    waiting = np.arange(len(places))[:: -1 if reverse else 1]
    while waiting.size:
        _, first = np.unique(places[waiting], return_index=True)
        now = waiting[first]
        where = places[now][:, None] + np.arange(dtype.itemsize)
        old[now] = memory[where].view(dtype)[:, 0]
        left = _left(kind, type_, old[now], *(value[now] for value in values))
        memory[where] = left.astype(dtype)[:, None].view(np.uint8)
        waiting = np.delete(waiting, first)
    return old


def _left(kind: str, type_: str, old: Array, value: Array, exchanged: Array | None = None) -> Array:
    """Return what an operation leaves; sums of f32 flush subnormals (PTX ISA, atom)."""
    match kind:
        case "cas":
            assert exchanged is not None, "compare-and-swap has three sources"
            return np.where(old == value, exchanged, old)
        case "exch":
            return value
        case "add" if type_ == "f32":
            return _flushed(np.asarray(_flushed(old) + _flushed(value)))
        case "add" if type_ == "f16x2":
            sums = old.view(np.float16) + value.view(np.float16)
            return np.asarray(sums.view(np.uint32))
        case "add":
            return np.asarray(old + value)
        case "max" | "min":
            assert type_[0] in "su", "floats have none"
            return np.asarray((np.maximum if kind == "max" else np.minimum)(old, value))
        case "and" | "or" | "xor":
            return np.asarray({"and": old & value, "or": old | value, "xor": old ^ value}[kind])
    msg = f"atomic operation {kind}"
    raise NotImplementedError(msg)


def _flushed(values: Array) -> Array:
    is_small = np.abs(values) < np.finfo(np.float32).smallest_normal
    return np.where(is_small, np.copysign(np.float32(0), values), values)


EXECUTE: dict[str, Callable[[Machine, Instruction, Array], None]] = {"atom": atom, "red": red}
