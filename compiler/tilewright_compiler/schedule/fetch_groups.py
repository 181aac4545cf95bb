"""Blocks of a kernel -> the groups of bulk copies in them that arrive together.

Tiles that dots read side by side are one group: they share a ring's worth of slots, an mbarrier
that says that a slot is full, and one that says that it is empty. Groups of the body of a loop
inside a program have as many slots as the loop asks for; others, one for each program, have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import SharedType


@dataclass(frozen=True, slots=True, eq=False)
class FetchGroup:
    """The `tma_tile`s of one block that arrive together, in order, and the slots of their rings.

    `users` are the operations of that block that read the tiles, themselves or inside.
    """

    tiles: tuple[Operation, ...]
    slots: int
    users: frozenset[Operation]

    @property
    def num_bytes(self) -> int:
        """Bytes that arrive in one slot."""
        return sum(tile_type(tile).tile_bytes for tile in self.tiles)


Groups = Mapping[Block, tuple[FetchGroup, ...]]


def tile_type(tile: Operation) -> SharedType:
    """Return the type of a `tma_tile`'s result."""
    type_ = tile.result.type
    assert isinstance(type_, SharedType), "the verifier checks types"
    return type_


def find_groups(module: Module, *, max_stages: int) -> Groups:
    """Return the groups of each block, in program order; loops get at most `max_stages` slots."""
    found: dict[Block, tuple[FetchGroup, ...]] = {}

    def visit(block: Block, loops: tuple[Operation, ...]) -> None:
        stages = 1
        if len(loops) > 1:
            asked = loops[-1].attributes.get("num_stages", module.signature.num_stages)
            stages = min(asked, max_stages)
        groups = tuple(_groups(block, stages))
        if groups:
            found[block] = groups
        for operation in block.operations:
            for region in operation.regions:
                visit(region, (*loops, operation) if operation.name == "for" else loops)

    visit(module.kernel.body, ())
    return found


def groups_inside(operation: Operation, groups: Groups) -> tuple[FetchGroup, ...]:
    """Return the groups of all blocks inside an operation, in program order."""
    inside = [groups.get(region, ()) for inner in operation.walk() for region in inner.regions]
    return tuple(group for of_block in inside for group in of_block)


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


def _groups(block: Block, slots: int) -> Iterator[FetchGroup]:
    tiles = [operation for operation in block.operations if operation.name == "tma_tile"]
    if not tiles:
        return
    used = uses(block)
    readers = {tile: frozenset(_readers(tile.result, used)) for tile in tiles}
    # Each component of tiles connected by dots.
    components: list[list[Operation]] = []
    for tile in tiles:
        dots = {reader for reader in readers[tile] if reader.name == "dot"}
        joined = [c for c in components if any(not dots.isdisjoint(readers[t]) for t in c)]
        components = [c for c in components if c not in joined]
        components.append([*(t for c in joined for t in c), tile])
    components.sort(key=lambda component: tiles.index(component[0]))
    for component in components:
        yield FetchGroup(
            tuple(component), slots, frozenset().union(*(readers[tile] for tile in component))
        )


def _readers(value: Value, used: Mapping[Value, list[Operation]]) -> Iterator[Operation]:
    for user in used.get(value, ()):
        if user.name == "shared_transpose":
            yield from _readers(user.result, used)
        else:
            yield user
