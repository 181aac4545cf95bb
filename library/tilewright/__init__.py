"""Tilewright: GPU kernels compiled ahead of time and shipped in the wheel.

    import tilewright as tw
    import tilewright.language as tl

Names here are imported at first use (PEP 562), so `import tilewright` loads no driver, no compiler,
no NumPy and no torch, reads no environment and writes nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright import errors, language, settings
    from tilewright.runtime.device import device_count
    from tilewright.runtime.graph import Graph, capture
    from tilewright.runtime.launch import resolved
    from tilewright.runtime.memory import (
        DeviceArray,
        MemoryStatistics,
        as_device_array,
        empty,
        from_numpy,
        memory_statistics,
        trim_memory,
        zeros,
    )
    from tilewright.runtime.preload import preload
    from tilewright.runtime.store import add_bundle
    from tilewright.runtime.stream import Event, Stream, synchronize
    from tilewright.tensor.addition import index_add, scatter_add
    from tilewright.tensor.attention import attention
    from tilewright.tensor.attention_backward import attention_backward
    from tilewright.tensor.convolution import convolution
    from tilewright.tensor.counting import bincount, histogram
    from tilewright.tensor.cross_entropy import cross_entropy, cross_entropy_backward
    from tilewright.tensor.elementwise import add, exp, gelu, gelu_backward, mul
    from tilewright.tensor.indexing import gather, take
    from tilewright.tensor.linear_cross_entropy import (
        linear_cross_entropy,
        linear_cross_entropy_backward,
    )
    from tilewright.tensor.matmul import matmul
    from tilewright.tensor.movement import contiguous, copy, permute, transpose
    from tilewright.tensor.random import dropout, rand, randint, randn
    from tilewright.tensor.reduction import argmax, argmin, max, mean, min, std, sum, var
    from tilewright.tensor.row_gradients import (
        l2_norm_backward,
        layer_norm_backward,
        rms_norm_backward,
        softmax_backward,
    )
    from tilewright.tensor.rows import l2_norm, layer_norm, rms_norm, softmax
    from tilewright.tensor.scaled_matmul import scaled_matmul
    from tilewright.tensor.scan import cumprod, cumsum
    from tilewright.tensor.sorting import argsort, sort, topk

__version__ = "0.1.0"

__all__ = [
    "DeviceArray",
    "Event",
    "Graph",
    "MemoryStatistics",
    "Stream",
    "add",
    "add_bundle",
    "argmax",
    "argmin",
    "argsort",
    "as_device_array",
    "attention",
    "attention_backward",
    "bincount",
    "capture",
    "contiguous",
    "convolution",
    "copy",
    "cross_entropy",
    "cross_entropy_backward",
    "cumprod",
    "cumsum",
    "device_count",
    "dropout",
    "empty",
    "errors",
    "exp",
    "from_numpy",
    "gather",
    "gelu",
    "gelu_backward",
    "histogram",
    "index_add",
    "l2_norm",
    "l2_norm_backward",
    "language",
    "layer_norm",
    "layer_norm_backward",
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
    "matmul",
    "max",
    "mean",
    "memory_statistics",
    "min",
    "mul",
    "permute",
    "preload",
    "rand",
    "randint",
    "randn",
    "resolved",
    "rms_norm",
    "rms_norm_backward",
    "scaled_matmul",
    "scatter_add",
    "settings",
    "softmax",
    "softmax_backward",
    "sort",
    "std",
    "sum",
    "synchronize",
    "take",
    "topk",
    "transpose",
    "trim_memory",
    "var",
    "zeros",
]

_HOMES = {
    "DeviceArray": "tilewright.runtime.memory",
    "Event": "tilewright.runtime.stream",
    "Graph": "tilewright.runtime.graph",
    "MemoryStatistics": "tilewright.runtime.memory",
    "Stream": "tilewright.runtime.stream",
    "add": "tilewright.tensor.elementwise",
    "add_bundle": "tilewright.runtime.store",
    "argmax": "tilewright.tensor.reduction",
    "argmin": "tilewright.tensor.reduction",
    "argsort": "tilewright.tensor.sorting",
    "as_device_array": "tilewright.runtime.memory",
    "attention": "tilewright.tensor.attention",
    "attention_backward": "tilewright.tensor.attention_backward",
    "bincount": "tilewright.tensor.counting",
    "capture": "tilewright.runtime.graph",
    "contiguous": "tilewright.tensor.movement",
    "convolution": "tilewright.tensor.convolution",
    "copy": "tilewright.tensor.movement",
    "cross_entropy": "tilewright.tensor.cross_entropy",
    "cross_entropy_backward": "tilewright.tensor.cross_entropy",
    "cumprod": "tilewright.tensor.scan",
    "cumsum": "tilewright.tensor.scan",
    "device_count": "tilewright.runtime.device",
    "dropout": "tilewright.tensor.random",
    "empty": "tilewright.runtime.memory",
    "exp": "tilewright.tensor.elementwise",
    "from_numpy": "tilewright.runtime.memory",
    "gather": "tilewright.tensor.indexing",
    "gelu": "tilewright.tensor.elementwise",
    "gelu_backward": "tilewright.tensor.elementwise",
    "histogram": "tilewright.tensor.counting",
    "index_add": "tilewright.tensor.addition",
    "l2_norm": "tilewright.tensor.rows",
    "l2_norm_backward": "tilewright.tensor.row_gradients",
    "layer_norm": "tilewright.tensor.rows",
    "layer_norm_backward": "tilewright.tensor.row_gradients",
    "linear_cross_entropy": "tilewright.tensor.linear_cross_entropy",
    "linear_cross_entropy_backward": "tilewright.tensor.linear_cross_entropy",
    "matmul": "tilewright.tensor.matmul",
    "max": "tilewright.tensor.reduction",
    "mean": "tilewright.tensor.reduction",
    "memory_statistics": "tilewright.runtime.memory",
    "min": "tilewright.tensor.reduction",
    "mul": "tilewright.tensor.elementwise",
    "permute": "tilewright.tensor.movement",
    "preload": "tilewright.runtime.preload",
    "rand": "tilewright.tensor.random",
    "randint": "tilewright.tensor.random",
    "randn": "tilewright.tensor.random",
    "resolved": "tilewright.runtime.launch",
    "rms_norm": "tilewright.tensor.rows",
    "rms_norm_backward": "tilewright.tensor.row_gradients",
    "scaled_matmul": "tilewright.tensor.scaled_matmul",
    "scatter_add": "tilewright.tensor.addition",
    "softmax": "tilewright.tensor.rows",
    "softmax_backward": "tilewright.tensor.row_gradients",
    "sort": "tilewright.tensor.sorting",
    "std": "tilewright.tensor.reduction",
    "sum": "tilewright.tensor.reduction",
    "synchronize": "tilewright.runtime.stream",
    "take": "tilewright.tensor.indexing",
    "topk": "tilewright.tensor.sorting",
    "transpose": "tilewright.tensor.movement",
    "trim_memory": "tilewright.runtime.memory",
    "var": "tilewright.tensor.reduction",
    "zeros": "tilewright.runtime.memory",
}

_SUBMODULES = frozenset({"errors", "language", "settings"})


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"tilewright.{name}")
    if name not in _HOMES:
        msg = f"module 'tilewright' has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(msg)
    # The language as a whole comes first. Else one thread could import a part of it, which waits
    # for the package, and another the package, which waits for the part: Python ends such a wait by
    # giving one of them half a module.
    import_module("tilewright.language")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # What the module imports for itself is nobody's to complete.
    dunders = {name for name in globals() if name.startswith("__") and name.endswith("__")}
    return sorted({*dunders, *__all__} - {"__getattr__", "__dir__"})
