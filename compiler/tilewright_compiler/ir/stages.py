"""What the arrows after the scheduled IR hand on: MLIR text, PTX text, a cubin.

They live beside the IR because `emit` makes the first and `backend` the others, and siblings may
not import each other.
"""

from __future__ import annotations

from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.manifest import OWN_SCHEDULE
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.errors import SourceLocation
from tilewright.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MlirText:
    """A kernel as MLIR text (llvm, nvvm and scf dialects) in one `gpu.module` without a target.

    `shared_bytes` is dynamic shared memory, given at launch; `writes` names the pointer
    parameters that the kernel stores to. `location` is the kernel's definition, for messages of
    the stages below.
    """

    text: str
    entry: str
    num_threads: int
    shared_bytes: int
    writes: tuple[str, ...]
    signature: KernelSignature
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Ptx:
    """PTX text with the name of its only entry, and the `.target` and `.version` it declares."""

    text: str
    entry: str
    target: Target
    version: tuple[int, int]
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Cubin:
    """An assembled kernel with what ptxas says of it. `spill_bytes` is stores plus loads.

    `abi` is how it is launched if its schedule is its target's own, else None: as the kernel is.
    With `waits` it waits by itself for the kernels before it.
    """

    data: bytes
    target: Target
    entry: str
    registers: int
    spill_bytes: int = 0
    stack_bytes: int = 0
    static_shared_bytes: int = 0
    warnings: tuple[str, ...] = ()
    log: str = ""
    abi: LaunchAbi | None = None
    waits: bool = False

    @property
    def key(self) -> str:
        """What tells it among the cubins of a kernel: the target, and whose schedule it has."""
        return f"{self.target}{'' if self.abi is None else OWN_SCHEDULE}"
