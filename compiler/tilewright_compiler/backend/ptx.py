"""MLIR text to PTX text through LLVM's NVPTX back end, in a worker process.

One text serves every target: it is written for the lowest `.target` and `.version` that have what
the kernels use, assembled to each cubin, and kept as the floor for GPUs that no cubin fits.
"""

from __future__ import annotations

import re

from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.messages import Request
from tilewright_compiler.backend.worker import DEFAULT_TIMEOUT_S, POOL, WorkerPool
from tilewright_compiler.capabilities import BASELINE, PtxFlavor
from tilewright_compiler.ir.stages import MlirText, Ptx
from tilewright_compiler.options import DEFAULT, CompileOptions
from tilewright_compiler.toolchain import find_toolchain

_VERSION = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
_TARGET = re.compile(r"^\.target (sm_\w+)", re.MULTILINE)
_ENTRY = re.compile(r"^\.visible \.entry ([\w$]+)\(", re.MULTILINE)


def lower_to_ptx(
    mlir: MlirText,
    *,
    flavor: PtxFlavor = BASELINE,
    options: CompileOptions = DEFAULT,
    pool: WorkerPool = POOL,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Ptx:
    """Return the PTX of an emitted kernel.

    Raises InternalCompilerError, with the kernel's position, when MLIR or LLVM refuses or dies,
    and when the PTX is not of the flavor asked for; ToolchainError when the tools are not
    installed.
    """
    request = Request(
        text=mlir.text,
        chip=str(flavor.target),
        features=flavor.features,
        libdevice=str(find_toolchain().libdevice),
        level=options.llvm_level,
    )
    try:
        text = pool.translate(request, timeout_s=timeout_s)
    except InternalCompilerError as error:
        where = f"\n  kernel: {mlir.location.render()}" if mlir.location else ""
        msg = f"kernel {mlir.entry} did not become PTX: {error}{where}"
        raise InternalCompilerError(msg) from error
    ptx = parse_ptx(text)
    if (ptx.entry, ptx.target, ptx.version) != (mlir.entry, flavor.target, flavor.version):
        msg = (
            f"LLVM gave entry {ptx.entry} for {ptx.target}, PTX {ptx.version}; asked for "
            f"{mlir.entry}, {flavor.target}, {flavor.version}: does this LLVM know "
            f"{flavor.features}?"
        )
        raise InternalCompilerError(msg)
    return Ptx(ptx.text, ptx.entry, ptx.target, ptx.version, mlir.location)


def parse_ptx(text: str) -> Ptx:
    """Read entry, target and version from PTX text.

    Raises InternalCompilerError unless there is one of each.
    """
    versions, targets, entries = (p.findall(text) for p in (_VERSION, _TARGET, _ENTRY))
    if not len(versions) == len(targets) == len(entries) == 1:
        msg = (
            f"PTX has {len(entries)} entries, {len(targets)} targets, {len(versions)} versions; "
            "one of each is expected"
        )
        raise InternalCompilerError(msg)
    ((major, minor),) = versions
    return Ptx(text, entries[0], Target.parse(targets[0]), (int(major), int(minor)))
