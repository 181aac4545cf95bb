"""The C extension, started: what it must ask Python about types and streams, and the fork notice.

Every other module reaches the extension through here. Importing it opens no driver: libcuda is
loaded by the first call that needs it. Which kind of argument a type is gets decided here once per
type; torch is looked for in `sys.modules` and never imported, since a torch tensor cannot exist
without torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from tilewright.abi import dtypes
from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentError, InstallationError
from tilewright.language.types import constexpr

try:
    from tilewright.runtime import _launcher as native
except (ImportError, AttributeError) as error:  # the second where it asks for what is no more
    _msg = (
        "the launcher extension (tilewright.runtime._launcher) is missing, damaged or not built "
        f"for this Python: install the wheel again, or build it with `pip install -e .` ({error})"
    )
    raise InstallationError(_msg) from error

INTERFACE = "61f6be82ee8cc2ac"
"""The digest of what the extension and this package know of each other: functions and numbers.

The extension has it built in (library/native/launcher.h), so that one of other sources is refused
and does not misread a number.
"""

_built = getattr(native, "INTERFACE", "none")
if _built != INTERFACE:
    _msg = (
        "the launcher extension (tilewright.runtime._launcher) was built from other sources than "
        f"this package: its interface is {_built}, {INTERFACE} is needed; install the wheel again, "
        "or build it again with `pip install -e .`"
    )
    raise InstallationError(_msg)

__all__ = ["CODES", "DTYPES", "classify_type", "native", "torch_dtype_code"]

DTYPES: tuple[DType, ...] = dtypes.ALL
"""Element types by the code that the extension knows them by."""

CODES: dict[DType, int] = {dtype: code for code, dtype in enumerate(DTYPES)}

# Kinds of argument; the numbers are shared with library/native/arguments.c.
OTHER, HOST_ARRAY, TORCH, CUDA_ARRAY, DLPACK, SCALAR, CONSTEXPR = 0, 1, 2, 3, 4, 5, 7

_ARRAY_CODES: dict[str, int] = {
    typestr: CODES[dtype]
    for typestr, dtype in {
        "|b1": dtypes.int1,
        "|i1": dtypes.int8,
        "<i2": dtypes.int16,
        "<i4": dtypes.int32,
        "<i8": dtypes.int64,
        "|u1": dtypes.uint8,
        "<u2": dtypes.uint16,
        "<u4": dtypes.uint32,
        "<u8": dtypes.uint64,
        "<f2": dtypes.float16,
        "<f4": dtypes.float32,
        "<f8": dtypes.float64,
        # NumPy's names of what ml_dtypes adds; bfloat16 and float8_e4m3fn are opaque bytes. Our own
        # arrays say them, so they are read back.
        "<V2": dtypes.bfloat16,
        "<V1": dtypes.float8e4nv,
        "<f1": dtypes.float8e5,
    }.items()
}

TYPESTRS: dict[DType, str] = {DTYPES[code]: typestr for typestr, code in _ARRAY_CODES.items()}

_TORCH_NAMES = {
    "bool": dtypes.int1,
    "int8": dtypes.int8,
    "int16": dtypes.int16,
    "int32": dtypes.int32,
    "int64": dtypes.int64,
    "uint8": dtypes.uint8,
    "uint16": dtypes.uint16,
    "uint32": dtypes.uint32,
    "uint64": dtypes.uint64,
    "float16": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float32": dtypes.float32,
    "float64": dtypes.float64,
    "float8_e4m3fn": dtypes.float8e4nv,
    "float8_e5m2": dtypes.float8e5,
}


def classify_type(kind: type) -> tuple[int, int]:
    """Return the kind of argument that objects of a type are, and a detail.

    For scalars it is the dtype's code; for torch's tensors 1 where the table that they offer is
    torch's own, which knows the current stream. Older versions get one from an add-on, which may
    have been built without CUDA and then takes every stream for the legacy one.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return HOST_ARRAY, 0
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return TORCH, int(hasattr(getattr(torch, "_C", None), "_dlpack_exchange_api"))
    if issubclass(kind, constexpr):
        return CONSTEXPR, 0
    if hasattr(kind, "__cuda_array_interface__"):
        return CUDA_ARRAY, 0
    scalar = _scalar_code(kind, numpy)
    if scalar is not None:
        return SCALAR, scalar
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return DLPACK, 0
    if issubclass(kind, int):  # an IntEnum, say
        return SCALAR, CODES[dtypes.int64]
    return OTHER, 0


def _scalar_code(kind: type, numpy: Any) -> int | None:
    if numpy is None:
        return None
    module = kind.__module__.partition(".")[0]
    if not issubclass(kind, numpy.generic) and module != "ml_dtypes":
        return None
    try:
        dtype = from_numpy(numpy.dtype(kind))
    except (ArgumentError, TypeError):
        return None
    # 8-bit floats come in arrays only: nothing computes with a scalar of them.
    return CODES[dtype] if dtype.has_arithmetic else None


def torch_dtype_code(dtype: object) -> int:
    """Return the code of torch's element type, -1 for one that kernels do not take."""
    found = _TORCH_NAMES.get(str(dtype).removeprefix("torch."))
    return -1 if found is None else CODES[found]


def _torch_stream(device: int) -> int:
    """Return the handle of torch's current stream on a device."""
    torch = sys.modules["torch"]
    # The raw getter is what torch's own generated code calls; the public way builds a Stream
    # object.
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(device).cuda_stream) if raw is None else raw(device)


native.set_classifier(classify_type, _ARRAY_CODES, torch_dtype_code, _torch_stream)
os.register_at_fork(after_in_child=native.after_fork)
