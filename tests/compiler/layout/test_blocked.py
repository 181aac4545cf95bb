"""Coalesced layouts of the shapes that row kernels use, spelled out."""

from __future__ import annotations

import pytest

from tilewright_compiler.layout.access import sectors, vector_width
from tilewright_compiler.layout.blocked import blocked, widest_vector
from tilewright_compiler.layout.linear import LinearLayout


def test_a_vector_block_fills_lanes_then_warps_then_registers() -> None:
    assert blocked((1024,), (0,), vector=4, num_warps=4) == LinearLayout(
        (1024,), (1, 2, 512), (4, 8, 16, 32, 64), (128, 256)
    )


def test_a_wide_row_is_coalesced_over_all_warps() -> None:
    layout = blocked((1, 16384), (1, 0), vector=4, num_warps=16)
    assert vector_width(layout, 1, limit=4) == 4
    assert sectors(layout, 1, vector=4, contiguity=16384, size_bytes=4) == 16
    assert layout.is_injective
    assert layout.num_registers == 32


def test_a_tall_tile_lets_a_warp_take_several_rows() -> None:
    layout = blocked((64, 16), (1, 0), vector=4, num_warps=4)
    assert layout == LinearLayout((64, 16), (1, 2, 512), (4, 8, 16, 32, 64), (128, 256))


def test_warps_can_take_rows_so_that_a_row_stays_in_one_warp() -> None:
    layout = blocked((4, 1024), (1, 0), vector=4, num_warps=4, warp_order=(0, 1))
    assert layout.warp == (1024, 2048)
    assert layout.is_injective


def test_the_column_order_runs_down_the_first_axis() -> None:
    layout = blocked((32, 8), (0, 1), vector=2, num_warps=2)
    assert layout.register[0] == 8
    assert layout.lane[:4] == (16, 32, 64, 128)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 8), (16,)])
def test_tiles_smaller_than_the_threads_are_replicated(shape: tuple[int, ...]) -> None:
    layout = blocked(shape, tuple(range(len(shape)))[::-1], vector=1, num_warps=4)
    assert layout.is_surjective
    assert layout.num_registers == 1
    assert layout.free.lane.bit_count() == max(0, 5 - (layout.size.bit_length() - 1))


@pytest.mark.parametrize(
    ("shape", "num_warps", "expected"),
    [
        ((1024,), 4, 8),
        ((512,), 4, 4),
        ((128,), 4, 1),
        ((64,), 4, 1),
        ((64, 16), 4, 8),
        ((512, 2), 1, 2),
    ],
)
def test_the_vector_shrinks_only_where_lanes_would_idle(
    shape: tuple[int, ...], num_warps: int, expected: int
) -> None:
    assert widest_vector(shape, len(shape) - 1, limit=8, num_warps=num_warps) == expected
