"""What Hopper's own instructions do: mbarriers, bulk tensor copies, products of warpgroups.

Written from the formulas of the PTX ISA and not from `layout`, which these tests check: a box is
put into shared memory by its swizzle mode, and `wgmma` finds its operands by the bits of their
descriptors. Copies and products are under way until something waits for them, or with "early" done
at once: threads that do not wait for what they need get garbage or the wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from helpers import ptx_arithmetic as pa
from helpers.ptx_arithmetic import Array
from helpers.ptx_program import names_of
from tilewright_compiler.interpret.numerics import rounded_to_even_tf32

if TYPE_CHECKING:
    from helpers.ptx_interpreter import Machine
    from helpers.ptx_program import Instruction

WARP, GROUP_WARPS = 32, 4
_LANE = np.arange(WARP)
# How many of the address bits from 4 up are xored with those from 7 up, and the bytes of a line.
_SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}
_SWIZZLE_BYTES = {0: 0, 1: 128, 2: 64, 3: 32}
_EIGHT_BITS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: a tensor of these sizes and strides (in elements) in `memory`, and a box.

    Loads round to tf32, ties to even, if it says so: as an H200 was seen to do.
    """

    memory: Array
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    rounding: str = ""

    def places(self, first: tuple[int, ...]) -> tuple[Array, Array]:
        """Return where the elements of the box at `first` are in memory, and which exist."""
        where = np.zeros(self.box, np.int64)
        inside = np.ones(self.box, bool)
        for axis, (start, extent) in enumerate(zip(first, self.box, strict=True)):
            index = start + np.arange(extent).reshape(
                [-1 if a == axis else 1 for a in range(len(self.box))]
            )
            where = where + index * self.strides[axis]
            inside = inside & (index >= 0) & (index < self.sizes[axis])
        return np.where(inside, where, 0).reshape(-1), inside.reshape(-1)


@dataclass
class _Mbarrier:
    """A phase is complete when nobody is missing and no byte is under way."""

    arrivals: int
    missing: int
    bytes: int = 0
    phases: int = 0

    def settle(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.missing, self.phases = self.arrivals, self.phases + 1


@dataclass
class _Product:
    """A `wgmma` that is under way, of some warps, and the group it belongs to."""

    instruction: Instruction
    threads: Array
    operands: list[Array]
    group: Array


@dataclass
class Hopper:
    """The state of these instructions. `stores` are those whose tile may still be read."""

    mbarriers: dict[tuple[int, int], _Mbarrier] = field(default_factory=dict)
    loads: list[Callable[[], None]] = field(default_factory=list)
    stores: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    products: list[_Product] = field(default_factory=list)
    committed_products: dict[int, int] = field(default_factory=dict)
    committed_stores: dict[int, int] = field(default_factory=dict)


def swizzled(address: Array, swizzle_bytes: int) -> Array:
    """Return where the hardware puts what a box or an operand has at this address."""
    mask = (1 << _SWIZZLE_BITS[swizzle_bytes]) - 1
    return np.asarray(address ^ (address >> 7 & mask) << 4)


def mbarrier(machine: Machine, instruction: Instruction, threads: Array) -> Array:
    """Execute an instruction on mbarriers; return the threads that stay where they are."""
    name = instruction.opcode[1]
    *_, place = [operand for operand in instruction.operands if operand.startswith("[")]
    address = machine.address(place, threads)
    machine.check_aligned(instruction, address, 8)
    numbers = [o for o in instruction.operands[1:] if not o.startswith("[")]
    values = [machine.read(o, threads, "u32").astype(np.int64) for o in numbers]
    keys = list(zip(machine.cta[threads].tolist(), address.tolist(), strict=True))
    if name == "init":
        for key, count in zip(keys, values[0].tolist(), strict=True):
            machine.hopper.mbarriers[key] = _Mbarrier(count, count)
        return threads[:0]
    known = {key: _mbarrier(machine, instruction, key) for key in set(keys)}
    found = [known[key] for key in keys]
    if name == "arrive":
        expected = values[0].tolist() if "expect_tx" in instruction.opcode else [0] * len(found)
        for one, count in zip(found, expected, strict=True):
            one.bytes += count
            one.missing -= 1
            machine.expect(one.missing >= 0, instruction, "more arrivals than the phase has")
            one.settle()
        return threads[:0]
    machine.expect(name == "try_wait", instruction, "not known to this interpreter")
    is_done = np.array(
        [(one.phases & 1) != parity for one, parity in zip(found, values[0], strict=True)]
    )
    machine.write(instruction.operands[0], threads, is_done, "pred")
    return np.asarray(threads[~is_done])


def _mbarrier(machine: Machine, instruction: Instruction, key: tuple[int, int]) -> _Mbarrier:
    one = machine.hopper.mbarriers.get(key)
    machine.expect(one is not None, instruction, f"no mbarrier at {key[1]:#x}")
    assert one is not None
    return one


def copy_bulk(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Start bulk copies, or wait for those that read shared memory."""
    match instruction.opcode[3]:
        case "commit_group":
            for thread in threads.tolist():
                machine.hopper.committed_stores[thread] = _committed_stores(machine, thread) + 1
        case "wait_group":
            pending = int(instruction.operands[0])
            for thread in threads.tolist():
                _finish_stores(machine, thread, _committed_stores(machine, thread) - pending)
        case _:
            for thread in threads.tolist():
                _start_copy(machine, instruction, np.array([thread]))


def finish(machine: Machine) -> None:
    """Let all stores arrive: the kernel has ended."""
    for _, _, store in machine.hopper.stores:
        store()
    machine.hopper.stores.clear()


def _committed_stores(machine: Machine, thread: int) -> int:
    return machine.hopper.committed_stores.get(thread, 0)


def _finish_stores(machine: Machine, thread: int, before: int) -> None:
    left = []
    for owner, group, store in machine.hopper.stores:
        if owner == thread and group < before:
            store()
        else:
            left.append((owner, group, store))
    machine.hopper.stores = left


_COMPUTED: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _start_copy(machine: Machine, instruction: Instruction, threads: Array) -> None:
    is_load = "mbarrier::complete_tx::bytes" in instruction.opcode
    target, source, *rest = instruction.operands
    box, place = (source, target) if is_load else (target, source)
    name, _, coordinates = box.strip("[]").partition(",")
    tensor_map = machine.tensor_map(int(machine.read(name, threads, "u64")[0]))
    first = tuple(int(machine.read(part, threads, "s32")[0]) for part in names_of(coordinates))[
        ::-1
    ]
    start = int(machine.address(place, threads)[0])
    cta = int(machine.cta[threads][0])
    size = tensor_map.memory.itemsize
    offsets = start + size * np.arange(int(np.prod(tensor_map.box)))
    line = tensor_map.swizzle_bytes
    alignment = 8 * line or 128
    machine.expect(start % alignment == 0, instruction, f"{start:#x} is not aligned")
    machine.expect(
        line in (0, tensor_map.box[-1] * size), instruction, "a row is one line of the swizzle"
    )
    places = swizzled(offsets, line)[:, None] + np.arange(size)
    machine.expect(places.max() < machine.shared.shape[1], instruction, "beyond shared memory")
    where, inside = tensor_map.places(first)
    if not is_load:
        compute = next((_COMPUTED[part] for part in instruction.opcode if part in _COMPUTED), None)
        is_reduction = "reduce" in instruction.opcode
        machine.expect(is_reduction == (compute is not None), instruction, "what is computed?")

        def store() -> None:
            data = machine.shared[cta][places].view(tensor_map.memory.dtype)[:, 0]
            if compute is not None:
                data = compute(tensor_map.memory[where], data)
            tensor_map.memory[where[inside]] = data[inside]
            machine.stored_bytes += size * int(inside.sum())

        owner = int(threads[0])
        machine.hopper.stores.append((owner, _committed_stores(machine, owner), store))
        return
    counted = (cta, int(machine.address(rest[0], threads)[0]))
    barrier = _mbarrier(machine, instruction, counted)

    def load() -> None:
        data = np.where(inside, tensor_map.memory[where], tensor_map.memory.dtype.type(0))
        data = rounded_to_even_tf32(data) if tensor_map.rounding == "tf32" else data
        machine.shared[cta][places] = data[:, None].view(np.uint8).reshape(-1, size)
        barrier.bytes -= places.size
        barrier.settle()

    if machine.arrival == "early":
        load()
    else:
        machine.hopper.loads.append(load)


def wgmma(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Start products of warpgroups, end a group of them, or wait for groups."""
    machine.check_whole_warps(instruction, threads)
    hopper, warps = machine.hopper, np.unique(machine.warp[threads]).tolist()
    match instruction.opcode[1]:
        case "fence":
            pass
        case "commit_group":
            for warp in warps:
                hopper.committed_products[warp] = hopper.committed_products.get(warp, 0) + 1
        case "wait_group":
            pending = int(instruction.operands[0])
            before = {w: hopper.committed_products.get(w, 0) - pending for w in warps}
            left = []
            for product in hopper.products:
                warp = int(machine.warp[product.threads[0]])
                if warp in before and product.group[0] < before[warp]:
                    _multiply(machine, product)
                else:
                    left.append(product)
            hopper.products = left
        case _:
            _start_product(machine, instruction, threads)


def _start_product(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Note a product of each warp: what registers it reads is read at once."""
    for warp in threads.reshape(-1, WARP):
        operands = [
            machine.read(name, warp, "u32" if operand.startswith("{") else "u64")
            for operand in instruction.operands[1:3]
            for name in names_of(operand)
        ]
        operands.append(machine.read(instruction.operands[3], warp, "pred"))
        group = machine.hopper.committed_products.get(int(machine.warp[warp[0]]), 0)
        product = _Product(instruction, warp, operands, np.array([group]))
        if machine.arrival == "early":
            _multiply(machine, product)
        else:
            machine.hopper.products.append(product)


def _multiply(machine: Machine, product: _Product) -> None:
    """Add the product of a warp, 16 rows of its warpgroup's 64, to the registers."""
    instruction, threads = product.instruction, product.threads
    shape, d_type, a_type, b_type = instruction.opcode[4:8]
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    assert m == 64, f"{instruction}: all forms have 64 rows"
    *a, b, adds = product.operands
    flags = [int(flag) for flag in instruction.operands[4:]]
    transposed = flags[2:] if len(flags) > 2 else [0, 0]
    rows = 16 * (int(machine.tid[threads[0]]) // WARP % GROUP_WARPS) + np.arange(16)
    if len(a) == 1:
        left = _operand(machine, threads, a[0], a_type, rows, k, is_transposed=bool(transposed[0]))
    else:
        left = _fragment(a, a_type, k)
    right = _operand(
        machine, threads, b, b_type, np.arange(n), k, is_transposed=bool(transposed[-1])
    )
    result = left @ right.T
    names = names_of(instruction.operands[0])
    group, within = np.divmod(_LANE, 4)
    index = np.arange(len(names))[:, None]
    values = result[group + 8 * (index // 2 % 2), 8 * (index // 4) + 2 * within + index % 2]
    # Whole warps come here, so their threads follow each other.
    warp, registers = slice(threads[0], threads[0] + WARP), [machine.bits(name) for name in names]
    if adds[0]:
        values = values + pa.from_bits(np.array([bits[warp] for bits in registers]), d_type)
    rounded = values.astype(pa.DTYPES[d_type])
    for bits, value in zip(registers, pa.to_bits(rounded, d_type, 32), strict=True):
        bits[warp] = value


def _operand(
    machine: Machine,
    threads: Array,
    descriptor: Array,
    type_: str,
    rows: Array,
    k: int,
    *,
    is_transposed: bool,
) -> Array:
    """Return elements `[rows, k]` of an operand in shared memory (PTX ISA, matrix descriptor)."""
    bits = {int(value) for value in descriptor}
    assert len(bits) == 1, "a descriptor is the same in all lanes"
    (value,) = bits
    start, leading, stride = ((value >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    line = _SWIZZLE_BYTES[value >> 62]
    size = _bits_of(type_) // 8
    row, along = rows[:, None], np.arange(k)
    if is_transposed:  # lines run along the rows: eight of k are a group, lines lie side by side
        assert size == 2, "only 16-bit operands may be transposed"
        per_line = line // size
        address = row // per_line * leading + row % per_line * size
        address = address + along // 8 * stride + along % 8 * line
    else:  # lines run along k: eight rows are a group
        assert k * size <= line, "an instruction reads no more than a line"
        address = row // 8 * stride + row % 8 * line + along * size
    places = swizzled(start + address, line)[:, :, None] + np.arange(size)
    raw = machine.shared[machine.cta[threads[0]]][places]
    words = raw.view(pa.DTYPES[f"u{8 * size}"])[:, :, 0]
    return _values(words, type_)


def _fragment(registers: list[Array], type_: str, k: int) -> Array:
    """Return a warp's elements `[16, k]` of A in registers."""
    bits = _bits_of(type_)
    per_word = 32 // bits
    wide = np.int64 if type_[0] in "su" else np.float64
    result = np.zeros((16, k), wide)
    group, within = np.divmod(_LANE, 4)
    words, index = np.array(registers), np.arange(len(registers))[:, None]
    for part in range(per_word):
        column = k // 2 * (index // 2) + within * per_word + part
        values = _values((words >> np.uint32(part * bits)).astype(pa.unsigned(bits)), type_)
        result[group + 8 * (index % 2), column] = values
    return result


def _bits_of(type_: str) -> int:
    return 32 if type_ == "tf32" else 8 if type_ in _EIGHT_BITS else pa.bits_of(type_)


def _values(words: Array, type_: str) -> Array:
    """Return elements of an operand from words of their width; of tf32, what hardware reads."""
    if type_ == "tf32":
        return np.asarray((words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64))
    if type_ in _EIGHT_BITS:
        return np.asarray(words.view(_EIGHT_BITS[type_]).astype(np.float64))
    wide = np.int64 if type_[0] in "su" else np.float64
    return np.asarray(pa.from_bits(words, type_).astype(wide))


def _prefetch(machine: Machine, instruction: Instruction, threads: Array) -> None:
    machine.expect(instruction.opcode[1:] == ("tensormap",), instruction, "only maps are fetched")
    (place,) = instruction.operands
    machine.tensor_map(int(machine.read(place.strip("[]"), threads, "u64")[0]))


def _nothing(_machine: Machine, _instruction: Instruction, _threads: Array) -> None:
    """Memory has one order here, and there are as many registers as the program names."""


EXECUTE: dict[str, Callable[[Machine, Instruction, Array], None]] = {
    "wgmma": wgmma,
    "fence": _nothing,
    "setmaxnreg": _nothing,
    "prefetch": _prefetch,
}
# What a whole warp executes together; in hardware, lanes that were apart have met again by then.
ALIGNED = ("wgmma", "stmatrix", "setmaxnreg")
