"""Shared-memory bank conflicts of an access whose offsets are linear in the lane.

Shared memory has 32 banks of 4 bytes. A warp-wide access is served in phases of at most 128 bytes:
all lanes at up to 4 bytes each, half a warp at 8, a quarter at 16 (facts of the hardware since
sm_50). Lanes of one phase that want different words of one bank wait for each other; the same word
is broadcast. Because offsets are linear over GF(2), the lanes that hit bank 0 form a subspace, and
its size is the conflict.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright_compiler.layout import gf2

BANKS = 32
BANK_BYTES = 4
LINE_BYTES = BANKS * BANK_BYTES
LANE_BITS = 5


def phase_lane_bits(access_bytes: int) -> int:
    """Return how many low lane bits vary within one phase of an access of that many bytes."""
    return LANE_BITS - max(0, (access_bytes // BANK_BYTES).bit_length() - 1)


def conflict_ways(lane_offsets: Sequence[int], *, access_bytes: int, size_bytes: int) -> int:
    """Return the number of words that the busiest bank serves in one phase; 1 is free of conflicts.

    `lane_offsets` holds the xor contribution of each lane bit to the offset in elements of
    `size_bytes`.
    """
    lanes = lane_offsets[: phase_lane_bits(access_bytes)]
    # An access reads whole words: only the word of its first byte matters, the others follow it.
    words = [offset * size_bytes // BANK_BYTES for offset in lanes]
    return 1 << (gf2.rank(words) - gf2.rank(word % BANKS for word in words))


def wavefronts(lane_offsets: Sequence[int], *, access_bytes: int, size_bytes: int) -> int:
    """Return the passes through shared memory that one warp-wide access takes."""
    phases = 1 << (LANE_BITS - phase_lane_bits(access_bytes))
    return phases * conflict_ways(lane_offsets, access_bytes=access_bytes, size_bytes=size_bytes)
