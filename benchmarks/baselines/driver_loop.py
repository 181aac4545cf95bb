"""The floor of every launch: a loop in C around the driver's call, without Python.

Compiled by the machine's C compiler when it is first asked for, as Triton does with its launchers.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

_SOURCE = Path(__file__).with_suffix(".c")
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_FLOAT32 = 7  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32
_L2_PROMOTE_256B = 3


def looper(
    function: int, threads: int, *, grid: tuple[int, int], parameters: Sequence[bytes]
) -> Callable[[int], None]:
    """Return what launches a loaded function so many times on torch's current stream.

    `parameters` are the kernel's, as bytes.
    """
    held = [_aligned(parameter) for parameter in parameters]
    places = (ctypes.c_void_p * len(held))(*(address for address, _ in held))
    stream = torch.cuda.current_stream().cuda_stream
    launch = _build().launch_repeatedly

    # The driver reads the arrays at every call, so they live as long as it.
    def loop(count: int, _kept: object = held) -> None:
        result = launch(
            ctypes.c_void_p(function), *grid, threads, ctypes.c_void_p(stream), places, count
        )
        if result != 0:
            msg = f"the driver refused a launch with error {result}"
            raise RuntimeError(msg)

    return loop


def word(value: int) -> bytes:
    """Return an address or a 64-bit integer as a kernel's parameter."""
    return struct.pack("<Q", value)


def tensor_map(matrix: torch.Tensor, *, tile: int) -> bytes:
    """Return the tensor map of a row-major float32 matrix in square tiles, as ours encodes it."""
    rows, columns = matrix.shape
    place, held = _aligned(bytes(_MAP_BYTES))
    result = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        _FLOAT32,
        2,
        ctypes.c_void_p(matrix.data_ptr()),
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(columns * matrix.element_size()),
        (ctypes.c_uint32 * 2)(tile, tile),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        0,
        _L2_PROMOTE_256B,
        0,
    )
    if result != 0:
        msg = f"the driver encodes no tensor map of this matrix: error {result}"
        raise RuntimeError(msg)
    start = place - ctypes.addressof(held)
    return bytes(held)[start : start + _MAP_BYTES]


def _aligned(data: bytes) -> tuple[int, ctypes.Array[ctypes.c_char]]:
    """Return the address of a copy that the driver takes for a tensor map, and what holds it."""
    held = ctypes.create_string_buffer(len(data) + _MAP_ALIGNMENT)
    place = -(-ctypes.addressof(held) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
    ctypes.memmove(place, data, len(data))
    return place, held


def _build() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "driver_loop.so")
        command = ["cc", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))
