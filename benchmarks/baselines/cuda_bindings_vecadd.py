"""A launch through NVIDIA's cuda.bindings with arguments packed once: a call of the driver alone.

It looks at no argument, so it is no way to launch a kernel with new ones; it shows what the driver
and one Python call cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from cuda.bindings import driver


def launcher(
    function: int, threads: int, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> Callable[[], object]:
    """Return a call that launches a loaded function with three pointers and a 64-bit size."""
    n = x.numel()
    values = np.array([x.data_ptr(), y.data_ptr(), out.data_ptr(), n], np.uint64)
    places = np.array([values.ctypes.data + 8 * i for i in range(4)], np.uint64)
    packed = places.ctypes.data
    kernel = driver.CUfunction(function)
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    blocks = -(-n // 1024)
    launch = driver.cuLaunchKernel

    # The driver reads the arrays at every call, so they live as long as it.
    def call(_kept: object = (values, places)) -> object:
        return launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, packed, 0)

    return call
