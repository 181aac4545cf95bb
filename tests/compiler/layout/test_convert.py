"""Conversion plans, executed on simulated threads, give every thread the elements of the target."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.layouts import layout_pairs, layouts, shapes
from helpers.simulated_threads import bank_ways, convert, distribute
from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout.convert import (
    Identity,
    RegisterMove,
    ShuffleExchange,
    _plan_shuffle,
    broadcast_sources,
    plan_conversion,
)
from tilewright_compiler.layout.linear import LinearLayout, flatten, log2, unflatten
from tilewright_compiler.layout.shared import (
    SharedExchange,
    _common_vector,
    _exchange,
    plan_exchange,
)

Pair = tuple[LinearLayout, LinearLayout]
SIZES = st.sampled_from([1, 2, 4, 8])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(layout_pairs(), SIZES)
def test_the_chosen_plan_delivers_the_target(pair: Pair, size_bytes: int) -> None:
    source, target = pair
    plan = plan_conversion(source, target, size_bytes=size_bytes)
    elements = range(source.size)
    result = convert(distribute(elements, source), plan)
    assert (result == distribute(elements, target)).all()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(layout_pairs(), SIZES)
def test_the_exchange_through_shared_memory_delivers_the_target(
    pair: Pair, size_bytes: int
) -> None:
    source, target = pair
    plan = plan_exchange(source, target, size_bytes=size_bytes)
    elements = range(source.size)
    result = convert(distribute(elements, source), plan)
    assert (result == distribute(elements, target)).all()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(layout_pairs(), SIZES, st.integers(1, 3))
def test_a_tile_larger_than_shared_memory_goes_in_rounds(
    pair: Pair, size_bytes: int, halvings: int
) -> None:
    source, target = pair
    assume(source.size >> halvings)
    most = source.size * size_bytes >> halvings
    plan = plan_exchange(source, target, size_bytes=size_bytes, most_bytes=most)
    common = len(_common_vector(source, target))
    assert len(plan.rounds) == 1 << min(halvings, common)
    assert plan.scratch_bytes == source.size * size_bytes >> min(halvings, common)
    elements = range(source.size)
    result = convert(distribute(elements, source), plan)
    assert (result == distribute(elements, target)).all()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(layout_pairs())
def test_a_shuffle_delivers_the_target_whenever_one_is_found(pair: Pair) -> None:
    source, target = pair
    plan = _plan_shuffle(source, target)
    if plan is None:
        return
    elements = range(source.size)
    result = convert(distribute(elements, source), plan)
    assert (result == distribute(elements, target)).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_a_permutation_within_the_warp_is_always_a_shuffle(data: st.DataObject) -> None:
    columns = data.draw(st.permutations([1 << bit for bit in range(8)]))
    again = data.draw(st.permutations(columns))
    source = LinearLayout((256,), tuple(columns[5:]), tuple(columns[:5]), (0,))
    target = LinearLayout((256,), tuple(again[5:]), tuple(again[:5]), (0,))
    plan = _plan_shuffle(source, target)
    assert plan is not None
    assert len(plan.rounds) == 8


@settings(max_examples=100, deadline=None, derandomize=True)
@given(layout_pairs(), SIZES)
def test_counted_conflicts_agree_with_a_simulation_of_the_banks(
    pair: Pair, size_bytes: int
) -> None:
    source, target = pair
    plan = plan_exchange(source, target, size_bytes=size_bytes)
    for access in (plan.write, plan.read):
        ways = access.conflict_ways(size_bytes=size_bytes)
        for group in access.groups[:4]:
            for warp in range(source.num_warps):
                assert bank_ways(access, group.offset, warp, size_bytes) == ways


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data(), SIZES)
def test_an_exchange_with_common_vectors_has_no_bank_conflicts(
    data: st.DataObject, size_bytes: int
) -> None:
    shape = data.draw(shapes())
    source = data.draw(layouts(shape, warp_bits=2, mixed=False))
    target = data.draw(layouts(shape, warp_bits=2, mixed=False))
    common = _common_vector(source, target)[: log2(16 // size_bytes)]
    plain = _exchange(source, target, common, (), (), size_bytes)
    assert plain.write.conflict_ways(size_bytes=size_bytes) == 1
    assert plain.read.conflict_ways(size_bytes=size_bytes) == 1
    # A longer vector on one side is taken only where it costs less all in all.
    assert plan_exchange(source, target, size_bytes=size_bytes).cost <= plain.cost


ROWS = LinearLayout(
    (64, 64), (1, 2, 16 * 64, 32 * 64), (4, 8, 16, 32, 64), (2 * 64, 4 * 64, 8 * 64)
)
COLUMNS = LinearLayout((64, 64), (64, 128, 16, 32), (256, 512, 1024, 2048, 1), (2, 4, 8))


def test_a_transposition_reads_and_writes_without_conflicts() -> None:
    plan = plan_conversion(ROWS, COLUMNS, size_bytes=4)
    assert isinstance(plan, SharedExchange)
    assert plan.write.conflict_ways(size_bytes=4) == plan.read.conflict_ways(size_bytes=4) == 1
    assert plan.scratch_bytes == 64 * 64 * 4


def test_rows_moved_between_warps_keep_full_vectors() -> None:
    target = LinearLayout(
        ROWS.shape, ROWS.register[:2] + ROWS.warp[:2], ROWS.lane, (1024, 2048, 512)
    )
    plan = plan_conversion(ROWS, target, size_bytes=4)
    assert isinstance(plan, SharedExchange)
    assert plan.write.vector == plan.read.vector == 4
    assert len(plan.write.groups) == 4


def test_equal_layouts_cost_nothing() -> None:
    assert isinstance(plan_conversion(ROWS, ROWS, size_bytes=4), Identity)


def test_reordered_registers_are_renamed() -> None:
    target = LinearLayout(ROWS.shape, ROWS.register[::-1], ROWS.lane, ROWS.warp)
    plan = plan_conversion(ROWS, target, size_bytes=4)
    assert plan == RegisterMove((0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15))


def test_swapping_a_lane_bit_with_a_register_bit_is_a_shuffle() -> None:
    target = LinearLayout(ROWS.shape, (4, *ROWS.register[1:]), (1, *ROWS.lane[1:]), ROWS.warp)
    plan = plan_conversion(ROWS, target, size_bytes=4)
    assert isinstance(plan, ShuffleExchange)
    # Half the rounds stay in the lane: 8 shuffles move the 16 registers of a thread.
    assert plan.is_butterfly
    assert sum(turn.lane_xor != 0 for turn in plan.rounds) == 8


def test_different_numbers_of_warps_are_refused() -> None:
    other = LinearLayout(ROWS.shape, (*ROWS.register, 512), ROWS.lane, ROWS.warp[:2])
    with pytest.raises(InternalCompilerError, match="number of warps"):
        plan_conversion(ROWS, other, size_bytes=4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_a_projected_operand_broadcasts_by_copying_registers(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    target = data.draw(layouts(shape, warp_bits=2, mixed=False))
    small = tuple(data.draw(st.sampled_from([1, extent])) for extent in shape)
    source = target.project(small)
    sources = broadcast_sources(source, target)
    assert sources is not None
    held = distribute(range(source.size), source)
    for place, flat in target.places():
        coordinates = unflatten(flat, shape)
        kept = [c if extent > 1 else 0 for c, extent in zip(coordinates, small, strict=True)]
        value = held[place.warp, place.lane, sources[place.register]]
        assert value == flatten(kept, small)
