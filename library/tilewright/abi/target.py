"""Targets of binaries and compute capabilities of devices, and which runs on which.

This is the only parser of `sm_*`. A capability is a pair, never a float. The rules are NVIDIA's: a
plain cubin runs on the same major at an equal or higher minor, an `a` cubin on that one capability,
an `f` cubin inside its family (PTX ISA, "Target architecture"; CUDA Compatibility guide).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tilewright.errors import UnsupportedTargetError

Suffix = Literal["", "a", "f"]

_PATTERN = re.compile(r"^sm_(\d+)(\d)([af]?)$")

# Members of each family-specific target, by hand: 10.7 belongs to 100f by the vendor's table, but
# an entry here is a promise, and nothing of ours ran there yet.
_FAMILIES: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {
    (10, 0): ((10, 0), (10, 3)),
    (10, 3): ((10, 3),),
    (11, 0): ((11, 0),),
    (12, 0): ((12, 0), (12, 1)),
    (12, 1): ((12, 1),),
}


@dataclass(frozen=True, slots=True, order=True)
class ComputeCapability:
    """What a device is: `(9, 0)` for an H200."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @staticmethod
    def parse(text: str) -> ComputeCapability:
        """Parse `9.0`; raises UnsupportedTargetError on anything else."""
        major, dot, minor = text.partition(".")
        if not (dot and major.isdecimal() and minor.isdecimal()):
            msg = f"compute capability {text!r} is not of the form MAJOR.MINOR, such as 9.0"
            raise UnsupportedTargetError(msg)
        return ComputeCapability(int(major), int(minor))


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What a cubin was assembled for: `sm_90a` is `Target(9, 0, "a")`."""

    major: int
    minor: int
    suffix: Suffix = ""

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.suffix}"

    @staticmethod
    @lru_cache(maxsize=64)  # each launch that loads a kernel names the same few
    def parse(text: str) -> Target:
        """Parse `sm_90a`; raises UnsupportedTargetError on anything else."""
        match = _PATTERN.match(text)
        if match is None:
            msg = f"target {text!r} is not of the form sm_NN, sm_NNa or sm_NNf"
            raise UnsupportedTargetError(msg)
        major, minor, suffix = match.groups()
        # The pattern allows nothing but a Suffix.
        return Target(int(major), int(minor), suffix)  # type: ignore[arg-type]

    def may_run_on(self, device: ComputeCapability) -> bool:
        """Whether a cubin for this target is allowed on `device` by the vendor's rules."""
        if self.suffix == "a":
            return (self.major, self.minor) == (device.major, device.minor)
        if self.suffix == "f":
            return (device.major, device.minor) in _FAMILIES.get((self.major, self.minor), ())
        return self.major == device.major and self.minor <= device.minor


def ptx_may_run_on(target: Target, device: ComputeCapability) -> bool:
    """Whether the driver may assemble PTX of `target` for `device`; a suffix binds it to one."""
    return target.suffix == "" and (target.major, target.minor) <= (device.major, device.minor)
