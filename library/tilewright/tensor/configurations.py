"""Which configuration of a kernel serves which width; the bundle carries exactly these.

The figures are the shapes at which one program keeps at most 16 elements a lane in registers:
enough bytes in flight to fill the memory system, few enough registers for many programs on a
multiprocessor. `prebuilt/signatures` declares the same configurations, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """Tile extents and warps of one program; `block_m` rows of up to `block_n` columns."""

    block_m: int
    block_n: int
    num_warps: int


# One program holds whole rows: the first entry with block_n >= columns serves.
ROWS: tuple[Configuration, ...] = (
    Configuration(4, 128, 1),
    Configuration(1, 512, 1),
    Configuration(1, 1024, 2),
    Configuration(1, 2048, 4),
    Configuration(1, 4096, 8),
    Configuration(1, 8192, 16),
)

# Wider rows are walked in chunks by one program.
ROWS_LOOPED = Configuration(1, 4096, 8)

# Elementwise: wide tiles for long inner axes, tall ones for short.
ELEMENTWISE_WIDE = Configuration(1, 1024, 4)
ELEMENTWISE_TALL = Configuration(32, 32, 4)


def rows_configuration(columns: int) -> Configuration | None:
    """Return the one-pass configuration for rows of that width, None if they must be looped."""
    for configuration in ROWS:
        if columns <= configuration.block_n:
            return configuration
    return None


def elementwise_configuration(columns: int) -> Configuration:
    """Return the configuration for an inner axis of that extent."""
    return ELEMENTWISE_WIDE if columns > ELEMENTWISE_TALL.block_n * 4 else ELEMENTWISE_TALL
