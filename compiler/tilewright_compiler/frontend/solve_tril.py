"""`tl.solve_tril` in the words of the language itself: forward substitution, or blocks merged.

The inverse of a unit lower triangular matrix has, in row i, minus the sum of the rows before it,
weighted by row i of the matrix. That is a chain of as many steps as there are rows. Where products
may be of tensor cores the matrix is cut: all its blocks of 16 rows on the diagonal are inverted at
once, and two neighbouring inverses x and y, with c below x and left of y, become one whose lower
left is -y c x. In f32's own multiplications such products cost what the chain costs. Powers of the
strict triangle, which need no chain, would lose digits where its elements are large.
"""

from __future__ import annotations

import tilewright.language as tl

# Rows found one after the other; what is off these blocks are products of matrices.
CHAIN = 16


@tl.kernel
def substitute(a):
    """Invert each `[N, N]` of `a` `[B, N, N]`, of which only the lower triangle counts."""
    rows = tl.arange(0, a.shape[1])
    is_lower = rows[:, None] > rows[None, :]
    lower = tl.where(is_lower[None, :, :], a, 0.0)
    is_diagonal = (rows[:, None] == rows[None, :])[None, :, :]
    inverse = tl.where(is_diagonal, tl.full(a.shape, 1.0, a.dtype), 0.0)
    for i in range(1, a.shape[1]):
        is_row = (rows == i)[None, :, None]
        weights = tl.sum(tl.where(is_row, lower, 0.0), axis=1)  # [B, N], along columns
        row = tl.sum(weights[:, :, None] * inverse, axis=1)  # [B, N]
        inverse = tl.where(is_row, inverse - row[:, None, :], inverse)
    return inverse


@tl.kernel
def invert_in_blocks(
    a, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr
):
    """Invert `a` `[N, N]` of `BLOCKS` times `BLOCK` rows; there are 2 to the `LEVELS` blocks."""
    block = tl.arange(0, BLOCKS)
    is_diagonal = (block[:, None] == block[None, :])[:, None, :, None]
    cut = tl.reshape(a, (BLOCKS, BLOCK, BLOCKS, BLOCK))
    inverses = substitute(tl.sum(tl.where(is_diagonal, cut, 0.0), axis=2))
    spread = tl.where(is_diagonal, inverses[:, :, None, :], 0.0)
    inverse = tl.reshape(spread, a.shape)
    lanes = tl.arange(0, a.shape[0])
    for level in tl.static_range(LEVELS):
        place = lanes // (BLOCK << level)
        is_below = (place[:, None] == place[None, :] + 1) & (place % 2 == 1)[:, None]
        off = tl.dot(tl.where(is_below, a, 0.0), inverse, input_precision=PRECISION)
        inverse = inverse - tl.dot(inverse, off, input_precision=PRECISION)
    return inverse
