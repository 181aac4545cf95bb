"""The producer of a specialised kernel: its slice of the program, which starts all bulk copies.

It does what the program does but for everything that can be noticed; what copies and loops do not
need is dead code then, and `passes.dce` removes it. What remains must be scalars.
"""

from __future__ import annotations

from tilewright.abi.dtypes import int32
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops import SPECS, Effect
from tilewright_compiler.ir.types import ScalarType
from tilewright_compiler.schedule.loop_range import constant
from tilewright_compiler.schedule.role import Role


class Producer(Role):
    """Rebuilds a kernel's blocks for the thread that starts copies."""

    def operation(self, operation: Operation, builder: Builder) -> None:
        """Start the copies of a tile; do nothing where the program writes."""
        if operation.name == "tma_tile":
            self._fetch(operation, builder)
        elif SPECS[operation.name].effect not in (Effect.WRITE, Effect.ATOMIC):
            self.copy(operation, builder)

    def end(self, _builder: Builder) -> None:
        """Leave a block as it is: copies under way are waited for by those who read them."""

    def _fetch(self, tile: Operation, builder: Builder) -> None:
        site = self.site_of[tile]
        group = site.group
        rings, counter = self.rings[group], self.counters[group]
        builder.location = tile.location
        full = self.mbarrier(rings.full, counter.slot, builder)
        if tile is site.tiles[0]:
            empty = self.mbarrier(rings.empty, counter.slot, builder)
            one = constant(builder, 1, int32)
            # A slot that nobody has filled yet counts as emptied in the phase before the first.
            freed = builder.value("xor", [counter.parity, one], ScalarType(int32))
            builder.create("mbarrier_wait", [empty, freed])
            builder.create("mbarrier_expect", [full], bytes=group.num_bytes)
        place = self.place(tile, counter.slot, builder)
        self.values[tile.result] = place
        descriptor, *coordinates = (self.values.get(value, value) for value in tile.operands)
        copy = builder.create("tma_load", [descriptor, place, full, *coordinates])
        if "rounding" in tile.attributes:
            copy.attributes["rounding"] = tile.attributes["rounding"]
        if tile is site.tiles[-1]:
            self.counters[group] = counter.advanced(builder, group.slots)
