"""The floor of every launch: a loop in C around the driver's call, without Python.

Compiled by the machine's C compiler when it is first asked for, as Triton does with its launchers.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

_SOURCE = Path(__file__).with_suffix(".c")


def looper(
    function: int, threads: int, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> Callable[[int], None]:
    """Return what launches a loaded function so many times, with three pointers and a size."""
    n = x.numel()
    values = (ctypes.c_uint64 * 4)(x.data_ptr(), y.data_ptr(), out.data_ptr(), n)
    size = ctypes.sizeof(ctypes.c_uint64)
    places = (ctypes.c_void_p * 4)(*(ctypes.addressof(values) + size * i for i in range(4)))
    stream = torch.cuda.current_stream().cuda_stream
    launch = _build().launch_repeatedly

    # The driver reads the arrays at every call, so they live as long as it.
    def loop(count: int, _kept: object = values) -> None:
        result = launch(
            ctypes.c_void_p(function),
            -(-n // 1024),
            threads,
            ctypes.c_void_p(stream),
            places,
            count,
        )
        if result != 0:
            msg = f"the driver refused a launch with error {result}"
            raise RuntimeError(msg)

    return loop


def _build() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "driver_loop.so")
        command = ["cc", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))
