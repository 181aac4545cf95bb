"""Array types with DLPack's C exchange API, made in Python: a table of callbacks in a capsule."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.runtime.memory import DeviceArray

_NAME = b"dlpack_exchange_api"
CUDA, CPU = 2, 1
FLOAT, INTEGER, COMPLEX = 2, 0, 5


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_Read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))
_CurrentStream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export_managed", ctypes.c_void_p),
        ("import_managed", ctypes.c_void_p),
        ("read", _Read),
        ("current_stream", _CurrentStream),
    )


@dataclass(slots=True)
class Exporter:
    """An object over one of our arrays; its type gets a table by `offer`."""

    array: DeviceArray
    device_type: int = CUDA
    code: int = FLOAT
    bits: int = 32
    byte_offset: int = 0
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    reads: list[int] = field(default_factory=list)
    extents: list[object] = field(default_factory=list)  # what the last read pointed to


_kept: list[object] = []  # a table and what it points to live as long as the process


def offer(
    kind: type[Exporter],
    *,
    stream: int | Callable[[], int] = 0,
    version: int = 1,
    previous: object = None,
    attribute: str = "__dlpack_c_exchange_api__",
) -> object:
    """Give a type of exporters the API, and return the capsule."""

    def read(value: Any, tensor: Any) -> int:
        value.reads.append(1)
        if value.bits == 0:
            return -1
        out = tensor.contents
        out.data = value.array.address - value.byte_offset
        out.device_type, out.device = value.device_type, value.array.device
        out.code, out.bits, out.lanes = value.code, value.bits, 1
        out.byte_offset = value.byte_offset
        shape, strides = value.shape or value.array.shape, value.strides or value.array.strides
        out.ndim = len(shape)
        value.extents = [(ctypes.c_int64 * len(axes))(*axes) for axes in (shape, strides)]
        out.shape, out.strides = map(ctypes.addressof, value.extents)
        return 0

    def current_stream(_type: int, _device: int, out: Any) -> int:
        handle = stream if isinstance(stream, int) else stream()
        if handle < 0:
            return -1
        out[0] = handle
        return 0

    older = None if previous is None else _pointer(previous, _NAME)
    table = _Table(version, 3, older, None, None, None, _Read(read), _CurrentStream(current_stream))
    capsule = _capsule(ctypes.addressof(table), _NAME, None)
    _kept.append((table, capsule))
    setattr(kind, attribute, capsule)
    return capsule


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
