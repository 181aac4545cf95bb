"""Linear algebra over GF(2) against enumeration of whole spans."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright_compiler.layout import gf2

VECTORS = st.lists(st.integers(0, 63), max_size=6)


def span(columns: list[int] | tuple[int, ...]) -> set[int]:
    return {
        gf2.apply(columns, sum(bit << i for i, bit in enumerate(bits)))
        for bits in product((0, 1), repeat=len(columns))
    }


@settings(max_examples=100, deadline=None, derandomize=True)
@given(VECTORS)
def test_rank_is_the_logarithm_of_the_span(columns: list[int]) -> None:
    assert len(span(columns)) == 1 << gf2.rank(columns)
    assert span(gf2.independent(columns)) == span(columns)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(VECTORS, st.integers(0, 63))
def test_a_vector_is_expressed_exactly_if_it_lies_in_the_span(
    columns: list[int], vector: int
) -> None:
    selection = gf2.Elimination(columns).express(vector)
    assert (selection is not None) == (vector in span(columns))
    if selection is not None:
        assert gf2.apply(columns, selection) == vector


@settings(max_examples=100, deadline=None, derandomize=True)
@given(VECTORS, VECTORS)
def test_intersection(left: list[int], right: list[int]) -> None:
    assert span(gf2.intersection(left, right)) == span(left) & span(right)


def test_the_inverse_undoes_the_matrix_and_a_singular_one_has_none() -> None:
    columns = (0b011, 0b110, 0b111)
    inverse = gf2.inverse(columns)
    assert inverse is not None
    assert [gf2.apply(inverse, gf2.apply(columns, x)) for x in range(8)] == list(range(8))
    assert gf2.inverse((1, 2, 3)) is None
