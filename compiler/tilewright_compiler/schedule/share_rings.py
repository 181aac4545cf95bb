"""Tile IR with `tma_tile` -> the same, with the rings of loops named: those that follow each other
share theirs, and so do the sites of a tile that `rotate_dots` moves a copy of out of its loop.

A kernel may walk one operand in several loops: blocks that need a mask behind those that need none,
say. Copies and readers go through such loops in the same order, so their tiles can take turns in
one ring; a ring for each loop would need shared memory for both. Loops inside each other do not
share: a tile that the outer one holds would keep the inner one waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_compiler.ir.builder import Builder, copy_operation, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value


def share_rings(module: Module) -> Module:
    """Name the rings of tiles that loops of one block read from the same descriptors."""
    rings: dict[Operation, int] = {}
    count = 0
    for block in _blocks(module.kernel.body):
        named: dict[tuple[object, ...], tuple[int, ...]] = {}
        for loop in (operation for operation in block.operations if operation.name == "for"):
            tiles = [o for o in loop.regions[0].operations if o.name == "tma_tile"]
            key = tuple((tile.operands[0], tile.result.type) for tile in tiles)
            if key not in named:
                named[key] = tuple(range(count, count + len(tiles)))
                count += len(tiles)
            rings.update(zip(tiles, named[key], strict=True))

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation not in rings:
            return None
        values = dict(zip(operation.operands, operands, strict=True))
        copy = copy_operation(operation, values, builder)
        copy.attributes["ring"] = rings[operation]
        return copy.results

    return rewrite_module(module, rewrite)


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for operation in block.operations:
        for region in operation.regions:
            yield from _blocks(region)
