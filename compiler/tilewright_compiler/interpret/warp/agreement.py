"""Replicas agree: every place that holds an element of a tile holds the same bits, or some NaN.

Elementwise work on equal operands keeps replicas equal, so it is enough to look where values come
from memory or from other threads. The warps reach such an operation one after the other; what the
first ones found is kept until the last was there.
"""

from __future__ import annotations

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Value


@dataclass(slots=True)
class _Seen:
    values: Array
    known: Array
    warps: int = 0


def differ(left: Array, right: Array) -> Array:
    """Return where two arrays of one type and shape have different bits; all NaNs are one value.

    Which NaN an operation of NumPy gives depends on the order of its operands and on the processor,
    so it says nothing about a schedule.
    """
    bits = f"u{left.dtype.itemsize}"
    unlike = np.ascontiguousarray(left).view(bits) != np.ascontiguousarray(right).view(bits)
    result: Array = unlike & ((left == left) | (right == right))
    return result


class Agreement:
    """What the warps of a program found for the results of operations that not all have done."""

    def __init__(self, num_warps: int) -> None:
        self._num_warps = num_warps
        self._open: dict[tuple[Value, int], _Seen] = {}

    def disagreement(
        self, result: Value, turn: int, values: Array, places: Array, *, size: int
    ) -> int | None:
        """Return an element on which replicas of `result` differ; None if there is none.

        `places` holds the flat index of each of the values, of a tile of `size` elements.
        """
        key = result, turn
        seen = self._open.get(key)
        if seen is None:
            seen = _Seen(np.zeros(size, values.dtype), np.zeros(size, np.bool_))
            self._open[key] = seen
        unlike = seen.known[places] & differ(seen.values[places], values)
        seen.values[places], seen.known[places] = values, True
        unlike |= differ(seen.values[places], values)
        seen.warps += 1
        if seen.warps == self._num_warps:
            del self._open[key]
        return int(places[unlike][0]) if unlike.any() else None
