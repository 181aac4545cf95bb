"""Asynchronous copies of PTX: `cp.async`, whose groups arrive when their thread waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from helpers import ptx_hopper
from helpers.ptx_arithmetic import Array
from helpers.ptx_program import Instruction

if TYPE_CHECKING:
    from helpers.ptx_interpreter import Machine

_STORE = Instruction(("st", "shared"), ())


@dataclass
class _UnderWay:
    """Copies under way: of each thread the data, where it goes, and its group."""

    threads: Array
    address: Array
    data: Array
    group: Array

    def chosen(self, which: Array) -> _UnderWay:
        return _UnderWay(
            self.threads[which], self.address[which], self.data[which], self.group[which]
        )


@dataclass
class Copies:
    """All copies under way, and how many groups each thread has committed."""

    groups: Array
    under_way: list[_UnderWay] = field(default_factory=list)


def copy(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Start copies, end a group of them, or wait for groups."""
    copies = machine.copies
    if instruction.opcode[1] == "reduce":
        ptx_hopper.copy_bulk(machine, instruction, threads)
        return
    match instruction.opcode[2]:
        case "bulk":
            ptx_hopper.copy_bulk(machine, instruction, threads)
        case "commit_group":
            copies.groups[threads] += 1
        case "wait_group":
            _deliver(machine, threads, copies.groups - int(instruction.operands[0]))
        case _:
            _start(machine, instruction, threads)


def _start(machine: Machine, instruction: Instruction, threads: Array) -> None:
    target, source, size_text, *present = instruction.operands
    size = int(size_text)
    bytes_read = (
        machine.read(present[0], threads, "u32").astype(np.int64)
        if present
        else np.full(len(threads), size)
    )
    machine.expect(
        bool(np.isin(bytes_read, (0, size)).all()) and size in (4, 8, 16),
        instruction,
        "copies of part of a vector are not what the compiler emits",
    )
    data = np.zeros((len(threads), size), np.uint8)
    reads = bytes_read > 0
    if reads.any():
        load = Instruction(("ld", "global"), instruction.operands)
        address = machine.address(source, threads)[reads]
        machine.check_aligned(load, address, size)
        data[reads] = machine.gather(load, threads[reads], address, size)
    address = machine.address(target, threads)
    machine.check_aligned(instruction, address, size)
    started = _UnderWay(threads, address, data, machine.copies.groups[threads])
    if machine.arrival == "early":
        machine.scatter(_STORE, threads, address, data)
    else:
        machine.copies.under_way.append(started)


def _deliver(machine: Machine, threads: Array, before: Array) -> None:
    """Write what these threads copy in groups that come before the given one of each thread."""
    waits = np.zeros(machine.count, bool)
    waits[threads] = True
    left = []
    for started in machine.copies.under_way:
        arrives = waits[started.threads] & (started.group < before[started.threads])
        if arrives.any():
            ready = started.chosen(arrives)
            machine.scatter(_STORE, ready.threads, ready.address, ready.data)
        if not arrives.all():
            left.append(started.chosen(~arrives))
    machine.copies.under_way = left
