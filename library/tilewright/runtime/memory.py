"""Device arrays: memory of ours, or borrowed from another library, with shape, strides and dtype.

A `DeviceArray` is the launcher's `Buffer`, so a launch reads its address, and an operation its
geometry, without a Python call. It is no tensor: it can be made, filled, viewed, exchanged
(`__cuda_array_interface__`, DLPack) and copied to NumPy, and computes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import prod
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, cast

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy as dtype_from_numpy
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import INT31_MAX
from tilewright.errors import ArgumentError
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.geometry import Geometry, row_major
from tilewright.runtime.launcher import CODES, DTYPES, TYPESTRS, native, torch_dtype_code

if TYPE_CHECKING:
    import numpy as np

    from tilewright.runtime.stream import Stream

Index = int | slice

_MOST_BYTES = 2**63 - 1
_DLPACK_CUDA = 2
_DLPACK_CUDA_MANAGED = 13


class DeviceArray(native.Buffer):
    """An array on a device. `strides` count elements.

    Made by `empty`, `from_numpy` and `as_device_array`; `array[...]` with ints and slices gives
    views.
    """

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return DTYPES[self.code]

    @property
    def device(self) -> int:
        """Ordinal of the device."""
        return self.device_index

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def __repr__(self) -> str:
        state = ", freed" if self.is_freed else ""
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device}{state})"

    def __len__(self) -> int:
        if not self.shape:
            msg = "an array without axes has no length"
            raise TypeError(msg)
        return self.shape[0]

    def __getitem__(self, index: Index | tuple[Index, ...]) -> DeviceArray:
        """Return a view by ints and slices with positive steps, as in NumPy."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self.shape):
            msg = f"{len(indices)} indices for an array of {len(self.shape)} axes"
            raise IndexError(msg)
        offset = 0
        shape: list[int] = []
        strides: list[int] = []
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            picked = indices[axis] if axis < len(indices) else slice(None)
            if isinstance(picked, slice):
                start, stop, step = picked.indices(extent)
                if step < 1:
                    msg = (
                        f"slice step {step} of axis {axis}: device arrays take positive steps only"
                    )
                    raise ArgumentError(msg)
                count = len(range(start, stop, step))
                offset += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
                continue
            if not -extent <= picked < extent:
                msg = f"index {picked} is outside axis {axis} of {extent} elements"
                raise IndexError(msg)
            offset += picked % extent * stride
        return self.view(tuple(shape), tuple(strides), offset=offset)

    def view(
        self, shape: Sequence[int], strides: Sequence[int] | None = None, *, offset: int = 0
    ) -> DeviceArray:
        """Return a view of this memory; `strides` (default row-major) and `offset` in elements.

        Raises ArgumentError when an element would lie outside the memory that this array reaches.
        """
        shape = tuple(shape)
        strides = row_major(shape) if strides is None else tuple(strides)
        if len(shape) != len(strides) or any(extent < 0 for extent in shape):
            msg = f"a view needs a stride per axis and no negative extent, got {shape}, {strides}"
            raise ArgumentError(msg)
        size = self.dtype.size_bytes
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
        first = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        is_empty = 0 in shape
        if first < 0 or (not is_empty and (last + 1) * size > self.size_bytes):
            msg = (
                f"a view of shape {shape}, strides {strides} and offset {offset} reaches elements "
                f"{first} to {last}, the array holds {self.size_bytes // size}"
            )
            raise ArgumentError(msg)
        if any(s < 0 for s in strides) and not is_empty:
            msg = f"negative strides {strides}: device arrays take none"
            raise ArgumentError(msg)
        start = 0 if is_empty else offset * size
        length = 0 if is_empty else (last + 1) * size - start
        return _with_geometry(self.alias(DeviceArray, start, length, self.code), shape, strides)

    def reinterpreted(self, dtype: DType) -> DeviceArray:
        """Return an array of no elements of another dtype that begins where this one does."""
        return _with_geometry(self.alias(DeviceArray, 0, 0, CODES[dtype]), (0,), (1,))

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a copy on the host, complete: it waits for the work on this array's stream."""
        import numpy as np

        host = np.empty(self.size_bytes, np.uint8)
        native.copy_to_host(self, host)
        byte_strides = tuple(stride * self.dtype.size_bytes for stride in self.strides)
        return np.ndarray(self.shape, to_numpy(self.dtype), host, strides=byte_strides).copy()

    def copy_from(self, array: np.ndarray[Any, np.dtype[Any]]) -> None:
        """Overwrite this array, which must be row-major, with an array of its shape and dtype."""
        import numpy as np

        if self.strides != row_major(self.shape):
            msg = f"copy_from() writes row-major arrays only; the strides are {self.strides}"
            raise ArgumentError(msg)
        if array.shape != self.shape or dtype_from_numpy(array.dtype) != self.dtype:
            msg = (
                f"cannot copy {array.dtype} of shape {array.shape} to an array of {self.dtype} and "
                f"shape {self.shape}"
            )
            raise ArgumentError(msg)
        native.copy_from_host(self, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        size = self.dtype.size_bytes
        stream = self.stream_handle
        return {
            "shape": self.shape,
            "typestr": TYPESTRS[self.dtype],
            "data": (self.address, self.is_read_only),
            "version": 3,
            "strides": None
            if self.strides == row_major(self.shape)
            else tuple(stride * size for stride in self.strides),
            "stream": stream or 1,  # 1 is how the protocol writes the legacy stream
        }

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule; the consumer's stream waits for the work on this array's."""
        if max_version is not None and max_version[0] < 0:
            msg = f"DLPack version {max_version} does not exist"
            raise ArgumentError(msg)
        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            msg = "this array is exported without a copy and on its own device only"
            raise BufferError(msg)
        # The protocol writes the legacy stream as None or 1, and "do not synchronise" as -1.
        consumer = 0 if stream is None or stream == 1 else stream
        if stream == 0:
            msg = "DLPack forbids stream 0; give 1 for the legacy stream"
            raise ArgumentError(msg)
        if consumer not in (-1, self.stream_handle):
            event = native.Event(self.device, False)
            event.record(self.stream_handle)
            event.hold(consumer)
        return native.dlpack_export(self, self.shape, self.strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (kDLCUDA, ordinal)."""
        return _DLPACK_CUDA, self.device


def empty(
    shape: int | Sequence[int], dtype: DType, *, device: int = 0, stream: Stream | None = None
) -> DeviceArray:
    """Return a new, uninitialised row-major array, ordered on `stream` (default: legacy)."""
    extents = extents_of(shape)
    if not isinstance(dtype, DType):
        msg = f"dtype is {dtype!r}; it is one of tilewright.language, as tl.float32"
        raise ArgumentError(msg)
    check_is_addressable(extents, dtype)
    check_is_device_number(device)
    array = DeviceArray(prod(extents) * dtype.size_bytes, CODES[dtype], device, stream)
    return _with_geometry(array, extents, row_major(extents))


def extents_of(shape: object) -> tuple[int, ...]:
    """Return a shape given as an int or a sequence of them; raises ArgumentError for the rest."""
    given: Any = shape if isinstance(shape, Iterable) else (shape,)
    try:
        extents = tuple(map(index, given))
    except TypeError as error:
        msg = f"shape is {shape!r}; it is an int or a sequence of them"
        raise ArgumentError(msg) from error
    if any(extent < 0 for extent in extents):
        msg = f"an array cannot have the shape {extents}; no extent is negative"
        raise ArgumentError(msg)
    return extents


def check_is_device_number(device: object) -> None:
    """Raise ArgumentError for what no device has as its number; the driver says which exist."""
    is_number = isinstance(device, Integral) and not isinstance(device, bool)
    if not is_number or abs(cast("int", device)) > INT31_MAX:
        msg = f"device is {device!r}; the number of a device is needed"
        raise ArgumentError(msg)


def check_is_addressable(shape: tuple[int, ...], dtype: DType) -> None:
    """Raise ArgumentError for a new array that 63 bits cannot address."""
    # NumPy does not make larger ones either, even where another extent is 0.
    if prod(extent or 1 for extent in shape) * dtype.size_bytes > _MOST_BYTES:
        msg = f"an array of shape {shape} has more bytes than can be addressed"
        raise ArgumentError(msg)


def allocate(geometry: Geometry, arrays: list[Any]) -> DeviceArray:
    """Return a new, uninitialised array of a geometry that is row-major and aligned.

    It belongs to the stream of a launch that has `arrays`, some of which may be None, and names no
    stream.
    """
    return native.allocate(DeviceArray, geometry, arrays)


def zeros(
    shape: int | Sequence[int], dtype: DType, *, device: int = 0, stream: Stream | None = None
) -> DeviceArray:
    """Return a new row-major array of zeros."""
    array = empty(shape, dtype, device=device, stream=stream)
    native.fill(array, 0)
    return array


def from_numpy(
    array: np.ndarray[Any, np.dtype[Any]], *, device: int = 0, stream: Stream | None = None
) -> DeviceArray:
    """Return a row-major copy of a NumPy array on a device."""
    import numpy as np

    if not isinstance(array, np.ndarray | np.generic):
        msg = f"array is of {type(array).__name__}; a NumPy array is needed"
        raise ArgumentError(msg)
    result = empty(array.shape, dtype_from_numpy(array.dtype), device=device, stream=stream)
    result.copy_from(array)
    return result


def as_device_array(value: object, *, name: str = "array") -> DeviceArray:
    """Return a view of a device array of ours or of another library, without a copy.

    Takes torch's tensors and what offers DLPack or `__cuda_array_interface__`; the view keeps its
    owner alive. Where a library tells on which stream it works, as torch does, so does the view:
    whatever is launched on it goes to the stream that is current then. Raises ArgumentError naming
    `name` for anything else.
    """
    if isinstance(value, DeviceArray):
        return value
    array = native.borrow_array(DeviceArray, value)
    if array is not None:
        return array
    if _is_torch(value):
        return _from_torch(value, name)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_cuda_array_interface(value, interface, name)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, name)
    msg = (
        f"{name} is of {type(value).__name__}; a device array is needed: Tilewright's, or one with "
        "__cuda_array_interface__ or DLPack"
    )
    raise ArgumentError(msg)


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What the pool of a device holds, and how often it was asked since the process began.

    `live_bytes` are in arrays, `peak_bytes` the most that ever were, `cached_bytes` in the free
    list; `allocations` were served by the list (`reuses`) or the driver.
    """

    live_bytes: int
    peak_bytes: int
    cached_bytes: int
    allocations: int
    reuses: int
    driver_allocations: int
    driver_frees: int


def memory_statistics(device: int = 0) -> MemoryStatistics:
    """Return what Tilewright's arrays and free list hold on a device."""
    return MemoryStatistics(**native.pool_statistics(device))


def trim_memory(device: int = 0, *, keep_bytes: int = 0) -> int:
    """Give the free list back to the driver but for `keep_bytes`; return how many bytes that were.

    Other libraries of the process can use them when the work on their streams is done.
    """
    if keep_bytes < 0:
        msg = f"keep_bytes is {keep_bytes}; it is 0 or more"
        raise ArgumentError(msg)
    return native.pool_trim(device, keep_bytes)


def _is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _with_geometry(
    array: DeviceArray, shape: tuple[int, ...], strides: tuple[int, ...]
) -> DeviceArray:
    array.lay_out(shape, strides)
    return array


def _extent_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> int:
    if 0 in shape:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * dtype.size_bytes


def _borrow(
    owner: object,
    *,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    device: int,
    stream: int | None = None,
    is_read_only: bool = False,
    is_torch: bool = False,
    name: str,
) -> DeviceArray:
    if any(stride < 0 for stride in strides):
        msg = f"{name} has negative strides {strides}; device arrays take none"
        raise ArgumentError(msg)
    size = _extent_bytes(shape, strides, dtype)
    array = native.borrow(
        DeviceArray, address, size, CODES[dtype], device, stream, owner, is_read_only, is_torch
    )
    return _with_geometry(array, shape, strides)


def _from_cuda_array_interface(owner: object, interface: dict[str, Any], name: str) -> DeviceArray:
    if not isinstance(interface, dict) or not {"shape", "typestr", "data"} <= interface.keys():
        msg = (
            f"{name}.__cuda_array_interface__ is {interface!r}; a dict with shape, typestr and "
            "data is needed"
        )
        raise ArgumentError(msg)
    dtype = next((d for d, typestr in TYPESTRS.items() if typestr == interface["typestr"]), None)
    if dtype is None:
        msg = f"{name} has elements of type {interface['typestr']!r}, which kernels do not take"
        raise ArgumentError(msg)
    if interface.get("mask") is not None:
        msg = f"{name} is a masked array, which kernels do not take"
        raise ArgumentError(msg)
    shape = tuple(interface["shape"])
    byte_strides = interface.get("strides")
    strides = row_major(shape) if byte_strides is None else tuple(byte_strides)
    if byte_strides is not None:
        if any(stride % dtype.size_bytes for stride in strides):
            msg = f"{name} has byte strides {strides}, no multiples of {dtype.size_bytes} bytes"
            raise ArgumentError(msg)
        strides = tuple(stride // dtype.size_bytes for stride in strides)
    address, is_read_only = interface["data"]
    return _borrow(
        owner,
        address=address,
        shape=shape,
        strides=strides,
        dtype=dtype,
        device=native.device_of(address) if address else 0,
        stream=interface.get("stream"),
        is_read_only=bool(is_read_only),
        name=name,
    )


def _from_torch(tensor: Any, name: str) -> DeviceArray:
    """Borrow a tensor by its attributes: for a torch without DLPack's C exchange API."""
    torch = sys.modules["torch"]
    if not tensor.is_cuda:
        msg = (
            f"{name} is a torch tensor on {tensor.device}, not on a CUDA device; move it with "
            ".cuda(), or pass tensor.numpy()"
        )
    elif tensor.layout is not torch.strided:
        msg = f"{name} is a torch tensor of layout {tensor.layout}; give {name}.to_dense()"
    elif tensor.requires_grad:
        msg = (
            f"{name} is a torch tensor that requires a gradient, of which this operation would not "
            f"know; give {name}.detach()"
        )
    elif tensor.is_conj() or tensor.is_neg():
        msg = (
            f"{name} is a torch tensor whose memory holds conjugates or negatives of its values; "
            f"give {name}.resolve_conj().resolve_neg()"
        )
    elif (code := torch_dtype_code(tensor.dtype)) < 0:
        msg = f"{name} is a torch tensor of {tensor.dtype}, which kernels do not take"
    else:
        return _borrow(
            tensor,
            address=tensor.data_ptr(),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            dtype=DTYPES[code],
            device=tensor.get_device(),
            is_torch=True,
            name=name,
        )
    raise ArgumentError(msg)


def _from_dlpack(owner: object, name: str) -> DeviceArray:
    pair = owner.__dlpack_device__()  # type: ignore[attr-defined]  # checked by hasattr
    kind, device = map(int, pair)
    if kind not in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
        msg = f"{name} is on a DLPack device of type {kind}; CUDA (type {_DLPACK_CUDA}) is needed"
        raise ArgumentError(msg)
    # Stream 1 is the legacy stream, to which our own work goes: the exporter orders its work before
    # it.
    capsule = owner.__dlpack__(stream=1)  # type: ignore[attr-defined]  # checked by hasattr
    address, shape, strides, code, _ = native.dlpack_read(capsule)
    return _borrow(
        capsule,
        address=address,
        shape=shape,
        strides=row_major(shape) if strides is None else strides,
        dtype=DTYPES[code],
        device=device,
        name=name,
    )
