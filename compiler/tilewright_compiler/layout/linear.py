"""Linear layouts: which element of a tile each (register, lane, warp) of a program holds.

A layout is a linear map over GF(2) from the bits of the hardware index to the bits of the row-major
flat element index: each hardware bit contributes one basis by xor. A zero basis replicates.
Slicing, reshaping and transposing a tile are then moves of bits, and conversions and reductions
follow from elimination, not from a table of pairs of layouts. All extents are powers of two; that
is the price.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Self

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout import gf2

LANE_BITS = 5
NUM_LANES = 1 << LANE_BITS

_TEXT = re.compile(
    r"#layout<(?P<shape>[0-9x]*); r=(?P<r>[0-9,]*); l=(?P<l>[0-9,]*); w=(?P<w>[0-9,]*)>"
)


@dataclass(frozen=True, slots=True)
class HardwareIndex:
    """A place in a program: a register of a lane of a warp. Also used for masks of such bits."""

    register: int = 0
    lane: int = 0
    warp: int = 0


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """A map from (register, lane, warp) to elements of a tile of `shape`.

    `register`, `lane` and `warp` hold one basis per bit of the index: the xor contribution of that
    bit to the row-major flat element index, 0 where the bit replicates. `lane` has 5 bases, `warp`
    has log2(num_warps).
    """

    shape: tuple[int, ...]
    register: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(extent < 1 or extent & (extent - 1) for extent in self.shape):
            msg = f"layout of shape {self.shape}: extents must be powers of two"
            raise InternalCompilerError(msg)
        if len(self.lane) != LANE_BITS:
            msg = f"layout with {len(self.lane)} lane bases: a warp has {LANE_BITS}"
            raise InternalCompilerError(msg)
        if any(not 0 <= basis < self.size for basis in self.bases):
            msg = f"layout of shape {self.shape}: bases {self.bases} must lie in 0..{self.size - 1}"
            raise InternalCompilerError(msg)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        register, lane, warp = (
            ",".join(map(str, b)) for b in (self.register, self.lane, self.warp)
        )
        return f"#layout<{shape}; r={register}; l={lane}; w={warp}>"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raises InternalCompilerError if it is not one."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            msg = (
                f"not a layout: {text!r}; the form is #layout<16x64; r=1,2; l=4,8,16,32,64; w=128>"
            )
            raise InternalCompilerError(msg)
        shape = tuple(int(part) for part in match["shape"].split("x") if part)
        register, lane, warp = (
            tuple(int(part) for part in match[group].split(",") if part) for group in "rlw"
        )
        return cls(shape, register, lane, warp)

    # Sizes and membership

    @property
    def size(self) -> int:
        """Number of elements of the tile."""
        return prod(self.shape)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def num_registers(self) -> int:
        """Elements held by one thread, replicas included."""
        return 1 << len(self.register)

    @property
    def num_warps(self) -> int:
        """Number of warps of the program."""
        return 1 << len(self.warp)

    @property
    def bases(self) -> tuple[int, ...]:
        """All bases: register, then lane, then warp bits."""
        return (*self.register, *self.lane, *self.warp)

    def flat_index(self, *, register: int = 0, lane: int = 0, warp: int = 0) -> int:
        """Return the row-major flat index of the element held there."""
        return (
            gf2.apply(self.register, register)
            ^ gf2.apply(self.lane, lane)
            ^ gf2.apply(self.warp, warp)
        )

    def coordinates(self, *, register: int = 0, lane: int = 0, warp: int = 0) -> tuple[int, ...]:
        """Return the coordinates of the element held there, one per axis."""
        return unflatten(self.flat_index(register=register, lane=lane, warp=warp), self.shape)

    def places(self) -> Iterator[tuple[HardwareIndex, int]]:
        """Yield every place with the flat index that it holds, warps outermost."""
        threads = product(range(self.num_warps), range(NUM_LANES), range(self.num_registers))
        for warp, lane, register in threads:
            place = HardwareIndex(register, lane, warp)
            yield place, self.flat_index(register=register, lane=lane, warp=warp)

    @property
    def is_surjective(self) -> bool:
        """Whether every element is held somewhere; true of every layout of a tile in IR."""
        return 1 << gf2.rank(self.bases) == self.size

    @property
    def is_injective(self) -> bool:
        """Whether no element is held twice."""
        return gf2.rank(self.bases) == len(self.bases)

    @property
    def free(self) -> HardwareIndex:
        """Masks of the bits that only replicate.

        Each element is held by exactly one place whose free bits are all 0, so a store is
        predicated on `lane & free.lane == 0 and warp & free.warp == 0` and skips registers with
        `free.register` bits.
        """
        span = gf2.Elimination()
        masks = [
            sum(1 << bit for bit, basis in enumerate(bases) if not span.add(basis))
            for bases in (self.register, self.lane, self.warp)
        ]
        return HardwareIndex(*masks)

    def locate(self, flat_index: int) -> HardwareIndex:
        """Return the place with free bits 0 that holds an element: the inverse of the map."""
        selection = gf2.Elimination(self.bases).express(flat_index)
        if selection is None:
            msg = f"element {flat_index} is held nowhere in {self}"
            raise InternalCompilerError(msg)
        registers = len(self.register)
        return HardwareIndex(
            selection & ((1 << registers) - 1),
            selection >> registers & (NUM_LANES - 1),
            selection >> (registers + LANE_BITS),
        )

    # Layouts of derived tiles

    def reshape(self, shape: Sequence[int]) -> LinearLayout:
        """Return the layout of the tile under another shape of the same size: no data moves."""
        if prod(shape) != self.size:
            msg = f"reshape {self.shape} to {tuple(shape)}: sizes differ"
            raise InternalCompilerError(msg)
        return replace(self, shape=tuple(shape))

    def expand_dims(self, axis: int) -> LinearLayout:
        """Return the layout with an axis of extent 1 inserted: no data moves."""
        return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def transpose(self, order: Sequence[int]) -> LinearLayout:
        """Return the layout of the transposed tile, whose axis i is this one's order[i]."""
        shape = tuple(self.shape[axis] for axis in order)

        def move(basis: int) -> int:
            coordinates = unflatten(basis, self.shape)
            return flatten([coordinates[axis] for axis in order], shape)

        return self._map(shape, move)

    def slice(self, axis: int) -> LinearLayout:
        """Return the layout of a reduction along `axis`, and of rows before `expand_dims`.

        Bits along the axis become replicas; registers that would only repeat others are dropped.
        """
        shape = (*self.shape[:axis], *self.shape[axis + 1 :])

        def drop(basis: int) -> int:
            coordinates = unflatten(basis, self.shape)
            return flatten([*coordinates[:axis], *coordinates[axis + 1 :]], shape)

        return self._map(shape, drop).without_register_replicas()

    def project(self, shape: Sequence[int]) -> LinearLayout:
        """Return the layout of a tile of `shape`, extents equal or 1, that broadcasts to this."""
        target = tuple(shape)
        if len(target) != self.rank or any(
            s not in (1, t) for s, t in zip(target, self.shape, strict=True)
        ):
            msg = f"{target} does not broadcast to {self.shape}"
            raise InternalCompilerError(msg)

        return self._map(
            target, lambda basis: self.project_basis(basis, target)
        ).without_register_replicas()

    def project_basis(self, basis: int, shape: Sequence[int]) -> int:
        """Return the part of a basis along the axes that `shape` keeps, as its flat index."""
        coordinates = unflatten(basis, self.shape)
        kept = [c if extent > 1 else 0 for c, extent in zip(coordinates, shape, strict=True)]
        return flatten(kept, shape)

    def broadcast(self, shape: Sequence[int]) -> LinearLayout:
        """Return a layout of the broadcast tile whose `project` is this layout.

        New elements go to the lanes and warps that only replicate, then to new registers; the last
        axis is filled first.
        """
        target = tuple(shape)
        new = [
            flatten([1 << bit if a == axis else 0 for a in range(len(target))], target)
            for axis in reversed(range(len(target)))
            if self.shape[axis] != target[axis]
            for bit in range(log2(target[axis]))
        ]
        widened = self._map(target, lambda basis: flatten(unflatten(basis, self.shape), target))
        lane, warp = list(widened.lane), list(widened.warp)
        for bases in (lane, warp):
            for bit, basis in enumerate(bases):
                if basis == 0 and new:
                    bases[bit] = new.pop(0)
        return LinearLayout(target, (*new, *widened.register), tuple(lane), tuple(warp))

    def without_register_replicas(self) -> LinearLayout:
        """Return the layout without registers that repeat other registers of the same thread."""
        return replace(self, register=gf2.independent(self.register))

    def part(self, axis: int, extent: int) -> LinearLayout | None:
        """Return the layout of a block of `extent` along `axis`, the same for each block.

        None unless every thread holds registers of every block: no data moves.
        """
        register = [basis for basis in self.register if unflatten(basis, self.shape)[axis] < extent]
        shape = (*self.shape[:axis], extent, *self.shape[axis + 1 :])
        kept = (*register, *self.lane, *self.warp)
        if any(unflatten(basis, self.shape)[axis] >= extent for basis in kept):
            return None

        def move(basis: int) -> int:
            return flatten(unflatten(basis, self.shape), shape)

        return replace(self, register=tuple(register))._map(shape, move)

    def is_separable(self, axis: int) -> bool:
        """Whether each basis lies wholly along `axis` or wholly across it, as a reduction needs."""
        for basis in self.bases:
            coordinates = unflatten(basis, self.shape)
            others = any(c for a, c in enumerate(coordinates) if a != axis)
            if coordinates[axis] and others:
                return False
        return True

    def _map(self, shape: tuple[int, ...], move: Callable[[int], int]) -> LinearLayout:
        register, lane, warp = (
            tuple(move(basis) for basis in bases) for bases in (self.register, self.lane, self.warp)
        )
        return LinearLayout(shape, register, lane, warp)


def log2(extent: int) -> int:
    """Return the exponent of a power of two."""
    return extent.bit_length() - 1


def flatten(coordinates: Sequence[int], shape: Sequence[int]) -> int:
    """Return the row-major flat index of coordinates."""
    result = 0
    for coordinate, extent in zip(coordinates, shape, strict=True):
        result = result * extent + coordinate
    return result


def unflatten(flat_index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the coordinates of a row-major flat index."""
    coordinates = []
    for extent in reversed(shape):
        flat_index, coordinate = divmod(flat_index, extent)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))
