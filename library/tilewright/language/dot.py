"""The product of two tiles, which the compiler maps to matrix instructions."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["dot"]


@operation
def dot(
    a: Tile,
    b: Tile,
    acc: Tile | None = None,
    input_precision: str | constexpr | None = None,
    out_dtype: DType | constexpr | None = None,
) -> Tile:
    """Return `acc + a @ b` of `a` `[M, K]` and `b` `[K, N]`: `[M, N]`; without `acc` it is `a @ b`.

    `a` and `b` have one dtype, or two of 8 bits of one kind (int8 with uint8, float8e4nv with
    float8e5); nothing promotes, so cast first what differs. The products are summed in the
    accumulator's dtype:

    | operands | accumulator |
    |---|---|
    | float8e4nv, float8e5, float16, bfloat16, float32 | float32 |
    | float64 | float64 |
    | int8, uint8 | int32, wrapping |

    `acc` has exactly that dtype and the shape `[M, N]`. Products of floats below 32 bits are exact;
    sums round in the accumulator's dtype, in an order that the compiler chooses and keeps.

    `input_precision` says what becomes of float32 operands; other operands it leaves as they are:

    - "ieee", also without an `input_precision`: they are multiplied and added in float32.
    - "tf32": each is rounded to tf32 first (11 significant bits, ties away from zero, or to even
      where a GPU rounds blocks of a tensor descriptor as it copies them).
    - "tf32x3": each is split into `high`, itself rounded to tf32, and `low`, what is then missing,
      rounded to tf32; the result is the sum of high @ high, high @ low and low @ high. The error is
      about that of float32; an operand that is infinite, or becomes so in tf32, gives NaN.

    The result has the accumulator's dtype, or is cast to `out_dtype`, rounded once.
    """
    outside_kernel(dot)
