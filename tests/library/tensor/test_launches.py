"""Launches planned once: how a batch is cut, where the pointers of its parts begin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tensor import launches
from tilewright.tensor.geometry import geometry_of
from tilewright.tensor.launches import batch_pieces, forget_plans, planned


@given(st.lists(st.integers(0, 4), min_size=0, max_size=4), st.data())
def test_pieces_walk_every_element_once(extents: list[int], data: st.DataObject) -> None:
    shape = tuple(extents)
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    turned = data.draw(st.tuples(*(st.sampled_from((1, -1)) for _ in shape)))
    steps = tuple(slice(None, None, step) for step in turned)
    view = np.asarray(array.transpose(order)[steps])
    strides = geometry_of(view).strides
    seen = []
    for piece in batch_pieces(view.shape, (strides,), rank=2):
        (begin,) = piece.pointers(0)
        start = np.asarray(begin.into([view]))
        bytes_ = [s * array.itemsize for s in piece.space.strides[0]]
        seen += list(np.lib.stride_tricks.as_strided(start, piece.space.sizes, bytes_).ravel())
    assert sorted(seen) == list(range(array.size))


def test_no_piece_is_higher_than_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "GRID_HEIGHT", 4)
    pieces = list(batch_pieces((3, 10), ((100, 2),), rank=2))
    assert [(piece.offsets[0], piece.space.sizes) for piece in pieces] == [
        (0, (3, 4)),
        (8, (3, 4)),
        (16, (3, 2)),
    ]


def test_plans_are_forgotten_on_request() -> None:
    calls: list[int] = []

    @planned
    def plan(number: int) -> int:
        calls.append(number)
        return number

    assert [plan(1), plan(1), plan(2)] == [1, 1, 2]
    forget_plans()
    assert plan(1) == 1
    assert calls == [1, 2, 1]
