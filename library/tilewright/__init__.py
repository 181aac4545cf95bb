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
    from tilewright.tensor.attention import attention
    from tilewright.tensor.convolution import convolution
    from tilewright.tensor.elementwise import add, exp, gelu, gelu_backward, mul
    from tilewright.tensor.matmul import matmul
    from tilewright.tensor.row_gradients import (
        l2_norm_backward,
        layer_norm_backward,
        rms_norm_backward,
        softmax_backward,
    )
    from tilewright.tensor.rows import l2_norm, layer_norm, max, rms_norm, softmax, sum

__version__ = "0.1.0"

__all__ = [
    "DeviceArray",
    "Event",
    "Graph",
    "MemoryStatistics",
    "Stream",
    "add",
    "add_bundle",
    "as_device_array",
    "attention",
    "capture",
    "convolution",
    "device_count",
    "empty",
    "errors",
    "exp",
    "from_numpy",
    "gelu",
    "gelu_backward",
    "l2_norm",
    "l2_norm_backward",
    "language",
    "layer_norm",
    "layer_norm_backward",
    "matmul",
    "max",
    "memory_statistics",
    "mul",
    "preload",
    "resolved",
    "rms_norm",
    "rms_norm_backward",
    "settings",
    "softmax",
    "softmax_backward",
    "sum",
    "synchronize",
    "trim_memory",
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
    "as_device_array": "tilewright.runtime.memory",
    "attention": "tilewright.tensor.attention",
    "capture": "tilewright.runtime.graph",
    "convolution": "tilewright.tensor.convolution",
    "device_count": "tilewright.runtime.device",
    "empty": "tilewright.runtime.memory",
    "exp": "tilewright.tensor.elementwise",
    "from_numpy": "tilewright.runtime.memory",
    "gelu": "tilewright.tensor.elementwise",
    "gelu_backward": "tilewright.tensor.elementwise",
    "l2_norm": "tilewright.tensor.rows",
    "l2_norm_backward": "tilewright.tensor.row_gradients",
    "layer_norm": "tilewright.tensor.rows",
    "layer_norm_backward": "tilewright.tensor.row_gradients",
    "matmul": "tilewright.tensor.matmul",
    "max": "tilewright.tensor.rows",
    "memory_statistics": "tilewright.runtime.memory",
    "mul": "tilewright.tensor.elementwise",
    "preload": "tilewright.runtime.preload",
    "resolved": "tilewright.runtime.launch",
    "rms_norm": "tilewright.tensor.rows",
    "rms_norm_backward": "tilewright.tensor.row_gradients",
    "softmax": "tilewright.tensor.rows",
    "softmax_backward": "tilewright.tensor.row_gradients",
    "sum": "tilewright.tensor.rows",
    "synchronize": "tilewright.runtime.stream",
    "trim_memory": "tilewright.runtime.memory",
    "zeros": "tilewright.runtime.memory",
}

_SUBMODULES = frozenset({"errors", "language", "settings"})


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"tilewright.{name}")
    if name not in _HOMES:
        msg = f"module 'tilewright' has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(msg)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # What the module imports for itself is nobody's to complete.
    dunders = {name for name in globals() if name.startswith("__") and name.endswith("__")}
    return sorted({*dunders, *__all__} - {"__getattr__", "__dir__"})
