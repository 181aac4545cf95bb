"""Global memory of the interpreter: accesses by virtual address, each of them checked.

Each argument array makes the whole buffer that backs it addressable, so that negative strides and
offsets to a neighbouring row work as on the device. Buffers that overlap are one range and
therefore alias. Every range lies in the middle of its own slot of 2**44 bytes: an access that
leaves it hits no other range, and the slot still tells which argument it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.errors import ArgumentError, InterpreterError, OutOfBoundsError, SourceLocation
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.turns import Step, in_turn

# Which range an address belongs to is its bits from here on.
SLOT_BITS = 44
# Ranges keep the real address modulo this, so an element aligned here is aligned there.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Access:
    """One access by a batch of programs, as far as a message about it needs.

    `program` gives the program id of a position along the leading axis.
    """

    verb: str
    dtype: DType
    kernel: str
    locations: tuple[SourceLocation, ...]
    program: Callable[[int], tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Buffer:
    """An argument's own view: where it starts, within which bytes."""

    name: str
    array: Array
    first: int  # real addresses
    low: int
    high: int


@dataclass(slots=True)
class _Range:
    """Bytes that one or more arguments share. `start` is the virtual address of `data[0]`."""

    start: int
    data: Array
    buffers: tuple[_Buffer, ...]
    views: dict[DType, tuple[int, Array]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + self.data.size

    @property
    def names(self) -> str:
        return ", ".join(repr(buffer.name) for buffer in self.buffers)

    @property
    def is_writeable(self) -> bool:
        return any(buffer.array.flags.writeable for buffer in self.buffers)

    def view(self, dtype: DType) -> tuple[int, Array]:
        """Return all aligned elements of `dtype` and the virtual address of the first."""
        if dtype not in self.views:
            size = dtype.size_bytes
            skip = min(-self.start % size, self.data.size)
            count = (self.data.size - skip) // size
            self.views[dtype] = (
                self.start + skip,
                self.data[skip : skip + count * size].view(to_numpy(dtype)),
            )
        return self.views[dtype]


class Memory:
    """The memory that a launch can reach. `stores` counts accesses that wrote something."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """Make the buffers of these arguments addressable; each is aligned to its element."""
        self.stores = 0
        self._addresses: dict[str, int] = {}
        self._ranges: list[_Range] = []
        buffers = sorted((_buffer(name, array) for name, array in arrays.items()), key=_by_address)
        while buffers:
            high = buffers[0].high
            count = 1
            while count < len(buffers) and buffers[count].low < high:
                high = max(high, buffers[count].high)
                count += 1
            self._add(tuple(buffers[:count]), high)
            del buffers[:count]

    def address(self, name: str) -> int:
        """Return the virtual address of the first element of an argument."""
        return self._addresses[name]

    def share(self, left: str, right: str) -> bool:
        """Return whether two arguments lie in one range."""
        return self._addresses[left] >> SLOT_BITS == self._addresses[right] >> SLOT_BITS

    def extents(self) -> dict[int, tuple[int, int]]:
        """Return first and end address of each range by its number: an address's upper bits."""
        return {slot: (r.start, r.end) for slot, r in enumerate(self._ranges, start=1)}

    def describe(self, address: int) -> str:
        """Return an address as bytes from the start of the arguments in its range."""
        found = self._ranges[(address >> SLOT_BITS) - 1]
        names = (buffer.name for buffer in found.buffers)
        return ", ".join(f"byte {address - self._addresses[name]} of {name!r}" for name in names)

    def load(
        self, addresses: Array, mask: Array | None, other: Array | None, *, access: Access
    ) -> Array:
        """Read elements; lanes whose mask is false give `other`, or 0, and touch nothing."""
        inactive = other
        if mask is not None:
            if inactive is None:
                inactive = np.zeros((1,) * addresses.ndim, to_numpy(access.dtype))
            if mask.all():
                mask = None
            else:
                filled = _active_only(addresses, mask)
                if filled is None:
                    return inactive
                addresses = filled
        loaded = self._gather(addresses, access)
        return loaded if mask is None or inactive is None else np.where(mask, loaded, inactive)

    def store(self, addresses: Array, values: Array, mask: Array | None, *, access: Access) -> None:
        """Write elements where the mask is true; of lanes with one address the last one stays."""
        if mask is not None and not mask.all():
            addresses, values, mask = np.broadcast_arrays(addresses, values, mask)
            programs = np.nonzero(mask)[0]
            addresses, values = addresses[mask], values[mask]
            if not programs.size:
                return
        else:
            addresses, values = np.broadcast_arrays(addresses, values)
            programs = None
        ranges = self._ranges_of(addresses, access, programs)
        self.stores += 1
        for where, found in ranges:
            self._check_writeable(found, access)
            base, view = found.view(access.dtype)
            view[_indices(addresses[where], base, access)] = values[where]

    def update(
        self,
        addresses: Array,
        values: tuple[Array, ...],
        mask: Array | None,
        step: Step,
        *,
        access: Access,
    ) -> Array:
        """Replace elements where the mask is true by what `step` makes of them; return the old.

        Lanes with one address take their turns in the order of their index. Lanes whose mask is
        false give 0 and touch nothing.
        """
        shape = np.broadcast_shapes(addresses.shape, *(value.shape for value in values))
        if mask is not None:
            shape = np.broadcast_shapes(shape, mask.shape)
        active = np.broadcast_to(np.array(True) if mask is None else mask, shape)
        places = np.nonzero(active)[0]
        old = np.zeros(shape, to_numpy(access.dtype))
        if not places.size:
            return old
        addresses = np.broadcast_to(addresses, shape)[active]
        values = tuple(np.broadcast_to(value, shape)[active] for value in values)
        before = np.empty(addresses.size, old.dtype)
        for where, found in self._ranges_of(addresses, access, places):
            self._check_writeable(found, access)
            base, view = found.view(access.dtype)
            indices = _indices(addresses[where], base, access)
            history = in_turn(view, indices, tuple(value[where] for value in values), step)
            before[where] = history.before
            self.stores += history.is_changed
        old[active] = before
        return old

    def _check_writeable(self, found: _Range, access: Access) -> None:
        if not found.is_writeable:
            verb = "stores" if access.verb == "store" else f"does {access.verb}"
            msg = f"kernel {access.kernel!r} {verb} to argument {found.names}, which is read-only"
            raise InterpreterError(_placed(msg, access))

    def _add(self, buffers: tuple[_Buffer, ...], high: int) -> None:
        low = buffers[0].low
        slot = len(self._ranges) + 1
        start = (slot << SLOT_BITS) + (1 << (SLOT_BITS - 1)) + low % _ALIGNMENT
        self._ranges.append(_Range(start, _bytes_at(low, high, buffers), buffers))
        for buffer in buffers:
            self._addresses[buffer.name] = start + buffer.first - low

    def _gather(self, addresses: Array, access: Access) -> Array:
        found = self._ranges_of(addresses, access, None)
        if len(found) == 1:
            base, view = found[0][1].view(access.dtype)
            return view.take(_indices(addresses, base, access))
        result = np.empty(addresses.shape, to_numpy(access.dtype))
        for where, range_ in found:
            base, view = range_.view(access.dtype)
            result[where] = view.take(_indices(addresses[where], base, access))
        return result

    def _ranges_of(
        self, addresses: Array, access: Access, programs: Array | None
    ) -> list[tuple[Array | slice, _Range]]:
        """Return the ranges that the addresses fall in, each with the lanes that do.

        `programs` gives the position of each lane when the addresses are a selection of lanes.
        """
        lowest, highest = int(addresses.min()), int(addresses.max())
        slot = lowest >> SLOT_BITS
        if slot == highest >> SLOT_BITS and 0 < slot <= len(self._ranges):
            found = self._ranges[slot - 1]
            if found.start <= lowest and highest + access.dtype.size_bytes <= found.end:
                return [(slice(None), found)]
        slots = addresses >> SLOT_BITS
        result: list[tuple[Array | slice, _Range]] = []
        outside = np.ones(addresses.shape, np.bool_)
        for index, found in enumerate(self._ranges):
            end = found.end - access.dtype.size_bytes
            inside = (slots == index + 1) & (addresses >= found.start) & (addresses <= end)
            if inside.any():
                result.append((inside, found))
                outside &= ~inside
        if outside.any():
            lane = np.argwhere(outside)[0]
            program = lane[0] if programs is None else programs[lane[0]]
            raise self._out_of_bounds(int(addresses[tuple(lane)]), int(program), access)
        return result

    def _out_of_bounds(self, address: int, position: int, access: Access) -> OutOfBoundsError:
        program = access.program(position)
        head = f"kernel {access.kernel!r}, program {program}: {access.verb} of {access.dtype} "
        slot = address >> SLOT_BITS
        if not 0 < slot <= len(self._ranges):
            msg = f"{head}at an address that belongs to no argument; its offset is far out of range"
            return OutOfBoundsError(_placed(msg, access))
        found = self._ranges[slot - 1]
        size = access.dtype.size_bytes
        parts = []
        for buffer in found.buffers:
            first = self._addresses[buffer.name]
            parts.append(
                f"argument {buffer.name!r} at element offset {(address - first) // size}, "
                f"its memory holds offsets {-((first - found.start) // size)} "
                f"to {(found.end - first) // size - 1}"
                if found.data.size
                else f"argument {buffer.name!r} at element offset {(address - first) // size}, "
                "which is empty"
            )
        msg = f"{head}outside of {'; '.join(parts)}. Mask the lanes that lie outside"
        return OutOfBoundsError(_placed(msg, access))


def _active_only(addresses: Array, mask: Array) -> Array | None:
    """Point inactive lanes at an address that an active lane uses; None if no lane is active."""
    if not mask.any():
        return None
    addresses, mask = np.broadcast_arrays(addresses, mask)
    safe = addresses.flat[int(mask.argmax())]
    return np.where(mask, addresses, safe)


def _indices(addresses: Array, base: int, access: Access) -> Array:
    size = access.dtype.size_bytes
    offsets = addresses - base
    if size == 1:
        return offsets
    if int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1):
        msg = (
            f"kernel {access.kernel!r}: {access.verb} of {access.dtype} at an address that is "
            f"no multiple of {size} bytes"
        )
        raise InterpreterError(_placed(msg, access))
    offsets >>= size.bit_length() - 1
    return offsets


def _placed(message: str, access: Access) -> str:
    lines = [message]
    for index, location in enumerate(access.locations):
        lines.append(("  at " if index == 0 else "  called from ") + location.render())
    return "\n".join(lines)


def _buffer(name: str, array: Array) -> _Buffer:
    dtype = from_numpy(array.dtype)
    first = array.__array_interface__["data"][0]
    if array.size and first % dtype.size_bytes:
        msg = (
            f"argument {name!r} is a {dtype} array at an address that is no multiple of "
            f"{dtype.size_bytes} bytes; pass an aligned copy"
        )
        raise ArgumentError(msg)
    bounds = [_byte_bounds(view) for view in _bases(array)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    return _Buffer(name, array, first, low, high)


def _bases(array: Array) -> Iterator[Array]:
    """Yield an array and what it is a view of, up to the owner of the memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        yield base
        base = base.base
        if not isinstance(base, np.ndarray):
            # `as_strided` puts an object in between that holds on to the array.
            base = getattr(base, "base", None)


def _byte_bounds(array: Array) -> tuple[int, int]:
    """Return the real addresses of the first byte of an array and of the one after its last."""
    first: int = array.__array_interface__["data"][0]
    if not array.size:
        return first, first
    steps = [
        (extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)
    ]
    low = first + sum(step for step in steps if step < 0)
    return low, first + sum(step for step in steps if step > 0) + array.itemsize


def _by_address(buffer: _Buffer) -> tuple[int, int, str]:
    return buffer.low, buffer.high, buffer.name


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Real memory in the form that NumPy takes it; holds on to the arrays that own it."""

    __array_interface__: dict[str, object]
    owners: tuple[_Buffer, ...]


def _bytes_at(low: int, high: int, buffers: tuple[_Buffer, ...]) -> Array:
    if low == high:
        return np.empty(0, np.uint8)
    is_read_only = not any(buffer.array.flags.writeable for buffer in buffers)
    interface = {
        "version": 3,
        "typestr": "|u1",
        "shape": (high - low,),
        "data": (low, is_read_only),
    }
    return np.asarray(_Bytes(interface, buffers))
