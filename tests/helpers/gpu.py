"""Which tests need a GPU, and why one was skipped. Asks the driver itself: no torch, no context.

`@requires_gpu()` or `@requires_gpu((9, 0))` is `@pytest.mark.gpu`; the skip happens in the
conftest, when the test is set up, so that collecting opens no driver. The reason names what is
missing.
"""

from __future__ import annotations

import ctypes
from functools import cache

import pytest

_LIBRARY = "libcuda.so.1"
_CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_CAPABILITY_MINOR = 76


def requires_gpu(cc: tuple[int, int] | None = None) -> pytest.MarkDecorator:
    """Mark a test that needs a GPU; with `cc`, one of exactly that compute capability."""
    return pytest.mark.gpu(cc=cc)


def missing_gpu(cc: tuple[int, int] | None) -> str | None:
    """Return what this machine lacks for a GPU test, or None."""
    found = _probe()
    if isinstance(found, str):
        return found
    if cc is not None and cc != found:
        return f"needs compute capability {cc[0]}.{cc[1]}, device 0 is {found[0]}.{found[1]}"
    return None


@cache
def _probe() -> tuple[int, int] | str:
    """Return the compute capability of device 0, or why there is none."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return f"no CUDA driver: {_LIBRARY} cannot be loaded"
    code = driver.cuInit(0)
    if code != 0:
        return f"no CUDA device: cuInit gave error {code}"
    count, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value == 0:
        return "no CUDA device: the driver sees none"
    driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, 0)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, 0)
    return major.value, minor.value
