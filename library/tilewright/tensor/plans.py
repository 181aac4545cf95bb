"""Whole operations as plans: their launches, and a result that may lie where an operand does.

A launch reads while it writes, so a result over other elements of an operand would give values that
depend on the order of tiles. Whether it lies so depends on addresses, which plans know nothing of:
each call with an `out` asks, and computes apart and copies where it must.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import Array
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.geometry import Arrays, Geometry, new_array, result_of
from tilewright.tensor.launches import PlannedLaunch
from tilewright.tensor.movement import copy_elements


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of an operation, and the geometry of its result, the operand `place`.

    `apart` plans it for a new result. An operand whose bit of `in_place` is set may be the result:
    every element of it is read by the program that writes it, before it does.
    """

    launches: tuple[PlannedLaunch, ...]
    result: Geometry
    place: int
    apart: Callable[[], Plan]
    in_place: int = 0

    def run(self, arrays: Arrays, scalars: tuple[Any, ...] = ()) -> Array:
        """Launch over the operands of a call, with its scalars; return the result."""
        place = self.place
        result = arrays[place]
        if result is None:
            result = arrays[place] = new_array(self.result, arrays)
        else:
            result_of(arrays, place, self.result)
            if must_be_apart(arrays, place, self.in_place):
                arrays[place] = None
                copy_elements(self.apart().run(arrays, scalars), result)
                return result
        for launch in self.launches:
            launch.run(arrays, scalars)
        return result
