"""Blocks of a kernel -> the groups of bulk copies in them that arrive together.

Tiles that dots read side by side are one group, and so is a small tile that none reads with the one
before it, which it costs no time to wait for, too: they share a ring's worth of slots, an mbarrier
that says that a slot is full, and one that says that it is empty. A group has several sites where
`rotate_dots` has moved a part of an iteration out of its loop: whoever comes next takes the next
slot. Groups of the body of a loop inside a program have as many slots as the loop asks for; what is
there for a loop inside has one; what is there for a whole program has two where there is room, so
that the next program's arrives under this one's last products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import SharedType


@dataclass(frozen=True, slots=True, eq=False)
class FetchGroup:
    """Tiles that arrive together: their types and names, and the slots of their rings."""

    tiles: tuple[Value, ...]
    slots: int

    @property
    def num_bytes(self) -> int:
        """Bytes that arrive in one slot."""
        return sum(shared_type(tile).tile_bytes for tile in self.tiles)


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """Where a group arrives: the `tma_tile`s of a block, in order.

    `users` are the operations of that block that read the tiles, themselves or inside.
    """

    group: FetchGroup
    tiles: tuple[Operation, ...]
    users: frozenset[Operation]


_SMALL_BYTES = 1024

Sites = Mapping[Block, tuple[Site, ...]]


def shared_type(tile: Value) -> SharedType:
    """Return the type of a tile in shared memory."""
    assert isinstance(tile.type, SharedType), "the verifier checks types"
    return tile.type


def find_sites(module: Module, *, max_stages: int, program_slots: int) -> Sites:
    """Return the sites of each block, in program order.

    Loops get at most `max_stages` slots, what is there for a whole program `program_slots`.
    """
    found: list[tuple[Block, tuple[Operation, ...], frozenset[Operation], int]] = []

    def visit(block: Block, loops: tuple[Operation, ...]) -> None:
        stages = program_slots
        if len(loops) > 1:
            asked = loops[-1].attributes.get("num_stages", module.signature.num_stages)
            stages = min(asked, max_stages)
        for tiles, users in _components(block):
            # What a loop inside reads all the time is not needed twice at once.
            is_held = any(user.regions for user in users)
            is_held = is_held and len(loops) > 1
            found.append((block, tiles, users, 1 if is_held else stages))
        for operation in block.operations:
            for region in operation.regions:
                visit(region, (*loops, operation) if operation.name == "for" else loops)

    visit(module.kernel.body, ())
    slots: dict[object, int] = {}
    for _, tiles, _, stages in found:
        slots[_key(tiles)] = max(stages, slots.get(_key(tiles), 0))
    groups: dict[object, FetchGroup] = {}
    sites: dict[Block, tuple[Site, ...]] = {}
    for block, tiles, users, _ in found:
        key = _key(tiles)
        if key not in groups:
            groups[key] = FetchGroup(tuple(tile.result for tile in tiles), slots[key])
        sites[block] = (*sites.get(block, ()), Site(groups[key], tiles, users))
    return sites


def groups_inside(operation: Operation, sites: Sites) -> tuple[FetchGroup, ...]:
    """Return the groups of all blocks inside an operation, in program order."""
    inside = [sites.get(region, ()) for inner in operation.walk() for region in inner.regions]
    return tuple(dict.fromkeys(site.group for of_block in inside for site in of_block))


def uses(block: Block) -> dict[Value, list[Operation]]:
    """Return the operations of a block that use each value, themselves or inside."""
    found: dict[Value, list[Operation]] = {}
    for operation in block.operations:
        for inner in operation.walk():
            for operand in inner.operands:
                users = found.setdefault(operand, [])
                if operation not in users:
                    users.append(operation)
    return found


def _key(tiles: tuple[Operation, ...]) -> object:
    """Return what sites of one group have in common: the rings that their tiles name."""
    rings = tuple(tile.attributes.get("ring") for tile in tiles)
    return tiles if None in rings else rings


def _components(block: Block) -> Iterator[tuple[tuple[Operation, ...], frozenset[Operation]]]:
    """Yield the tiles of a block that dots connect, with all that reads them."""
    tiles = [operation for operation in block.operations if operation.name == "tma_tile"]
    if not tiles:
        return
    used = uses(block)
    readers = {tile: frozenset(_readers(tile.result, used)) for tile in tiles}
    components: list[list[Operation]] = []
    for tile in tiles:
        dots = {reader for reader in readers[tile] if reader.name == "dot"}
        joined = [c for c in components if any(not dots.isdisjoint(readers[t]) for t in c)]
        is_small = shared_type(tile.result).tile_bytes <= _SMALL_BYTES
        if not dots and is_small and tile is not tiles[0]:
            joined = [c for c in components if tiles[tiles.index(tile) - 1] in c]
        components = [c for c in components if c not in joined]
        components.append([*(t for c in joined for t in c), tile])
    components.sort(key=lambda component: tiles.index(component[0]))
    for component in components:
        nobody: frozenset[Operation] = frozenset()
        yield tuple(component), nobody.union(*(readers[tile] for tile in component))


def _readers(value: Value, used: Mapping[Value, list[Operation]]) -> Iterator[Operation]:
    for user in used.get(value, ()):
        if user.name == "shared_transpose":
            yield from _readers(user.result, used)
        else:
            yield user
