"""Runs the PTX of a kernel on the CPU: all programs of a grid at once, one NumPy element a thread.

Every thread has its own program counter. A step executes one instruction for the threads that
wait at the lowest one, so that diverged threads meet again; where a warp is needed whole, those
behind come first, and one of which a part never comes is a fault. A barrier holds threads until
all of their CTA have come. `order` says which warps of a CTA may run ahead: running them one after
another instead of in lockstep shows a missing barrier. Accesses outside the arguments' memory,
misaligned ones and stores to shared memory beyond its size raise `PtxFault`. `arrival` says when
asynchronous copies arrive: late, which is when their thread waits for their group, or early, as
soon as they are started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from helpers import ptx_arithmetic as pa
from helpers import ptx_atomics, ptx_copies, ptx_fragments, ptx_hopper, ptx_matrix
from helpers.ptx_arithmetic import Array
from helpers.ptx_copies import Copies
from helpers.ptx_functions import FUNCTIONS
from helpers.ptx_hopper import Hopper, TensorMap
from helpers.ptx_program import Instruction, Program, names_of, parse
from helpers.ptx_rounding import directed

Order = Literal["lockstep", "ascending", "descending"]
Arrival = Literal["late", "early"]
WARP = 32
_SEGMENT = 1 << 32
_OF_WARP = -1
_BARRIERS = 16  # of each CTA
_MAX_STEPS = 2_000_000
_TURN = 8
_COLLECTIVE = ("ldmatrix", "mma", "shfl")  # executed by whole warps
# After these a thread may wait, be elsewhere or at its end.
_PARTING = frozenset(("bra", "ret", "exit", "bar", "barrier", "mbarrier", *ptx_hopper.ALIGNED))


Argument = Array | int | float | bool | TensorMap


class PtxFault(Exception):
    """The kernel did what would be an error or undefined on a GPU."""


@dataclass(frozen=True)
class Run:
    """What a launch did: instructions executed by opcode (once a thread) and bytes stored."""

    executed: Counter[str]
    stored_bytes: int
    barriers: int


def launch(
    ptx: str,
    *,
    grid: tuple[int, int, int],
    arguments: Sequence[Argument],
    shared_bytes: int = 0,
    order: Order = "lockstep",
    arrival: Arrival = "late",
    offsets: Mapping[int, int] | None = None,
) -> Run:
    """Run a kernel, writing its array arguments in place.

    `offsets` moves the address of an argument by so many bytes from its alignment of 256.
    """
    machine = Machine(parse(ptx), grid, shared_bytes, order, arrival)
    machine.set_arguments(arguments, offsets or {})
    with np.errstate(all="ignore"):
        machine.run()
    return Run(machine.executed, machine.stored_bytes, machine.barriers)


class Machine:
    """The state of a launch."""

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        shared_bytes: int,
        order: Order,
        arrival: Arrival,
    ) -> None:
        self.program, self.grid, self.order, self.arrival = program, grid, order, arrival
        ctas = int(np.prod(grid))
        self.count = ctas * program.num_threads
        thread = np.arange(self.count)
        self.cta, self.tid = np.divmod(thread, program.num_threads)
        self.warp = thread // WARP
        self.pc = np.zeros(self.count, np.int64)
        # The barrier that a thread waits at, and the pc of a wait that is to be tried again.
        self.waits = np.zeros(self.count, bool)
        self.barrier = np.zeros(self.count, np.int64)
        self.tries = np.full(self.count, -1)
        self.has_news = False
        self.hopper = Hopper()
        self.tensor_maps: dict[int, TensorMap] = {}
        self.registers: dict[str, Array] = {}
        self.executed: Counter[str] = Counter()
        self.stored_bytes = self.barriers = 0
        # Garbage rather than zeros: nobody may read what nobody wrote.
        self.shared = np.full((ctas, shared_bytes), 0xCD, np.uint8)
        self.local = np.full((self.count, sum(program.local.values())), 0xCD, np.uint8)
        self.copies = Copies(np.zeros(self.count, np.int64))
        self.segments: dict[int, Array] = {}
        self.symbols: dict[str, int] = dict.fromkeys((*program.shared, *program.local), 0)
        for name, (type_, values) in program.arrays.items():
            data = np.array(values, np.uint64).astype(pa.DTYPES[type_])
            self.symbols[name] = self._map(data, 0)
        self.parameters = np.zeros(0, np.uint8)

    def _map(self, array: Array, offset: int) -> int:
        base = (len(self.segments) + 1) * _SEGMENT
        self.segments[base // _SEGMENT] = array.reshape(-1).view(np.uint8)
        return base + offset

    def set_arguments(self, arguments: Sequence[Argument], offsets: Mapping[int, int]) -> None:
        pairs = zip(self.program.parameters, arguments, strict=True)
        for index, ((name, type_), value) in enumerate(pairs):
            if isinstance(value, TensorMap):
                if not value.memory.flags.c_contiguous or type_ != "b8[128]":
                    msg = f"{name} of type {type_} is no tensor map of whole memory"
                    raise PtxFault(msg)
                self.symbols[name] = _TENSOR_MAPS + index
                self.tensor_maps[_TENSOR_MAPS + index] = value
                continue
            if isinstance(value, np.ndarray):
                value = self._map(value, offsets.get(index, 0))
            # 16-bit floats come in integers' parameters.
            scalar = value.view(np.uint16) if isinstance(value, np.float16) else value
            data = np.array([scalar]).astype(pa.DTYPES[type_]).view(np.uint8)
            gap = -len(self.parameters) % len(data)
            self.symbols[name] = len(self.parameters) + gap
            self.parameters = np.concatenate([self.parameters, np.zeros(gap, np.uint8), data])

    def run(self) -> None:
        instructions, step = self.program.instructions, 0
        end = len(instructions)
        while step < _MAX_STEPS:
            alive = self.pc < end
            if not alive.any():
                ptx_hopper.finish(self)
                return
            ready = self._may_run(alive & ~self.waits & (self.tries < 0))
            if not ready.any() and self._tried_again():
                step += 1
                continue
            ready = self._with_turn(step, ready)
            if not ready.any():
                msg = "all threads wait at barriers that not all threads of their CTA reach"
                raise PtxFault(msg)
            pc = self._turn_of(ready)
            here = ready & (self.pc == pc)
            # What follows is the turn of the same threads until they come to others or may part.
            others, left_of_turn = self.pc[ready & ~here], -step % _TURN or 1
            until = min(int(others.min(initial=end)), pc + left_of_turn)
            threads = np.flatnonzero(here)
            while True:
                self._step(instructions[pc], threads)
                step += 1
                parts = instructions[pc].opcode[0] in _PARTING
                pc += 1
                if parts or pc >= until or instructions[pc].opcode[0] in _COLLECTIVE:
                    break
        msg = f"no end after {_MAX_STEPS} steps"
        raise PtxFault(msg)

    def _turn_of(self, ready: Array) -> int:
        """Return the lowest instruction, unless others of a warp that it needs whole are behind."""
        lowest = int(self.pc[ready].min())
        if self.program.instructions[lowest].opcode[0] in _COLLECTIVE:
            here = np.bincount(self.warp[ready & (self.pc == lowest)], minlength=self.warp[-1] + 1)
            others = ready & (self.pc > lowest) & ((here > 0) & (here < WARP))[self.warp]
            if others.any():
                return self._turn_of(others)
        return lowest

    def _with_turn(self, step: int, ready: Array) -> Array:
        """Now and then let one CTA run alone, so that others may wait for what it writes."""
        if step % _TURN or not ready.any():
            return ready
        alone = ready & (self.cta == step // _TURN % self.shared.shape[0])
        return alone if alone.any() else ready

    def _tried_again(self) -> bool:
        """Let a copy arrive, or waits be tried again if something has happened; False if not."""
        if self.hopper.loads:
            self.hopper.loads.pop(0)()
            self.has_news = True
        if not self.has_news:
            return False
        self.has_news = False
        self.tries[:] = -1
        return True

    def _may_run(self, ready: Array) -> Array:
        if self.order == "lockstep":
            return ready
        first, none = (np.minimum, self.count) if self.order == "ascending" else (np.maximum, -1)
        turn = np.full(self.shared.shape[0], none)
        first.at(turn, self.cta[ready], self.warp[ready])
        return np.asarray(ready & (self.warp == turn[self.cta]))

    def _step(self, instruction: Instruction, threads: Array) -> None:
        following = self.pc[threads] + 1
        here, active = threads, _EVERYWHERE
        if instruction.guard:
            active = self.bits(instruction.guard)[threads] != instruction.guard_is_negated
            here = threads[active]
        if instruction.opcode[0] in ptx_hopper.ALIGNED and not self._meets(threads):
            return
        name = instruction.opcode[0]
        self.executed[instruction.name] += len(here)
        if name == "bra":
            following[active] = self.program.labels[instruction.operands[0]]
        elif name in ("ret", "exit"):
            following[active] = len(self.program.instructions)
        elif name in ("bar", "barrier"):
            wait = self._warp_barrier if instruction.opcode[1] == "warp" else self._barrier
            wait(instruction, threads)
            return
        elif name == "mbarrier":
            stays = ptx_hopper.mbarrier(self, instruction, here)
            self.tries[stays] = 1
            self.has_news |= instruction.opcode[1] == "arrive"
            following[np.isin(threads, stays)] -= 1
        elif len(here):
            execute = getattr(self, f"_do_{name}", None)
            if name in FUNCTIONS:
                execute = self._function
            if name in _EXECUTE:
                _EXECUTE[name](self, instruction, here)
            elif execute is not None:
                execute(instruction, here)
            else:
                msg = f"instruction {instruction} is not known to this interpreter"
                raise NotImplementedError(msg)
        self.pc[threads] = following

    def _warp_barrier(self, _instruction: Instruction, threads: Array) -> None:
        self.pc[self._met(threads)] += 1

    def _meets(self, threads: Array) -> bool:
        """Whether whole warps execute an instruction; what comes alone waits for the rest."""
        whole = np.bincount(self.warp[threads], minlength=self.count // WARP)
        if np.isin(whole, (0, WARP)).all():
            return True
        self._met(threads)
        return False

    def _met(self, threads: Array) -> Array:
        """Let threads wait for their warps; return those of warps that are complete by that."""
        self.waits[threads], self.barrier[threads] = True, _OF_WARP
        waits = self.waits & (self.barrier == _OF_WARP)
        missing = (self.pc < len(self.program.instructions)) & ~waits
        is_whole = np.bincount(self.warp[missing], minlength=self.count // WARP) == 0
        released = np.flatnonzero(waits & is_whole[self.warp])
        self.waits[released] = False
        return released

    def _barrier(self, instruction: Instruction, threads: Array) -> None:
        number, *count = instruction.operands
        numbers = self.read(number, threads, "u32")
        self.waits[threads], self.barrier[threads] = True, numbers
        if count:
            here = self.waits & np.isin(self.barrier, numbers)
            barrier = self.cta * _BARRIERS + self.barrier
            have_come = np.bincount(barrier[here], minlength=_BARRIERS * self.shared.shape[0])
            released = here & (have_come[barrier] == int(count[0]))
        else:
            alive = self.pc < len(self.program.instructions)
            held = np.ones(self.shared.shape[0], bool)
            np.logical_and.at(held, self.cta[alive], self.waits[alive])
            released = alive & held[self.cta]
        places = np.unique(self.pc[released])
        if len(places) > 1:
            msg = f"threads of a CTA wait at different barriers: {places.tolist()}"
            raise PtxFault(msg)
        self.barriers += len(np.unique(self.cta[released]))
        self.waits[released] = False
        self.pc[released] += 1

    def expect(self, holds: bool, instruction: Instruction, problem: str) -> None:
        """Raise PtxFault unless a condition of an instruction holds."""
        if not holds:
            msg = f"{instruction}: {problem}"
            raise PtxFault(msg)

    def tensor_map(self, address: int) -> TensorMap:
        """Return the tensor map that a parameter holds."""
        if address not in self.tensor_maps:
            msg = f"no tensor map at {address:#x}"
            raise PtxFault(msg)
        return self.tensor_maps[address]

    # Operands

    def _type_of(self, name: str) -> str:
        return self.program.registers[name if name in self.program.registers else _family(name)]

    def bits(self, name: str) -> Array:
        """Return a register of all threads, to read and to write."""
        if name not in self.registers:
            type_ = self._type_of(name)
            dtype = np.bool_ if type_ == "pred" else pa.unsigned(pa.bits_of(type_))
            self.registers[name] = np.zeros(self.count, dtype)
        return self.registers[name]

    def read(self, operand: str, threads: Array, type_: str) -> Array:
        written = self.registers.get(operand)
        if written is not None:
            return pa.from_bits(written[threads], type_)
        if operand in self.program.registers or (
            operand.startswith("%") and not (operand in _SPECIAL or operand[1:].startswith(_AXES))
        ):
            return pa.from_bits(self.bits(operand)[threads], type_)
        if operand.startswith("%"):
            return pa.from_bits(self._special(operand)[threads].astype(np.uint64), type_)
        if operand in self.symbols:
            value = self.symbols[operand]
        elif operand in ("true", "false"):
            return np.full(len(threads), operand == "true")
        elif operand[:2].lower() in ("0f", "0d"):
            value = int(operand[2:], 16)
        else:
            value = int(operand.removesuffix("U"), 0)
        if type_ == "pred":
            return np.full(len(threads), bool(value))
        return pa.from_bits(np.full(len(threads), value & (1 << 64) - 1, np.uint64), type_)

    def _special(self, name: str) -> Array:
        if name == "%laneid":
            return self.tid % WARP
        kind, axis = name[1:].split(".")
        place = "xyz".index(axis)
        if kind == "tid":
            return self.tid if place == 0 else np.zeros_like(self.tid)
        if kind == "ntid":
            return np.full(self.count, self.program.num_threads if place == 0 else 1)
        if kind == "nctaid":
            return np.full(self.count, self.grid[place])
        before = int(np.prod(self.grid[:place]))
        return self.cta // before % self.grid[place]

    def write(self, operand: str, threads: Array, values: Array, type_: str) -> None:
        if operand == "_":
            return
        register = self.bits(operand)
        register[threads] = pa.to_bits(values, type_, register.dtype.itemsize * 8)

    def _sources(self, instruction: Instruction, threads: Array, type_: str) -> list[Array]:
        return [self.read(operand, threads, type_) for operand in instruction.operands[1:]]

    def address(self, operand: str, threads: Array) -> Array:
        base, _, offset = operand.strip("[]").partition("+")
        return self.read(base.strip(), threads, "s64" if self._is_wide(base) else "u32").astype(
            np.int64
        ) + int(offset or 0)

    def _is_wide(self, base: str) -> bool:
        return not base.startswith("%") or self._type_of(base.strip()).endswith("64")

    # Memory

    def _do_ld(self, instruction: Instruction, threads: Array) -> None:
        type_, size = instruction.opcode[-1], pa.bits_of(instruction.opcode[-1]) // 8
        targets = names_of(instruction.operands[0])
        address = self.address(instruction.operands[1], threads)
        self.check_aligned(instruction, address, size * len(targets))
        raw = self.gather(instruction, threads, address, size * len(targets))
        for index, target in enumerate(targets):
            part = np.ascontiguousarray(raw[:, index * size : (index + 1) * size])
            self.write(target, threads, part.view(pa.DTYPES[type_])[:, 0], type_)

    def _do_st(self, instruction: Instruction, threads: Array) -> None:
        type_, size = instruction.opcode[-1], pa.bits_of(instruction.opcode[-1]) // 8
        names = names_of(instruction.operands[1])
        parts = [
            np.ascontiguousarray(self.read(name, threads, type_)).view(np.uint8).reshape(-1, size)
            for name in names
        ]
        data = np.concatenate(parts, axis=1)
        address = self.address(instruction.operands[0], threads)
        self.scatter(instruction, threads, address, data)

    def scatter(
        self, instruction: Instruction, threads: Array, address: Array, data: Array
    ) -> None:
        self.check_aligned(instruction, address, data.shape[1])
        for memory, rows, where, chosen in self.places(
            instruction, threads, address, data.shape[1]
        ):
            if not memory.flags.writeable:
                msg = f"{instruction}: store to constant memory"
                raise PtxFault(msg)
            columns = where[:, None] + np.arange(data.shape[1])
            if memory.ndim == 1:
                memory[columns] = data[chosen]
                self.stored_bytes += data[chosen].size
            else:
                memory[rows[:, None], columns] = data[chosen]

    def gather(self, instruction: Instruction, threads: Array, address: Array, size: int) -> Array:
        result = np.zeros((len(threads), size), np.uint8)
        for memory, rows, where, chosen in self.places(instruction, threads, address, size):
            columns = where[:, None] + np.arange(size)
            result[chosen] = memory[columns] if memory.ndim == 1 else memory[rows[:, None], columns]
        return result

    def places(
        self, instruction: Instruction, threads: Array, address: Array, size: int
    ) -> list[tuple[Array, Array, Array, Array]]:
        """Return (memory, row, column, which threads) for each memory that is touched."""
        everyone = np.ones(len(threads), bool)
        if "shared" in instruction.opcode:
            places: list[tuple[Array, Array, Array, Array]]
            places = [(self.shared, self.cta[threads], address, everyone)]
        elif "param" in instruction.opcode:
            places = [(self.parameters, threads, address, everyone)]
        elif "local" in instruction.opcode:
            places = [(self.local, threads, address, everyone)]
        else:
            segment = address // _SEGMENT
            places = []
            for number in np.unique(segment).tolist():
                chosen = segment == number
                memory = self.segments.get(number, np.zeros(0, np.uint8))
                where = address[chosen] - number * _SEGMENT
                places.append((memory, threads[chosen], where, chosen))
        for memory, _, where, _ in places:
            if where.min() < 0 or where.max() + size > memory.shape[-1]:
                msg = (
                    f"{instruction}: access of {size} bytes at {int(where.min())}.."
                    f"{int(where.max())} of a memory of {memory.shape[-1]}"
                )
                raise PtxFault(msg)
        return places

    def check_aligned(self, instruction: Instruction, address: Array, size: int) -> None:
        if (address % size).any():
            msg = f"{instruction}: address {int(address[address % size != 0][0]):#x} not aligned"
            raise PtxFault(msg)

    # Moves between lanes, moves and conversions

    def check_whole_warps(self, instruction: Instruction, threads: Array) -> None:
        whole = np.bincount(self.warp[threads], minlength=self.count // WARP)
        if not np.isin(whole, (0, WARP)).all():
            msg = f"{instruction}: executed by a part of a warp"
            raise PtxFault(msg)

    def _do_mov(self, instruction: Instruction, threads: Array) -> None:
        target, source = instruction.operands
        type_ = instruction.opcode[-1]
        if target.startswith("{"):
            names = names_of(target)
            value = self.read(source, threads, f"u{pa.bits_of(type_)}")
            width = pa.bits_of(type_) // len(names)
            for index, name in enumerate(names):
                part = value >> value.dtype.type(index * width)
                self.write(name, threads, part.astype(pa.unsigned(width)), f"u{width}")
            return
        if source.startswith("{"):
            names = names_of(source)
            width = pa.bits_of(type_) // len(names)
            value = np.zeros(len(threads), np.uint64)
            for index, name in enumerate(names):
                part = self.read(name, threads, f"u{width}").astype(np.uint64)
                value |= part << np.uint64(index * width)
            self.write(target, threads, value.astype(pa.DTYPES[f"u{pa.bits_of(type_)}"]), type_)
            return
        self.write(target, threads, self.read(source, threads, type_), type_)

    def _do_cvta(self, instruction: Instruction, threads: Array) -> None:
        self.write(
            instruction.operands[0], threads, self.read(instruction.operands[1], threads, "u64"),
            "u64",
        )  # fmt: skip

    def _do_cvt(self, instruction: Instruction, threads: Array) -> None:
        *modifiers, target, source = instruction.opcode[1:]
        if target == "tf32":
            (value,) = self._sources(instruction, threads, source)
            rounded = ptx_matrix.round_tf32(value)
            self.write(instruction.operands[0], threads, rounded, "f32")
            return
        (value,) = self._sources(instruction, threads, "f32" if target == "bf16x2" else source)[:1]
        mode = next((m for m in modifiers if m[0] == "r"), "rn")
        if target in ("bf16x2", "f16x2"):
            high, low = self._sources(instruction, threads, "f32")
            narrow = target[:-2]
            pair = [pa.to_bits(x, narrow, 16).astype(np.uint32) for x in (low, high)]
            value = pair[0] | pair[1] << np.uint32(16)
            target = "u32"
        elif source[0] in "fb" and target[0] in "fb":
            value = self._float_to_float(value, target, modifiers, mode)
        elif source[0] in "fb":
            rounded = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil}.get(mode, np.trunc)(value)
            value = pa.float_to_integer(rounded, target)
        elif target[0] == "f":
            value = pa.integer_to_float(value, target, mode)
        elif "sat" in modifiers:
            info = pa.integer_limits(target)
            value = np.clip(value, info.min, info.max)
        self.write(instruction.operands[0], threads, value.astype(pa.DTYPES[target]), target)

    def _float_to_float(
        self, value: Array, target: str, modifiers: Sequence[str], mode: str
    ) -> Array:
        to_integer = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
        if mode in to_integer:
            value = to_integer[mode](value)
        if "sat" in modifiers:
            value = np.clip(np.where(np.isnan(value), 0, value), 0, 1)
        if target == "bf16" and mode == "rz":
            return pa.truncate_bf16(value)
        if target == "bf16":
            return pa.widen_bf16(pa.round_bf16(value))
        if mode in ("rz", "rm", "rp"):
            return pa.round_mode(value.astype(np.float64), target, mode)
        return value.astype(pa.DTYPES[target])

    # Arithmetic

    def _binary(self, instruction: Instruction, threads: Array) -> tuple[Array, Array, str]:
        type_ = instruction.opcode[-1]
        left, right = self._sources(instruction, threads, type_)
        return left, right, type_

    def _result(self, instruction: Instruction, threads: Array, value: Array, type_: str) -> None:
        self.write(instruction.operands[0], threads, value, type_)

    def _do_add(self, instruction: Instruction, threads: Array) -> None:
        if not self._directed(instruction, threads):
            left, right, type_ = self._binary(instruction, threads)
            self._result(instruction, threads, left + right, type_)

    def _do_sub(self, instruction: Instruction, threads: Array) -> None:
        if not self._directed(instruction, threads):
            left, right, type_ = self._binary(instruction, threads)
            self._result(instruction, threads, left - right, type_)

    def _function(self, instruction: Instruction, threads: Array) -> None:
        compute, result = FUNCTIONS[instruction.opcode[0]]
        type_ = instruction.opcode[-1].replace("b", "u")
        value = compute(*self._sources(instruction, threads, type_))
        self._result(instruction, threads, value, result or type_)

    def _directed(self, instruction: Instruction, threads: Array) -> bool:
        """Execute arithmetic that rounds elsewhere than to nearest; return whether it does."""
        mode = next((word for word in instruction.opcode if word in ("rz", "rm", "rp")), None)
        type_ = instruction.opcode[-1]
        if mode is None or type_ not in ("f32", "f64"):
            return False
        value = directed(instruction.opcode[0], mode, self._sources(instruction, threads, type_))
        self._result(instruction, threads, value, type_)
        return True

    def _do_mul(self, instruction: Instruction, threads: Array) -> None:
        if self._directed(instruction, threads):
            return
        if instruction.opcode[-1] == "f16x2":
            words = self._sources(instruction, threads, "u32")
            left, right = (word.view(np.float16) for word in words)
            self._result(instruction, threads, (left * right).view(np.uint32), "u32")
            return
        left, right, type_ = self._binary(instruction, threads)
        if "wide" in instruction.opcode:
            type_ = f"{type_[0]}{2 * pa.bits_of(type_)}"
            left, right = (x.astype(pa.DTYPES[type_]) for x in (left, right))
        elif "hi" in instruction.opcode:
            bits = pa.bits_of(type_)
            wide = [int(a) * int(b) >> bits for a, b in zip(left, right, strict=True)]
            value = np.array(wide, object).astype(pa.DTYPES[type_])
            self._result(instruction, threads, value, type_)
            return
        self._result(instruction, threads, left * right, type_)

    def _do_mad(self, instruction: Instruction, threads: Array) -> None:
        type_ = instruction.opcode[-1]
        left, right = (self.read(x, threads, type_) for x in instruction.operands[1:3])
        if "wide" in instruction.opcode:
            type_ = f"{type_[0]}{2 * pa.bits_of(type_)}"
            left, right = (x.astype(pa.DTYPES[type_]) for x in (left, right))
        addend = self.read(instruction.operands[3], threads, type_)
        self._result(instruction, threads, left * right + addend, type_)

    def _do_fma(self, instruction: Instruction, threads: Array) -> None:
        _, mode, *_, type_ = instruction.opcode
        if type_.endswith("x2"):
            self._packed_fma(instruction, threads, type_[:-2])
            return
        if type_ == "f64" and self._directed(instruction, threads):
            return
        a, b, c = self._sources(instruction, threads, type_)
        value = pa.fma(a, b, c, type_=type_, mode=mode)
        if "sat" in instruction.opcode:
            value = np.clip(np.where(np.isnan(value), 0, value), 0, 1)
        self._result(instruction, threads, value, type_)

    def _packed_fma(self, instruction: Instruction, threads: Array, type_: str) -> None:
        words = self._sources(instruction, threads, "u32")
        result = np.zeros(len(threads), np.uint32)
        for half in (0, 16):
            a, b, c = (pa.from_bits(word >> np.uint32(half) & 0xFFFF, type_) for word in words)
            value = pa.to_bits(pa.fma(a, b, c, type_=type_, mode="rn"), type_, 16)
            result |= value.astype(np.uint32) << np.uint32(half)
        self._result(instruction, threads, result, "u32")

    def _do_div(self, instruction: Instruction, threads: Array) -> None:
        if self._directed(instruction, threads):
            return
        left, right, type_ = self._binary(instruction, threads)
        if type_[0] == "f":
            self._result(instruction, threads, left / right, type_)
            return
        quotient, _ = pa.truncated_division(left, right)
        self._result(instruction, threads, quotient, type_)

    def _do_rem(self, instruction: Instruction, threads: Array) -> None:
        left, right, type_ = self._binary(instruction, threads)
        _, remainder = pa.truncated_division(left, right)
        self._result(instruction, threads, remainder, type_)

    def _do_min(self, instruction: Instruction, threads: Array) -> None:
        self._min_max(instruction, threads, pa.minimum)

    def _do_max(self, instruction: Instruction, threads: Array) -> None:
        self._min_max(instruction, threads, pa.maximum)

    def _min_max(self, instruction: Instruction, threads: Array, compute: Any) -> None:
        left, right, type_ = self._binary(instruction, threads)
        value = compute(left, right, propagates_nan="NaN" in instruction.opcode)
        self._result(instruction, threads, value, type_)

    def _unary(self, instruction: Instruction, threads: Array, compute: Any) -> None:
        type_ = instruction.opcode[-1]
        (value,) = self._sources(instruction, threads, type_)
        wide = value.astype(np.float64) if type_ == "f32" else value
        self._result(instruction, threads, compute(wide).astype(value.dtype), type_)

    def _do_neg(self, instruction: Instruction, threads: Array) -> None:
        if instruction.opcode[-1].endswith("x2"):
            (word,) = self._sources(instruction, threads, "u32")
            self._result(instruction, threads, word ^ np.uint32(0x80008000), "u32")
            return
        self._unary(instruction, threads, np.negative)

    def _do_abs(self, instruction: Instruction, threads: Array) -> None:
        self._unary(instruction, threads, np.abs)

    def _do_sqrt(self, instruction: Instruction, threads: Array) -> None:
        if not self._directed(instruction, threads):
            self._unary(instruction, threads, np.sqrt)

    def _do_rsqrt(self, instruction: Instruction, threads: Array) -> None:
        self._unary(instruction, threads, lambda x: 1 / np.sqrt(x))

    def _do_rcp(self, instruction: Instruction, threads: Array) -> None:
        if not self._directed(instruction, threads):
            self._unary(instruction, threads, lambda x: 1 / x)

    def _do_ex2(self, instruction: Instruction, threads: Array) -> None:
        self._unary(instruction, threads, np.exp2)

    def _do_lg2(self, instruction: Instruction, threads: Array) -> None:
        self._unary(instruction, threads, np.log2)

    def _do_sin(self, instruction: Instruction, threads: Array) -> None:
        self._unary(instruction, threads, np.sin)

    def _do_cos(self, instruction: Instruction, threads: Array) -> None:
        self._unary(instruction, threads, np.cos)

    # Bits, predicates, lanes

    def _do_and(self, instruction: Instruction, threads: Array) -> None:
        left, right, type_ = self._binary(instruction, threads)
        self._result(instruction, threads, left & right, type_)

    def _do_or(self, instruction: Instruction, threads: Array) -> None:
        left, right, type_ = self._binary(instruction, threads)
        self._result(instruction, threads, left | right, type_)

    def _do_xor(self, instruction: Instruction, threads: Array) -> None:
        left, right, type_ = self._binary(instruction, threads)
        self._result(instruction, threads, left ^ right, type_)

    def _do_not(self, instruction: Instruction, threads: Array) -> None:
        type_ = instruction.opcode[-1]
        (value,) = self._sources(instruction, threads, type_)
        self._result(instruction, threads, ~value, type_)

    def _do_shl(self, instruction: Instruction, threads: Array) -> None:
        self._shift(instruction, threads, lambda value, amount: value << amount)

    def _do_shr(self, instruction: Instruction, threads: Array) -> None:
        self._shift(instruction, threads, lambda value, amount: value >> amount)

    def _shift(self, instruction: Instruction, threads: Array, compute: Any) -> None:
        type_ = instruction.opcode[-1]
        value = self.read(instruction.operands[1], threads, type_)
        amount = self.read(instruction.operands[2], threads, "u32")
        bits = pa.bits_of(type_)
        inside = compute(value, np.minimum(amount, bits - 1).astype(value.dtype))
        # Amounts beyond the width are clamped to it: nothing is left but the sign.
        beyond = inside if type_[0] == "s" and instruction.opcode[0] == "shr" else 0
        result = np.where(amount >= bits, beyond, inside).astype(value.dtype)
        self._result(instruction, threads, result, type_)

    def _do_prmt(self, instruction: Instruction, threads: Array) -> None:
        a, b, selector = self._sources(instruction, threads, "u32")
        self._result(instruction, threads, pa.byte_permute(a, b, selector), "u32")

    def _do_bfe(self, instruction: Instruction, threads: Array) -> None:
        type_ = instruction.opcode[-1]
        value = self.read(instruction.operands[1], threads, type_)
        start, length = (self.read(x, threads, "u32") for x in instruction.operands[2:])
        bits = pa.bits_of(type_)
        left = (bits - start - length).astype(value.dtype)
        result = (value << left) >> (bits - length).astype(value.dtype)
        self._result(instruction, threads, result, type_)

    def _do_bfi(self, instruction: Instruction, threads: Array) -> None:
        type_ = f"u{pa.bits_of(instruction.opcode[-1])}"
        source, target = (self.read(x, threads, type_) for x in instruction.operands[1:3])
        start, length = (self.read(x, threads, "u32") & 0xFF for x in instruction.operands[3:])
        result = pa.inserted_bits(source, target, start, length)
        self._result(instruction, threads, result, type_)

    def _do_setp(self, instruction: Instruction, threads: Array) -> None:
        comparison, type_ = instruction.opcode[1], instruction.opcode[-1]
        left, right = (self.read(x, threads, type_) for x in instruction.operands[1:3])
        result = pa.compare(comparison, left, right)
        if len(instruction.operands) == 4:
            other = self.read(instruction.operands[3].lstrip("!"), threads, "pred")
            other = other ^ instruction.operands[3].startswith("!")
            combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
            result = combine[instruction.opcode[2]](result, other)
        self._result(instruction, threads, result, "pred")

    def _do_selp(self, instruction: Instruction, threads: Array) -> None:
        type_ = f"u{pa.bits_of(instruction.opcode[-1])}"
        left, right = (self.read(x, threads, type_) for x in instruction.operands[1:3])
        condition = self.read(instruction.operands[3], threads, "pred")
        self._result(instruction, threads, np.where(condition, left, right), type_)

    def _do_shfl(self, instruction: Instruction, threads: Array) -> None:
        self.check_whole_warps(instruction, threads)
        *targets, source, distance, _, _ = instruction.operands
        lane = self.tid[threads] % WARP
        amount = self.read(distance, threads, "u32").astype(np.int64)
        partner = lane ^ amount if "bfly" in instruction.opcode else amount & (WARP - 1)
        values = self.read(source, np.arange(self.count), "u32")
        moved = values[self.warp[threads] * WARP + partner]
        self.write(targets[0], threads, moved, "u32")
        if len(targets) > 1:
            self.write(targets[1], threads, np.ones(len(threads), bool), "pred")


_EVERYWHERE = slice(None)

# Where tensor maps are, which nothing reads: a number that stands for each.
_TENSOR_MAPS = 1 << 52

_EXECUTE = {
    **ptx_hopper.EXECUTE,
    **ptx_fragments.EXECUTE,
    **ptx_atomics.EXECUTE,
    "cp": ptx_copies.copy,
}

_AXES = ("tid.", "ntid.", "ctaid.", "nctaid.")
_SPECIAL = ("%laneid",)


def _family(name: str) -> str:
    return name.rstrip("0123456789")
