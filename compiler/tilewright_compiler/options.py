"""The compiler switches that change a cubin's bytes, and so enter the keys of caches and builds.

There are few on purpose: what a kernel needs is decided by its signature, not by flags.
"""

from __future__ import annotations

from tilewright.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Optimisation levels of LLVM and ptxas, 0 to 3. Below 3 is for reading the output."""

    llvm_level: int = 3
    ptxas_level: int = 3

    def __str__(self) -> str:
        """Return the text that enters keys."""
        return f"llvm=O{self.llvm_level} ptxas=O{self.ptxas_level}"


DEFAULT = CompileOptions()
