"""The choices that are tried for a point: those that bundles carry, and others worth a trial.

Others are tiles around the declared ones, as many stages deep as shared memory holds. Which of all
can serve is asked of the library itself, by planning the operation with each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from tilewright.abi.tuned import Choice
from tilewright.tensor.block_configurations import BLOCK_FORMS
from tilewright.tensor.block_launches import BLOCK_KERNELS
from tilewright.tensor.configurations import (
    ATTENTION_16,
    ATTENTION_32,
    ATTENTION_BLOCKS,
    ATTENTION_BLOCKS_BIASED,
    MATMUL_FAST,
    DotConfiguration,
)
from tilewright.tensor.matmul_launches import PLAIN
from tilewright_release.tuning.points import AttentionPoint, ProductPoint

_PARTS = (1, 2, 3, 4, 6, 8)
_FEW_PROGRAMS = 256
_SHARED_BYTES = 227 * 1024
_COPIES = ((), (0,), (1,), (0, 1))


class Candidate(NamedTuple):
    """A choice, and whether bundles carry what it launches."""

    choice: Choice
    is_declared: bool


def candidates_of(
    point: ProductPoint | AttentionPoint, *, by_blocks: bool, declared_only: bool
) -> list[Candidate]:
    """Return what may be tried for a point, the declared first; not all of it can serve.

    `by_blocks` says whether the target copies blocks by itself.
    """
    if isinstance(point, ProductPoint):
        declared, others = _declared_products(point, by_blocks), _other_products(point, by_blocks)
    else:
        declared, others = _declared_heads(point, by_blocks), _other_heads(point, by_blocks)
    found = dict.fromkeys(declared, True)
    if not declared_only:
        # What differs from a declared one in its copies alone is no other.
        known = {(choice.kernel, choice.tiles) for choice in found}
        found |= {c: False for c in others if (c.kernel, c.tiles) not in known}
    return [Candidate(choice, is_declared) for choice, is_declared in found.items()]


def kernel_name(choice: Choice) -> str:
    """Return the name of the kernel that a choice launches."""
    by_blocks = BLOCK_KERNELS.get(choice.kernel)
    return choice.kernel if by_blocks is None else by_blocks.name


def _declared_products(point: ProductPoint, by_blocks: bool) -> Iterator[Choice]:
    for form in BLOCK_FORMS.get((point.dtype, point.precision), ()) if by_blocks else ():
        for parts in _PARTS if form.kernel == "parts" else (1,):
            for copied in _COPIES:
                yield _choice(form.kernel, form.tiles, parts, copied)
    kernel = "matmul_plain" if point.dtype in PLAIN else "matmul"
    for tiles in MATMUL_FAST[point.dtype, point.precision]:
        yield _choice(kernel, tiles)


def _other_products(point: ProductPoint, by_blocks: bool) -> Iterator[Choice]:
    size = point.dtype.size_bytes
    batch, m, n, _ = point.sizes
    forms = BLOCK_FORMS.get((point.dtype, point.precision), ()) if by_blocks else ()
    kinds = {form.kernel for form in forms}
    if kinds:
        # Tiles of twice the rows that there are would multiply nothing half of the time.
        kind = "plain" if "plain" in kinds else "blocks"
        for rows, columns in product((64, 128), (64, 128, 256)):
            tiles = DotConfiguration(rows, columns, 128 // size, 8 if rows == 128 else 4, 1)
            for stages in _stages(tiles, size, (3, 4, 6)) if rows < 2 * m or rows == 64 else ():
                yield _choice(kind, replace(tiles, num_stages=stages))
        for rows, columns, depth in product((16, 64), (64, 128), (128, 256, 512)):
            tiles = DotConfiguration(rows, columns, depth // size, 4, 1)
            programs = -(-m // rows) * -(-n // columns) * batch
            # Sums are cut where programs are too few to fill the device.
            is_of_use = "parts" in kinds and programs < _FEW_PROGRAMS and rows < 2 * m + 16
            for parts in _PARTS if is_of_use else ():
                for stages in _stages(tiles, size, (6,)):
                    yield _choice("parts", replace(tiles, num_stages=stages), parts)
        return
    kernel = "matmul_plain" if point.dtype in PLAIN else "matmul"
    for rows, columns, depth in product((16, 32, 64, 128), (64, 128), (64, 128)):
        tiles = DotConfiguration(rows, columns, depth // size, 8 if rows == 128 else 4, 1)
        for stages in _stages(tiles, size, (3, 4)):
            yield _choice(kernel, replace(tiles, num_stages=stages))


def _declared_heads(point: AttentionPoint, by_blocks: bool) -> Iterator[Choice]:
    is_wide = point.dtype.bits == 32
    if by_blocks and not is_wide:
        table = ATTENTION_BLOCKS_BIASED if point.has_bias else ATTENTION_BLOCKS
        yield from (_choice("attention_blocks", tiles) for tiles in _padded(table, point))
    table = ATTENTION_32 if is_wide else ATTENTION_16
    yield from (_choice("attention", tiles) for tiles in _padded(table, point))


def _other_heads(point: AttentionPoint, by_blocks: bool) -> Iterator[Choice]:
    table = ATTENTION_32 if point.dtype.bits == 32 else ATTENTION_16
    for padded in (tiles.block_k for tiles in _padded(table, point)):
        if by_blocks and point.dtype.bits == 16:
            for m, n, stages in product((64, 128, 256), (64, 128), (2, 3)):
                yield Choice("attention_blocks", (m, n, padded, m // 16, stages))
        for m, n, warps in product((32, 64, 128), (32, 64), (4, 8)):
            yield Choice("attention", (m, n, padded, warps, 2))


def _padded(
    table: dict[int, DotConfiguration], point: AttentionPoint
) -> Iterator[DotConfiguration]:
    """Yield the configuration for heads of the point, if the table reaches them."""
    found = [tiles for padded, tiles in table.items() if point.sizes[3] <= padded]
    yield from found[:1]


def _choice(
    kernel: str, tiles: DotConfiguration, parts: int = 1, copied: tuple[int, ...] = ()
) -> Choice:
    extents = (tiles.block_m, tiles.block_n, tiles.block_k)
    return Choice(kernel, (*extents, tiles.num_warps, tiles.num_stages), parts, copied)


def _stages(tiles: DotConfiguration, size: int, wanted: tuple[int, ...]) -> list[int]:
    """Return how many stages of both factors fit into shared memory beside the result."""
    stage = (tiles.block_m + tiles.block_n) * tiles.block_k * size
    free = _SHARED_BYTES - tiles.block_m * tiles.block_n * 2
    return sorted({min(stages, free // stage) for stages in wanted if free // stage >= 2})
