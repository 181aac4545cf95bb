"""What each target has, as one table, and the PTX text that its cubin comes from.

The figures are the vendor's (CUDA programming guide, "Compute capabilities"; PTX ISA release
notes).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.abi.target import Target
from tilewright.errors import UnsupportedTargetError
from tilewright.lazy_dataclass import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class PtxFlavor:
    """One PTX text of a kernel: its `.target`, `.version` and LLVM's name for that version."""

    target: Target
    version: tuple[int, int]

    @property
    def features(self) -> str:
        """LLVM's feature string. An unknown one silently gives another `.version`."""
        return f"+ptx{self.version[0]}{self.version[1]}"


@dataclass(frozen=True, slots=True)
class TargetCapabilities:
    """What the hardware of a target has.

    `shared_bytes` is the most dynamic shared memory of one CTA on the smallest device that runs
    the cubin: an sm_80 cubin also runs on 8.6 and 8.9, which have 99 KiB.
    """

    target: Target
    shared_bytes: int


# The multistage text: also the floor for GPUs that nobody has seen yet, so its version is the
# lowest that has every instruction emitted (max.NaN, bf16 fma and cvt.rn.bf16 came with 7.0 and
# sm_80).
BASELINE = PtxFlavor(Target(8, 0), (7, 0))

# The text of Hopper's own schedule: wgmma and setmaxnreg are of sm_90a alone. 8.4 is the lowest
# version that this LLVM writes for all of it.
HOPPER = PtxFlavor(Target(9, 0, "a"), (8, 4))

# Targets for which the compiler has a schedule of their own, each with its text.
OWN_TEXTS: Mapping[Target, PtxFlavor] = MappingProxyType({HOPPER.target: HOPPER})

TARGETS: Mapping[Target, TargetCapabilities] = MappingProxyType(
    {
        row.target: row
        for row in (
            TargetCapabilities(Target(8, 0), 99 * KIB),
            TargetCapabilities(Target(9, 0, "a"), 227 * KIB),
            TargetCapabilities(Target(10, 0, "f"), 227 * KIB),
            TargetCapabilities(Target(12, 0, "f"), 99 * KIB),
        )
    }
)

# The baseline text must launch wherever it is assembled to.
BASELINE_SHARED_BYTES = min(row.shared_bytes for row in TARGETS.values())


def capabilities_of(target: Target) -> TargetCapabilities:
    """Return the row of `target`; raises UnsupportedTargetError listing the known ones."""
    row = TARGETS.get(target)
    if row is None:
        known = ", ".join(str(known) for known in TARGETS)
        msg = f"target {target} is not one this compiler makes cubins for; it knows {known}"
        raise UnsupportedTargetError(msg)
    return row
