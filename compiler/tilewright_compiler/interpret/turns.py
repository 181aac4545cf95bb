"""Atomic updates of an array: lanes that meet in one element take turns, in the order of the lanes.

Elements that equally many lanes meet in are updated together, one turn at a time, so that the work
is NumPy's as long as few lanes meet. A sum or an extremum takes all turns of an element in one
`accumulate`, which goes in order by definition.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array

Step = Callable[[Array, tuple[Array, ...]], Array]
"""All turns of some elements: from the elements [n] and the lanes' values [n, turns] to the
elements before each turn and after the last, [n, turns + 1]."""


@dataclass(frozen=True, slots=True)
class History:
    """What each lane found, and whether any element is now another."""

    before: Array
    is_changed: bool


def in_turn(memory: Array, places: Array, values: tuple[Array, ...], step: Step) -> History:
    """Update `memory` at `places` [lanes] with `values` [lanes] each."""
    order = np.argsort(places, kind="stable")
    elements, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
    before = np.empty(places.size, memory.dtype)
    is_changed = False
    for turns in np.unique(counts).tolist():
        chosen = counts == turns
        lanes = order[starts[chosen][:, None] + np.arange(turns)]
        here = elements[chosen]
        found = memory[here]
        history = step(found, tuple(value[lanes] for value in values))
        before[lanes] = history[:, :-1]
        memory[here] = history[:, -1]
        is_changed |= found.tobytes() != memory[here].tobytes()
    return History(before, is_changed)


def each_turn(advance: Callable[[Array, tuple[Array, ...]], Array]) -> Step:
    """Return the step that computes one turn after the other."""

    def step(found: Array, values: tuple[Array, ...]) -> Array:
        history = np.empty((found.size, values[0].shape[1] + 1), found.dtype)
        history[:, 0] = found
        for turn in range(values[0].shape[1]):
            current = tuple(value[:, turn] for value in values)
            history[:, turn + 1] = advance(history[:, turn], current)
        return history

    return step


def accumulated(combine: np.ufunc) -> Step:
    """Return the step that lets a ufunc of NumPy accumulate the values."""

    def step(found: Array, values: tuple[Array, ...]) -> Array:
        everything = np.concatenate([found[:, None], values[0]], axis=1)
        result: Array = combine.accumulate(everything, axis=1, dtype=found.dtype)
        return result

    return step
