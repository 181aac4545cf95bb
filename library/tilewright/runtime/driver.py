"""The door to cuda.bindings: what of the driver the launcher extension does not do itself.

Two versions of cuda-python (12.9 and 13.x) meet drivers from CUDA 12.0 on, and cuda-python 13 names
symbols that a CUDA 12 driver lacks; so a function is called by its name through `SYMBOLS`, which
knows since when it exists and what stands in before. The extension probes libcuda first: on a
machine without a driver, cuda.bindings must not be reached at all, because its own loader fails
late, or hangs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tilewright.errors import DriverError
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.device import format_version
from tilewright.runtime.launcher import native


@dataclass(frozen=True, slots=True)
class Symbol:
    """A driver function: the first CUDA version with it, and what to call on older drivers."""

    name: str
    since: int = 11000
    substitute: str | None = None


SYMBOLS: dict[str, Symbol] = {
    symbol.name: symbol
    for symbol in (
        Symbol("cuDeviceGetName"),
        Symbol("cuMemGetInfo"),
        Symbol("cuCtxPushCurrent"),
        Symbol("cuCtxPopCurrent"),
        Symbol("cuDevicePrimaryCtxRetain"),
        Symbol("cuDeviceGet"),
    )
}


def call(name: str, *arguments: Any) -> Any:
    """Call a driver function and return its result: nothing, one value or a tuple of them.

    Raises DriverError with the CUresult's code and name, NoDriverError without a driver.
    """
    version = native.driver_version()
    symbol = SYMBOLS[name]
    if version < symbol.since:
        if symbol.substitute is None:
            msg = (
                f"{name} needs a driver for CUDA {format_version(symbol.since)}, this one is for "
                f"{format_version(version)}"
            )
            raise DriverError(msg, call=name)
        return call(symbol.substitute, *arguments)
    code, *results = getattr(_bindings(), name)(*arguments)
    if int(code) != 0:
        msg = f"{name} failed with {int(code)} ({code.name})"
        raise DriverError(msg, code=int(code), call=name)
    return results[0] if len(results) == 1 else tuple(results) or None


def bindings_version() -> str:
    """Return the version of cuda.bindings."""
    return str(importlib.import_module("cuda.bindings").__version__)


@contextmanager
def current(index: int) -> Iterator[None]:
    """Make a device's primary context current for a block; the thread finds its own again."""
    call("cuCtxPushCurrent", _primary_context(index))
    try:
        yield
    finally:
        call("cuCtxPopCurrent")


@cache
def _primary_context(index: int) -> Any:
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", index))


def device_name(index: int) -> str:
    """Return the product name of a device."""
    name: bytes = call("cuDeviceGetName", 256, call("cuDeviceGet", index))
    return name.split(b"\0", 1)[0].decode()


def memory_info(index: int) -> tuple[int, int]:
    """Return free and total bytes of a device."""
    with current(index):
        free, total = call("cuMemGetInfo")
    return int(free), int(total)


@cache
def _bindings() -> Any:
    # Imported by name at run time: it takes 70 ms, and neither a launch nor an import of ours needs
    # it.
    from cuda.bindings import driver

    return driver
