"""Linear algebra over GF(2) with integers as bit vectors: elimination, spans, complements.

A vector is an int, addition is xor, and a matrix is a tuple of columns. A selection of columns is
an int too: bit j says that column j takes part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Elimination:
    """The span of the columns added so far, in echelon form, with how each row came about."""

    def __init__(self, columns: Iterable[int] = ()) -> None:
        # Leading bit's value, vector, selection of columns. A row is 0 at the leading bits of the
        # rows before it, so that subtracting them in order leaves 0 at all leading bits.
        self._rows: list[tuple[int, int, int]] = []
        self._count = 0
        for column in columns:
            self.add(column)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self._rows)

    def add(self, column: int) -> bool:
        """Add a column; return whether it was independent. Dependent ones are never used."""
        selection = 1 << self._count
        self._count += 1
        for lead, row, combination in self._rows:
            if column & lead:
                column ^= row
                selection ^= combination
        if column == 0:
            return False
        self._rows.append((1 << (column.bit_length() - 1), column, selection))
        return True

    def reduce(self, vector: int) -> tuple[int, int]:
        """Return the rest of `vector` outside the span, and the selection subtracted."""
        selection = 0
        for lead, row, combination in self._rows:
            if vector & lead:
                vector ^= row
                selection ^= combination
        return vector, selection

    def express(self, vector: int) -> int | None:
        """Return the selection of columns whose sum is `vector`, or None outside the span."""
        remainder, selection = self.reduce(vector)
        return selection if remainder == 0 else None

    def __contains__(self, vector: int) -> bool:
        return self.reduce(vector)[0] == 0


def apply(columns: Sequence[int], vector: int) -> int:
    """Multiply the matrix of these columns by `vector`: the sum of the columns it selects."""
    result = 0
    vector &= (1 << len(columns)) - 1
    while vector:
        low = vector & -vector
        result ^= columns[low.bit_length() - 1]
        vector ^= low
    return result


def images(columns: Iterable[int]) -> list[int]:
    """Return what the matrix of these columns makes of 0, 1, 2, ...: all that `apply` can give."""
    found = [0]
    for column in columns:
        found += [image ^ column for image in found]
    return found


def rank(columns: Iterable[int]) -> int:
    """Return the dimension of the span."""
    return len(independent(columns))


def independent(columns: Iterable[int]) -> tuple[int, ...]:
    """Return the columns that are independent of all before them, in order."""
    # An elimination that nobody asks how its rows came about: layouts ask this thousands of times.
    rows: list[tuple[int, int]] = []
    found = []
    for column in columns:
        rest = column
        for lead, row in rows:
            if rest & lead:
                rest ^= row
        if rest:
            rows.append((1 << (rest.bit_length() - 1), rest))
            found.append(column)
    return tuple(found)


def intersection(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Return a basis of the intersection of two spans; vectors common to both lists come first."""
    left, right = independent(left), independent(right)
    common = [column for column in left if column in right]
    # Each dependency among left + right is one vector of the intersection (Zassenhaus by
    # selections).
    both = Elimination()
    order = (*left, *right)
    for column in order:
        selection = both.express(column)
        if selection is not None:
            common.append(apply(left, selection & ((1 << len(left)) - 1)))
        both.add(column)
    return independent(common)


def extend(columns: Sequence[int], candidates: Iterable[int], *, size: int) -> tuple[int, ...]:
    """Return `columns` with independent candidates appended until there are `size` of them."""
    span = Elimination(columns)
    result = list(columns)
    for candidate in candidates:
        if len(result) == size:
            break
        if span.add(candidate):
            result.append(candidate)
    return tuple(result)


def inverse(columns: Sequence[int]) -> tuple[int, ...] | None:
    """Return the columns of the inverse of a square matrix, or None if it is singular."""
    span = Elimination(columns)
    if span.rank != len(columns):
        return None
    return tuple(span.reduce(1 << bit)[1] for bit in range(len(columns)))
