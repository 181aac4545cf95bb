"""Exchanges through shared memory: one tile written in one layout and read in another.

The element offset in shared memory is a third linear map, chosen for the pair of layouts:

1. *Vector*: its lowest bits are elements that lie in the registers of one thread on both sides, up
to 16 bytes; one side may go further than the other. 2. *Banks*: the next bits up to 128 bytes are
chosen so that the lanes of one phase of the write, and those of one phase of the read, go to
different banks. Two subspaces of equal dimension always have a common complement; that complement
becomes the row number. The result is the familiar xor swizzle, found rather than guessed, and it
needs no padding.

Of the candidates for the vector that meet no bank twice, which one always does, the one with the
fewest instructions and passes is taken.

A tile larger than shared memory goes through it in rounds: elements that lie in the registers of
one thread on both sides give the highest bits of the offset, which count the rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout import banks, gf2
from tilewright_compiler.layout.linear import LinearLayout, log2

MAX_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class SharedGroup:
    """One access of a thread: element `offset + i` is register `registers[i]`."""

    offset: int
    registers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """How the threads of one layout reach a tile in shared memory. Offsets count elements.

    A thread's access of a group starts at `group.offset ^ base`, where `base` is the xor of
    `lane[i]` over the bits of its lane and of `warp[i]` over the bits of its warp. It covers
    `vector` contiguous elements and is naturally aligned. Where `base` and `group.offset` share no
    bits, the xor is a sum and the group's offset an immediate.
    """

    vector: int
    groups: tuple[SharedGroup, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]

    def conflict_ways(self, *, size_bytes: int) -> int:
        """Return how many words the busiest bank serves at once; 1 is free of conflicts."""
        return banks.conflict_ways(
            self.lane, access_bytes=self.vector * size_bytes, size_bytes=size_bytes
        )

    def cost(self, *, size_bytes: int) -> int:
        """Return instructions plus passes through shared memory of one warp."""
        passes = banks.wavefronts(
            self.lane, access_bytes=self.vector * size_bytes, size_bytes=size_bytes
        )
        return len(self.groups) * (1 + passes)


@dataclass(frozen=True, slots=True)
class SharedExchange:
    """Write all groups of `write`, make all warps meet, read all groups of `read`.

    Replicas write the same value to the same place, so no thread needs a predicate. `scratch_bytes`
    of shared memory are used, aligned to 16 bytes; where the tile is larger, see `rounds`.
    """

    write: SharedAccess
    read: SharedAccess
    size_bytes: int
    scratch_bytes: int

    @property
    def rounds(self) -> tuple[SharedExchange, ...]:
        """The exchanges that this one is made of, each of some registers, one after the other."""
        room = self.scratch_bytes // self.size_bytes
        used = range(1 + max(group.offset for group in self.write.groups) // room)
        if len(used) == 1:
            return (self,)
        return tuple(
            replace(
                self, write=_within(self.write, turn, room), read=_within(self.read, turn, room)
            )
            for turn in used
        )

    @property
    def conflict_ways(self) -> int:
        """How many words the busiest bank serves at once, writing or reading."""
        return max(
            access.conflict_ways(size_bytes=self.size_bytes) for access in (self.write, self.read)
        )

    @property
    def cost(self) -> int:
        """Instructions and passes of one warp, without the barrier."""
        return self.write.cost(size_bytes=self.size_bytes) + self.read.cost(
            size_bytes=self.size_bytes
        )


def plan_exchange(
    source: LinearLayout, target: LinearLayout, *, size_bytes: int, most_bytes: int | None = None
) -> SharedExchange:
    """Plan moving a tile of elements of `size_bytes` from `source` to `target`.

    A tile of more than `most_bytes` goes in rounds, as far as the two layouts allow it; with None
    it goes at once, as where several tiles share a barrier (`layout.ordered`).
    """
    limit = log2(MAX_VECTOR_BYTES // size_bytes)
    common = _common_vector(source, target)
    needed = 1 if most_bytes is None else -(-source.size * size_bytes // most_bytes)
    # Each direction that both sides hold in registers doubles the number of rounds.
    count = min((needed - 1).bit_length(), len(common))
    if count:
        common, rounds = common[:-count], common[-count:]
        return _exchange(source, target, common[:limit], (), (), size_bytes, rounds)
    common = common[:limit]
    write_extra = _longer(source, target, common, limit)
    read_extra = _longer(target, source, common, limit)
    candidates = [_exchange(source, target, common, (), (), size_bytes)]
    if write_extra:
        candidates.append(_exchange(source, target, common, write_extra, (), size_bytes))
    if read_extra:
        candidates.append(_exchange(source, target, common, (), read_extra, size_bytes))
    return min(candidates, key=lambda exchange: (exchange.conflict_ways, exchange.cost))


def _threads(layout: LinearLayout) -> tuple[int, ...]:
    return (*layout.lane, *layout.warp)


def _common_vector(source: LinearLayout, target: LinearLayout) -> tuple[int, ...]:
    """Return directions within a thread on both sides that no thread bit touches."""
    chosen: list[int] = []
    span = gf2.Elimination((*_threads(source), *_threads(target)))
    for direction in gf2.intersection(source.register, target.register):
        if span.add(direction):
            chosen.append(direction)
    return tuple(chosen)


def _longer(
    wide: LinearLayout, narrow: LinearLayout, common: tuple[int, ...], limit: int
) -> tuple[int, ...]:
    """Return directions by which the vector of `wide` alone may go on after `common`."""
    extra: list[int] = []
    for direction in wide.register:
        if len(common) + len(extra) == limit:
            break
        own = (*common, *extra, *gf2.independent(_threads(wide)))
        if direction in gf2.Elimination(own):
            continue
        others = (*extra, direction, *_threads(wide), *_threads(narrow))
        if gf2.rank((*common, *others)) == len(common) + gf2.rank(others):
            extra.append(direction)
    return tuple(extra)


def _exchange(
    source: LinearLayout,
    target: LinearLayout,
    common: tuple[int, ...],
    write_extra: tuple[int, ...],
    read_extra: tuple[int, ...],
    size_bytes: int,
    rounds: tuple[int, ...] = (),
) -> SharedExchange:
    vector = (*common, *write_extra, *read_extra)
    offsets = _offset_map(source, target, vector, rounds, size_bytes, read_is_wide=bool(read_extra))
    write_vector = (*common, *write_extra)
    read_vector = (*common, *read_extra)
    skipped = source.free.register
    return SharedExchange(
        write=shared_access(source, write_vector, offsets, skipped_registers=skipped),
        read=shared_access(target, read_vector, offsets, skipped_registers=0),
        size_bytes=size_bytes,
        scratch_bytes=source.size * size_bytes >> len(rounds),
    )


def _within(access: SharedAccess, turn: int, room: int) -> SharedAccess:
    """Return those groups of an access that a round moves, with their offsets in its scratch."""
    groups = (g for g in access.groups if g.offset // room == turn)
    return replace(access, groups=tuple(replace(g, offset=g.offset % room) for g in groups))


def _offset_map(
    source: LinearLayout,
    target: LinearLayout,
    vector: tuple[int, ...],
    rounds: tuple[int, ...],
    size_bytes: int,
    *,
    read_is_wide: bool,
) -> tuple[int, ...]:
    """Return the columns of the map from flat element index to offset in shared memory."""
    dimension = log2(source.size)
    units = [1 << bit for bit in range(dimension)]
    first, second = (target, source) if read_is_wide else (source, target)
    # The complement of the vector contains every thread direction of the wide side, so that its
    # vectors are aligned, and those of the other side as far as they do not run along the extra
    # directions.
    order = (*_threads(first), *_threads(second), *first.register, *second.register, *units)
    fixed = (*vector, *rounds)
    basis = gf2.extend(fixed, order, size=dimension)
    rest = basis[len(fixed) :]
    coordinates = gf2.Elimination(basis)

    def across(direction: int) -> int:
        """Project along the vector onto the complement."""
        selection = coordinates.reduce(direction)[1]
        return gf2.apply(rest, selection >> len(fixed))

    vector_bytes = size_bytes << len(vector)
    bank_bits = min(log2(banks.LINE_BYTES) - log2(max(vector_bytes, banks.BANK_BYTES)), len(rest))
    write_lanes, read_lanes = (
        gf2.independent(
            across(lane)
            for lane in layout.lane[: banks.phase_lane_bits(max(vector_bytes, banks.BANK_BYTES))]
        )[:bank_bits]
        for layout in (source, target)
    )
    write_lanes = gf2.extend(write_lanes, (*read_lanes, *rest), size=bank_bits)
    read_lanes = gf2.extend(read_lanes, (*write_lanes, *rest), size=bank_bits)
    rows = _common_complement(write_lanes, read_lanes, rest)
    word_bits = max(0, log2(banks.BANK_BYTES) - log2(vector_bytes))
    columns = (*vector, *rows[:word_bits], *write_lanes, *rows[word_bits:], *rounds)
    inverse = gf2.inverse(columns)
    assert inverse is not None, "vector, banks and rows are complementary by construction"
    return inverse


def _common_complement(
    left: Sequence[int], right: Sequence[int], space: Iterable[int]
) -> tuple[int, ...]:
    """Return a basis of a common complement of two equally large subspaces of `space`."""
    shared = gf2.intersection(left, right)
    left_only = gf2.extend(shared, left, size=len(left))[len(shared) :]
    right_only = gf2.extend(shared, right, size=len(right))[len(shared) :]
    diagonal = tuple(a ^ b for a, b in zip(left_only, right_only, strict=True))
    both = gf2.independent((*left, *right))
    outside = gf2.independent((*both, *space))[len(both) :]
    return (*outside, *diagonal)


def shared_access(
    layout: LinearLayout,
    vector: tuple[int, ...],
    offsets: tuple[int, ...],
    *,
    skipped_registers: int,
) -> SharedAccess:
    """Return how a layout reaches a tile that lies in shared memory by the map `offsets`.

    `vector` holds the elements at offsets 1, 2, 4, ...: those that an access covers. They must be
    directions of registers, and no thread bit may move within them. Registers with a bit of
    `skipped_registers` take no part.
    """
    registers = gf2.Elimination(layout.register)
    # Register selections that step through the vector, in the order of its offset bits.
    steps = gf2.images(registers.reduce(direction)[1] for direction in vector)
    places = gf2.images(gf2.apply(offsets, basis) for basis in layout.register)
    groups = []
    seen: set[int] = set()
    for register, offset in enumerate(places):
        if register in seen or register & skipped_registers:
            continue
        start = register ^ steps[offset & ((1 << len(vector)) - 1)]
        members = tuple(start ^ step for step in steps)
        seen.update(members)
        groups.append(SharedGroup(offset >> len(vector) << len(vector), members))
    return SharedAccess(
        vector=1 << len(vector),
        groups=tuple(groups),
        lane=tuple(gf2.apply(offsets, basis) for basis in layout.lane),
        warp=tuple(gf2.apply(offsets, basis) for basis in layout.warp),
    )
