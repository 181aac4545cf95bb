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
    from tilewright.runtime.memory import DeviceArray, empty, from_numpy
    from tilewright.tensor.elementwise import add, exp, gelu, mul
    from tilewright.tensor.rows import layer_norm, max, softmax, sum

__version__ = "0.1.0"

__all__ = [
    "DeviceArray",
    "add",
    "empty",
    "errors",
    "exp",
    "from_numpy",
    "gelu",
    "language",
    "layer_norm",
    "max",
    "mul",
    "settings",
    "softmax",
    "sum",
]

_HOMES = {
    "DeviceArray": "tilewright.runtime.memory",
    "add": "tilewright.tensor.elementwise",
    "empty": "tilewright.runtime.memory",
    "exp": "tilewright.tensor.elementwise",
    "from_numpy": "tilewright.runtime.memory",
    "gelu": "tilewright.tensor.elementwise",
    "layer_norm": "tilewright.tensor.rows",
    "max": "tilewright.tensor.rows",
    "mul": "tilewright.tensor.elementwise",
    "softmax": "tilewright.tensor.rows",
    "sum": "tilewright.tensor.rows",
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
    return sorted({*globals(), *__all__})
