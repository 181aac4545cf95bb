"""A launch of our own cubin through NVIDIA's cuda.core: careful host code that specializes nothing.

Its grid and its types are fixed beforehand; each call packs the arguments it is given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch


def launcher(
    cubin: bytes, entry: str, threads: int, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> Callable[[], object]:
    """Return a call that launches `entry` with three pointers and a 64-bit size."""
    # First of all: without a driver this fails, where later calls would hang.
    Device().set_current()
    stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
    kernel = ObjectCode.from_cubin(cubin).get_kernel(entry)
    config = LaunchConfig(grid=-(-x.numel() // 1024), block=threads)
    pointers = [tensor.data_ptr() for tensor in (x, y, out)]
    count = np.int64(x.numel())
    return lambda: launch(stream, config, kernel, *pointers, count)
