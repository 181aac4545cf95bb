"""Hypothesis strategies of layouts: permuted, mixed and replicated bases over small tiles."""

from __future__ import annotations

from hypothesis import strategies as st

from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LANE_BITS, LinearLayout, flatten, log2


@st.composite
def shapes(draw: st.DrawFn, *, max_bits: int = 10, max_rank: int = 3) -> tuple[int, ...]:
    """Tile shapes of at most 2**max_bits elements, extents 1 included."""
    bits = draw(st.lists(st.integers(0, 6), min_size=1, max_size=max_rank))
    while sum(bits) > max_bits:
        bits[bits.index(max(bits))] -= 1
    return tuple(1 << b for b in bits)


@st.composite
def layouts(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    *,
    warp_bits: int,
    mixed: bool = True,
    register_replicas: bool = True,
) -> LinearLayout:
    """Surjective layouts of `shape`; `mixed` ones also have bases of several bits."""
    bits = [log2(extent) for extent in shape]
    units = [
        flatten([1 << bit if a == axis else 0 for a in range(len(shape))], shape)
        for axis, count in enumerate(bits)
        for bit in range(count)
    ]
    columns = list(draw(st.permutations(units)))
    if mixed:
        for _ in range(draw(st.integers(0, 3)) if len(columns) > 1 else 0):
            into, source = draw(st.permutations(range(len(columns))))[:2]
            columns[into] ^= columns[source]
    threads = LANE_BITS + warp_bits
    in_threads = draw(st.integers(0, min(threads, len(columns))))
    thread = columns[:in_threads] + [0] * (threads - in_threads)
    register = columns[in_threads:]
    if mixed and register and in_threads < threads and draw(st.booleans()):
        thread[-1] = draw(st.sampled_from(register))  # held by registers too: a replica, not zero
    thread = list(draw(st.permutations(thread)))
    if register_replicas and draw(st.integers(0, 3)) == 0:
        register.insert(draw(st.integers(0, len(register))), 0)
    layout = LinearLayout(
        shape, tuple(register), tuple(thread[:LANE_BITS]), tuple(thread[LANE_BITS:])
    )
    assert 1 << gf2.rank(layout.bases) == layout.size
    return layout


@st.composite
def layout_pairs(draw: st.DrawFn) -> tuple[LinearLayout, LinearLayout]:
    """Two layouts of one tile, often alike in some of their bases."""
    shape = draw(shapes())
    warp_bits = draw(st.integers(0, 2))
    source = draw(layouts(shape, warp_bits=warp_bits))
    if draw(st.booleans()):
        return source, draw(layouts(shape, warp_bits=warp_bits))
    # Same warps: the conversions within a warp.
    inside = list(draw(st.permutations([*source.register, *source.lane])))
    return source, LinearLayout(
        shape, tuple(inside[LANE_BITS:]), tuple(inside[:LANE_BITS]), source.warp
    )
