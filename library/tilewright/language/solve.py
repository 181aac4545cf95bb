"""Triangular systems of equations."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["solve_tril"]


@operation
def solve_tril(
    a: Tile, b: Tile | None = None, input_precision: str | constexpr | None = None
) -> Tile:
    """Return the inverse of the unit lower triangular matrix in `a`, or the `x` with `l @ x = b`.

    `l` has ones on its diagonal and below it the elements of `a` `[..., N, N]`, whose diagonal and
    upper triangle are not looked at, so may hold anything. Leading axes are a batch of matrices.
    Without `b` the result is the inverse, in which the upper triangle is exactly 0; a NaN or an
    infinity makes its row and all after it NaN. `b` is `[N, M]`, for an `a` of two axes, and the
    result is the inverse times `b`.

    f16, bf16 and f32 are computed in f32 and give f32, f64 gives f64. Rows are found from the first
    to the last, each from those before it. With the `input_precision` "tf32" or "tf32x3" of
    `tl.dot`, f32 matrices of two axes do so 16 rows at a time, and what is off these blocks is
    multiplied on tensor cores.
    """
    outside_kernel(solve_tril)
