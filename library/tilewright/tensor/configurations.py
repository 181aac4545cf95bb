"""Which configuration of a kernel serves which width; the bundle carries exactly these.

Chosen by timing on an H200: 16 elements a lane for rows of up to 1,024 columns and 32 for wider
ones, the same for softmax, layer norm and reductions, 64 for the widest that one program holds; 8
for elementwise tiles.
`prebuilt/signatures` declares the same configurations, and a test compares the two.
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
    Configuration(16, 128, 4),
    Configuration(4, 512, 4),
    Configuration(2, 1024, 4),
    Configuration(1, 2048, 2),
    Configuration(1, 4096, 4),
    Configuration(1, 8192, 8),
    Configuration(1, 16384, 16),
)

# Softmax and layer norm hold several narrow rows in a tile, or one long row in parts.
TILES = ROWS[:3]
LONG_ROWS: tuple[Configuration, ...] = (*ROWS[3:], Configuration(1, 32768, 16))

# Where a row may begin unaligned, layer norm keeps weight and bias in registers: of wider rows they
# would not fit.
LONG_ROWS_UNALIGNED = LONG_ROWS[:3]

# Wider rows are walked in chunks by one program.
ROWS_LOOPED = Configuration(1, 4096, 16)

# Elementwise: wide tiles for long inner axes, tall ones for short.
ELEMENTWISE_WIDE = Configuration(1, 1024, 4)
ELEMENTWISE_TALL = Configuration(32, 32, 4)


def rows_configuration(
    columns: int, table: tuple[Configuration, ...] = ROWS
) -> Configuration | None:
    """Return the one-pass configuration for rows of that width, None when they must be looped."""
    for configuration in table:
        if columns <= configuration.block_n:
            return configuration
    return None


def elementwise_configuration(columns: int) -> Configuration:
    """Return the configuration for an inner axis of that extent."""
    return ELEMENTWISE_WIDE if columns > ELEMENTWISE_TALL.block_n * 4 else ELEMENTWISE_TALL
