"""The launches of an attention: how heads are walked, which kernel and tile serve them, in which
order they are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

from tilewright.abi.dtypes import float32
from tilewright.abi.signature import DIVISOR
from tilewright.abi.tuned import Choice
from tilewright.kernels.attention import attention, attention_blocks
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import GRID_WIDTH, fits_fast
from tilewright.tensor.attention_window import Window
from tilewright.tensor.configurations import (
    DotConfiguration,
    attention_blocks_configuration,
    attention_configuration,
)
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.head_order import band_of
from tilewright.tensor.launches import Piece, PlannedLaunch, Pointer, batch_pieces
from tilewright.tensor.products import copies_blocks, processors
from tilewright.tensor.strides import Shape, Strides
from tilewright.tensor.tuned import tuned_choice, why_no_binary

FAMILY = "attention"

# The operands by number, as the kernels take them.
Q, K, V, BIAS, OUT, LSE = range(6)


@dataclass(frozen=True, slots=True)
class Heads:
    """The operand of that number, an array of `array`, over the batch, heads and what is inside."""

    operand: int
    array: Geometry
    strides: Strides


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention; `sizes` are the queries, keys and elements of a head.

    `fits_blocks` says whether the scale is one that the form by blocks takes.
    """

    batch: Shape
    sizes: tuple[int, int, int]
    heads: int
    shared_heads: int
    q: Heads
    k: Heads
    v: Heads
    bias: Heads | None
    out: Heads
    lse: Heads | None
    window: Window
    fits_blocks: bool
    precision: str


def launches(problem: Attention) -> Iterator[PlannedLaunch]:
    """Plan a launch for each piece of the batch; each takes the scale."""
    rank = len(problem.batch)
    nothing = (0,) * (rank + 1)
    # What is absent is never touched: a bias stands where q does, sums stand where the result does.
    bias = problem.bias or Heads(Q, problem.q.array, (*nothing, 0, 1))
    lse = problem.lse or Heads(LSE, problem.out.array, (*nothing, 1))
    walks = (problem.q, problem.k, problem.v, bias, problem.out, lse)
    outer = tuple(walk.strides[:rank] for walk in walks)
    for piece in batch_pieces(problem.batch, outer, rank=1):
        is_aligned = all(
            walk.array.is_aligned and offset * walk.array.dtype.size_bytes % DIVISOR == 0
            for walk, offset in zip(walks, piece.offsets, strict=True)
        )
        tuned = _tuned(problem) if is_aligned else None
        own = None
        if is_aligned and (tuned is None or tuned.kernel == attention_blocks.name):
            own = _by_blocks(problem, walks, piece, tuned)
        yield own or _by_elements(problem, walks, piece, tuned, is_aligned=is_aligned)


def _tuned(problem: Attention) -> Choice | None:
    queries, keys, dim = problem.sizes
    q = problem.q.array
    padded = attention_configuration(dim, q.dtype, fast=True).block_k
    words = [str(q.dtype), problem.precision, str(padded)]
    words += problem.window.words + ["bias"] * (problem.bias is not None)
    sizes = (prod(problem.batch) * problem.heads, queries, keys)
    why_not = partial(_why_not, problem, padded=padded)
    return tuned_choice(FAMILY, " ".join(words), sizes, device=q.device, why_not=why_not)


def _why_not(problem: Attention, choice: Choice, *, padded: int) -> str:
    """Return why a tuned choice cannot serve an attention; empty if it can."""
    tiles = DotConfiguration(*choice.tiles)
    q, has_bias = problem.q.array, problem.bias is not None
    if tiles.block_k != padded:
        return f"heads are padded to {padded} elements"
    if choice.kernel == attention.name:
        if tiles == attention_configuration(padded, q.dtype, fast=True):
            return ""
        options = {"PRECISION": problem.precision, **head_tile_options(tiles)}
        return why_no_binary(attention, {"q": q.dtype}, options)
    if choice.kernel != attention_blocks.name:
        return f"there is no kernel {choice.kernel!r}"
    fault = _why_no_blocks(problem)
    if fault or tiles == attention_blocks_configuration(padded, has_bias=has_bias):
        return fault
    options = {"HAS_BIAS": has_bias, **head_tile_options(tiles)}
    return why_no_binary(attention_blocks, {"q": q.dtype}, options)


def _why_no_blocks(problem: Attention) -> str:
    """Return why the form that copies blocks does not serve an attention; empty if it does."""
    q = problem.q.array
    if not copies_blocks(q.device) or q.dtype == float32:
        return "attention does not go by blocks here, or of this dtype"
    is_usual = problem.fits_blocks and min(problem.sizes) > 0
    return "" if is_usual else "the scale is too small, or there is nothing to attend to"


def _by_elements(
    problem: Attention,
    walks: tuple[Heads, ...],
    piece: Piece,
    tuned: Choice | None,
    *,
    is_aligned: bool,
) -> PlannedLaunch:
    queries, keys, dim = problem.sizes
    rank = len(problem.batch)
    strides = [
        stride
        for walk, outer in zip(walks, piece.space.strides, strict=True)
        for stride in (*outer, *walk.strides[rank:])
    ]
    group = problem.heads // max(problem.shared_heads, 1)
    # Rows of the sums lie next to each other.
    integers = (queries, keys, dim, group, *strides[:-1])
    fast = is_aligned and fits_fast(attention, len(walks), integers)
    if fast and tuned is not None and tuned.kernel == attention.name:
        tiles = DotConfiguration(*tuned.tiles)
    else:
        tiles = attention_configuration(dim, problem.q.array.dtype, fast=fast)
    flags = (*problem.window.sides, int(problem.bias is not None), int(problem.lse is not None))
    grid = (-(-queries // tiles.block_m), problem.heads, piece.space.sizes[0])
    options = {"PRECISION": problem.precision, **head_tile_options(tiles)}
    pointers = _pointers(problem, walks, piece)
    return PlannedLaunch(attention, grid, pointers, integers, options, flags=flags)


def _by_blocks(
    problem: Attention, walks: tuple[Heads, ...], piece: Piece, tuned: Choice | None
) -> PlannedLaunch | None:
    """Plan the form that copies blocks; None where it does not serve."""
    queries, keys, dim = problem.sizes
    q = problem.q.array
    tiles = attention_blocks_configuration(dim, has_bias=problem.bias is not None)
    if tuned is not None:
        tiles = DotConfiguration(*tuned.tiles)
    if tiles is None or _why_no_blocks(problem):
        return None
    rank = len(problem.batch)
    taken = (Q, K, V, BIAS, OUT)
    inner = [walks[operand].strides[-1] for operand in taken]
    strides = [
        stride
        for operand in taken
        for stride in (*piece.space.strides[operand], *walks[operand].strides[rank:-1])
    ]
    (batches,) = piece.space.sizes
    band = band_of(
        (queries, keys),
        heads=problem.heads * batches,
        head_bytes=2 * keys * dim * q.dtype.size_bytes,
        tile=(tiles.block_m, tiles.block_n),
        processors=processors(q.device),
        causal=problem.window.sees_ever_more,
    )
    group = problem.heads // problem.shared_heads
    sizes = (queries, keys, dim, group, batches, problem.heads, problem.shared_heads, band)
    sums = (*piece.space.strides[LSE], walks[LSE].strides[rank])
    integers = (*sizes, *strides, *sums)
    is_unit = all(stride == 1 for stride in inner)
    if not is_unit or not fits_fast(attention_blocks, len(taken) + 1, integers):
        return None
    programs = -(-queries // tiles.block_m) * problem.heads * batches
    if programs > GRID_WIDTH:
        return None
    pointers = _pointers(problem, walks, piece)
    flags = (*problem.window.sides, int(problem.lse is not None))
    return PlannedLaunch(
        attention_blocks,
        (programs, 1, 1),
        tuple(pointers[operand] for operand in (*taken, LSE)),
        integers,
        {"HAS_BIAS": problem.bias is not None, **head_tile_options(tiles)},
        flags=flags,
    )


def _pointers(problem: Attention, walks: tuple[Heads, ...], piece: Piece) -> tuple[Pointer, ...]:
    queries, keys, dim = problem.sizes
    rank = len(problem.batch)
    inner: dict[int, Shape] = {
        Q: (problem.heads, queries, dim),
        K: (problem.shared_heads, keys, dim),
        V: (problem.shared_heads, keys, dim),
        BIAS: (problem.heads, queries, keys),
        OUT: (problem.heads, queries, dim),
        LSE: (problem.heads, queries),
    }
    return tuple(
        Pointer(
            walk.operand,
            piece.offsets[number],
            (*piece.space.sizes, *inner[number]),
            (*piece.space.strides[number], *walk.strides[rank:]),
        )
        for number, walk in enumerate(walks)
    )


def head_tile_options(tiles: DotConfiguration) -> dict[str, Any]:
    """Return the constexprs and options of a launch that tiles queries, keys and heads."""
    return {
        "BLOCK_M": tiles.block_m,
        "BLOCK_N": tiles.block_n,
        "BLOCK_D": tiles.block_k,
        "num_warps": tiles.num_warps,
        "num_stages": tiles.num_stages,
    }
