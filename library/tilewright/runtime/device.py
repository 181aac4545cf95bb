"""What a device is, asked once: the facts that resolution and launches depend on."""

from __future__ import annotations

from functools import cache

from tilewright.abi.target import ComputeCapability
from tilewright.errors import NoDriverError
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.launcher import native

_MULTIPROCESSOR_COUNT = 16
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97

_KIB = 1024
# CUDA programming guide, "Technical specifications per compute capability": shared memory of one
# thread block.
_SHARED_BYTES = {
    ComputeCapability(7, 5): 64 * _KIB,
    ComputeCapability(8, 0): 163 * _KIB,
    ComputeCapability(8, 7): 163 * _KIB,
    ComputeCapability(9, 0): 227 * _KIB,
    ComputeCapability(10, 0): 227 * _KIB,
    ComputeCapability(10, 3): 227 * _KIB,
    ComputeCapability(11, 0): 227 * _KIB,
}
# What 8.6, 8.9 and 12.x have, and the least of all that our PTX floor runs on.
_SMALLEST_SHARED_BYTES = 99 * _KIB


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as resolution sees it; `shared_bytes` is the most that one thread block may have."""

    capability: ComputeCapability
    driver_version: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device of this machine."""

    index: int
    facts: DeviceFacts
    multiprocessors: int
    memory_bytes: int

    @property
    def kind(self) -> str:
        """Capability and multiprocessors, as in `90-132`: devices alike in these are alike."""
        capability = self.facts.capability
        return f"{capability.major}{capability.minor}-{self.multiprocessors}"


def count() -> int:
    """Return the number of devices; raises NoDriverError without a driver or device."""
    return native.device_count()


def device_count() -> int:
    """Return the number of devices, 0 without a driver: then kernels are interpreted."""
    try:
        return count()
    except NoDriverError:
        return 0


def driver_version() -> int:
    """Return the CUDA version of the driver, 12080 for 12.8; raises NoDriverError without one."""
    return native.driver_version()


@cache
def device(index: int) -> Device:
    """Return what device `index` is; raises ArgumentError when it does not exist."""
    capability = ComputeCapability(
        native.device_attribute(index, _COMPUTE_CAPABILITY_MAJOR),
        native.device_attribute(index, _COMPUTE_CAPABILITY_MINOR),
    )
    return Device(
        index=index,
        facts=DeviceFacts(
            capability=capability,
            driver_version=native.driver_version(),
            shared_bytes=native.device_attribute(index, _MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        ),
        multiprocessors=native.device_attribute(index, _MULTIPROCESSOR_COUNT),
        memory_bytes=native.device_total_memory(index),
    )


def imagined(capability: ComputeCapability, *, driver_version: int) -> DeviceFacts:
    """Return the facts of a device that is not here, for `explain --gpu`."""
    shared_bytes = _SHARED_BYTES.get(capability, _SMALLEST_SHARED_BYTES)
    return DeviceFacts(capability, driver_version, shared_bytes)


def format_version(version: int) -> str:
    """Return 12080 as `12.8`."""
    return f"{version // 1000}.{version % 1000 // 10}"
