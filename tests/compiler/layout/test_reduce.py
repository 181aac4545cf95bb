"""Reduction plans, executed on simulated threads, combine each element of a row exactly once."""

from __future__ import annotations

from collections import Counter
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from helpers.simulated_threads import distribute, reduce
from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout.linear import LinearLayout, unflatten
from tilewright_compiler.layout.reduce import combine_order, plan_reduce


def _merge(left: object, right: object) -> object:
    return cast("Counter[int]", left) + cast("Counter[int]", right)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from([2, 4, 8]))
def test_every_thread_gets_each_element_of_its_row_once(
    data: st.DataObject, size_bytes: int
) -> None:
    shape = data.draw(shapes(max_bits=8))
    axis = data.draw(st.integers(0, len(shape) - 1))
    layout = data.draw(layouts(shape, warp_bits=data.draw(st.integers(0, 3)), mixed=False))
    plan = plan_reduce(layout, axis, size_bytes=size_bytes)
    elements = [Counter([flat]) for flat in range(layout.size)]
    result = reduce(distribute(elements, layout), plan, _merge)
    rows: dict[tuple[int, ...], Counter[int]] = {}
    for flat in range(layout.size):
        coordinates = unflatten(flat, shape)
        row = coordinates[:axis] + coordinates[axis + 1 :]
        rows.setdefault(row, Counter())[flat] += 1
    for place, flat in plan.result.places():
        row = unflatten(flat, plan.result.shape)
        assert result[place.warp, place.lane, place.register] == rows[row]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_replicas_of_a_float_sum_agree_bit_for_bit(data: st.DataObject) -> None:
    layout = data.draw(layouts((4, 64), warp_bits=2, mixed=False))
    values = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    plan = plan_reduce(layout, 1, size_bytes=4)
    result = reduce(distribute(list(values), layout), plan, lambda a, b: a + b)  # type: ignore[operator]
    seen: dict[int, object] = {}
    for place, row in plan.result.places():
        value = result[place.warp, place.lane, place.register]
        assert seen.setdefault(row, value) == value
    sums = np.array([seen[row] for row in range(4)], dtype=np.float32)
    np.testing.assert_allclose(sums, values.reshape(4, 64).sum(1), rtol=1e-5)


def test_a_wide_row_over_many_warps_reads_its_partials_in_vectors() -> None:
    layout = LinearLayout(
        (1, 16384), (1, 2, 4096, 8192), (4, 8, 16, 32, 64), (128, 256, 512, 1024, 2048)[:4]
    )
    plan = plan_reduce(layout, 1, size_bytes=4)
    assert plan.lane_masks == (1, 2, 4, 8, 16)
    assert plan.scratch_bytes == 16 * 4
    assert plan.across_warps is not None
    assert plan.across_warps.exchange.read.vector == 4
    assert plan.result == LinearLayout((1,), (), (0,) * 5, (0,) * 4)


def test_rows_within_a_warp_need_no_shared_memory() -> None:
    layout = LinearLayout((4, 64), (1,), (2, 4, 8, 16, 32), (64, 128))
    plan = plan_reduce(layout, 1, size_bytes=4)
    assert plan.across_warps is None
    assert plan.scratch_bytes == 0
    assert plan.groups == ((0, 1),)


def test_columns_held_by_registers_stay_in_the_thread() -> None:
    layout = LinearLayout((4, 128), (128, 256), (1, 2, 4, 8, 16), (32, 64))
    plan = plan_reduce(layout, 0, size_bytes=4)
    assert plan.groups == ((0, 1, 2, 3),)
    assert plan.lane_masks == ()
    assert plan.across_warps is None


def test_the_tree_combines_neighbours_first() -> None:
    assert combine_order(4) == ((0, 1), (2, 3), (0, 2))
    assert combine_order(1) == ()


def test_a_basis_along_and_across_the_axis_is_refused() -> None:
    layout = LinearLayout((32, 2), (), (3, 4, 8, 16, 32), (1,))
    with pytest.raises(InternalCompilerError, match="mixes the axis"):
        plan_reduce(layout, 1, size_bytes=4)
