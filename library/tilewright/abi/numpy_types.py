"""Element types as NumPy dtypes and back, the one table for interpreter, runtime and reference.

It stands in `abi` because the compiler may not import the runtime and both need it. NumPy and
ml_dtypes (for bfloat16 and 8-bit floats) are imported inside the functions, so importing this
module stays as cheap as the rest of `abi`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.abi.dtypes import ALL, DType
from tilewright.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np

_NAMES = {
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}
_ML_DTYPES_NAMES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


@cache
def to_numpy(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype of `dtype`, in native byte order."""
    import numpy as np

    if dtype.name in _ML_DTYPES_NAMES:
        import ml_dtypes

        result: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES_NAMES[dtype.name]))
        return result
    return np.dtype(_NAMES[dtype.name])


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the element type of a NumPy dtype.

    Raises ArgumentError for a type that kernels do not have (complex, object, swapped bytes).
    """
    found = _from_numpy().get(dtype)
    if found is None:
        known = ", ".join(str(name) for name in _from_numpy())
        msg = f"NumPy dtype {dtype} has no element type; known are {known}"
        raise ArgumentError(msg)
    return found


@cache
def _from_numpy() -> dict[np.dtype[Any], DType]:
    return {to_numpy(dtype): dtype for dtype in ALL}
