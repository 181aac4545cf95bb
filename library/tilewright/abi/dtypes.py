"""Element types: their names, widths and the rule by which two of them promote.

One table for compiler and runtime. Their NumPy equivalents are in `abi/numpy_types.py`.
"""

from __future__ import annotations

from typing import Literal

from tilewright.lazy_dataclass import dataclass

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `name` is its text in IR, signatures and manifests, such as `f32`."""

    name: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory; a bool takes one."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer (bool counts as one)."""
        return self.kind != "float"

    @property
    def is_signed(self) -> bool:
        """Whether arithmetic shifts and comparisons are signed."""
        return self.kind in ("int", "float")

    @property
    def has_arithmetic(self) -> bool:
        """Whether kernels compute in this type; 8-bit floats are stored, cast and multiplied."""
        return not self.is_float or self.bits > 8


int1 = DType("i1", "bool", 1)
int8 = DType("i8", "int", 8)
int16 = DType("i16", "int", 16)
int32 = DType("i32", "int", 32)
int64 = DType("i64", "int", 64)
uint8 = DType("u8", "uint", 8)
uint16 = DType("u16", "uint", 16)
uint32 = DType("u32", "uint", 32)
uint64 = DType("u64", "uint", 64)
float16 = DType("f16", "float", 16)
bfloat16 = DType("bf16", "float", 16)
float32 = DType("f32", "float", 32)
float64 = DType("f64", "float", 64)
# OCP 8-bit floating point (2023): E4M3 has no infinities and one NaN; E5M2 is a short f16.
float8e4nv = DType("f8e4m3", "float", 8)
float8e5 = DType("f8e5m2", "float", 8)

ALL: tuple[DType, ...] = (
    int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, float8e4nv, float8e5,
)  # fmt: skip
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in ALL}

SATURATED: dict[DType, float] = {float8e4nv: 448.0, float8e5: 57344.0}
"""The dtypes to which conversions saturate, as PTX's `.satfinite` does, with the largest value:
what lies beyond it, infinities included, becomes the largest value of its sign."""


def promote(left: DType, right: DType) -> DType:
    """Return the type in which an operation on `left` and `right` is computed.

    Floats win over integers; the wider float wins, f16 with bf16 gives f32. Of integers the wider
    wins, and of two equally wide ones the unsigned, as in C and Triton. Types without arithmetic
    promote to nothing that could be computed in; they are cast first.
    """
    if left == right:
        return left
    if left.is_float != right.is_float:
        return left if left.is_float else right
    if left.bits != right.bits:
        return left if left.bits > right.bits else right
    if left.is_float:
        return float32
    return left if left.kind == "uint" else right
