"""PTX to cubin with the pinned ptxas, and what it says of registers, spills and trouble.

ptxas is byte-deterministic under equal flags only, so none of them depends on a debug switch. The
disassembler, which is optional, stands here too.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from tilewright.abi.target import Target
from tilewright.errors import AssemblyError, InternalCompilerError
from tilewright_compiler.backend.dependent_launch import WAIT
from tilewright_compiler.backend.ptx import parse_ptx
from tilewright_compiler.ir.stages import Cubin, Ptx
from tilewright_compiler.options import DEFAULT, CompileOptions
from tilewright_compiler.toolchain import NVDISASM, find_file, find_toolchain

DEFAULT_TIMEOUT_S = 600.0
_MAX_MESSAGE = 4000

# Left to itself ptxas aims for occupancy, and for sm_120 it would rather spill a few registers than
# give a thread more. The further attempts take that freedom away.
_ATTEMPTS: tuple[tuple[str, ...], ...] = (
    (),
    ("-minnctapersm=1",),
    ("-regUsageLevel=10",),
    ("-minnctapersm=1", "-regUsageLevel=10"),
)

# Room for one program is no wish: specialised kernels move registers between their warps by it.
_ROOM = re.compile(r"^\.minnctapersm (?!1$)\d+$\n", re.MULTILINE)
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_COMPILE_TIME = re.compile(r"^.*Compile time = .*\n", re.MULTILINE)
# Advisories (C75xx: serialised wgmma, ignored setmaxnreg) come as info or as warning lines.
_WARNING = re.compile(r"^.*(?:warning\s*:|\(C75\d\d\)).*$", re.MULTILINE)


def assemble(
    ptx: Ptx | str,
    target: Target,
    *,
    options: CompileOptions = DEFAULT,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Cubin:
    """Assemble PTX for `target`; of several attempts, the first that spills no register.

    What asks for room for several programs at once gives way before registers are spilled.

    Raises AssemblyError when ptxas refuses or crashes, InternalCompilerError when it does not
    finish; ToolchainError without ptxas.
    """
    parsed = parse_ptx(ptx) if isinstance(ptx, str) else ptx
    attempts = [(parsed, flags) for flags in _ATTEMPTS]
    if _ROOM.search(parsed.text):
        roomless = replace(parsed, text=_ROOM.sub("", parsed.text))
        attempts = [attempts[0], *((roomless, flags) for flags in _ATTEMPTS)]
    tried: list[Cubin] = []
    for text, flags in attempts:
        tried.append(_attempt(text, target, flags, options=options, timeout_s=timeout_s))
        if tried[-1].spill_bytes == 0:
            return tried[-1]
    return min(tried, key=lambda cubin: cubin.spill_bytes)


def _attempt(
    ptx: Ptx,
    target: Target,
    flags: tuple[str, ...],
    *,
    options: CompileOptions,
    timeout_s: float,
) -> Cubin:
    where = f"\n  kernel: {ptx.location.render()}" if ptx.location else ""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        # Relative names: the command line may be recorded in the cubin, and must not name this
        # machine. -v always: later versions of ptxas record it too.
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx.text, encoding="utf-8")
        command = [
            str(find_toolchain().ptxas),
            "-v",
            f"-O{options.ptxas_level}",
            f"-arch={target}",
            *flags,
            source.name,
            "-o",
            result.name,
        ]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            msg = f"ptxas did not assemble {ptx.entry} for {target} within {timeout_s:g} s{where}"
            raise InternalCompilerError(msg) from error
        log = _COMPILE_TIME.sub("", done.stdout + done.stderr)
        if done.returncode != 0:
            msg = (
                f"ptxas refused {ptx.entry} for {target} with exit code {done.returncode}: "
                f"{log.strip()[:_MAX_MESSAGE]}{where}"
            )
            raise AssemblyError(msg, ptx.text, log)
        data = result.read_bytes()
    cubin = _cubin(data, log, entry=ptx.entry, target=target)
    return replace(cubin, waits=WAIT in ptx.text)


def disassemble(data: bytes) -> str:
    """Return the SASS of a cubin.

    Raises ToolchainError when the optional disassembler is not installed, InternalCompilerError
    when it refuses the cubin.
    """
    tool = find_file(NVDISASM, "bin/nvdisasm")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(data)
        done = subprocess.run(
            [str(tool), "-c", "-ndf", path.name],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=DEFAULT_TIMEOUT_S,
            check=False,
        )
    if done.returncode != 0:
        msg = f"nvdisasm refused the cubin: {done.stderr.strip()[:_MAX_MESSAGE]}"
        raise InternalCompilerError(msg)
    return done.stdout


def _cubin(data: bytes, log: str, *, entry: str, target: Target) -> Cubin:
    registers, spills, shared = (p.search(log) for p in (_REGISTERS, _SPILLS, _SHARED))
    if registers is None or spills is None:
        msg = f"ptxas -v did not report registers of {entry} for {target}: {log[:_MAX_MESSAGE]}"
        raise InternalCompilerError(msg)
    stack, stores, loads = (int(number) for number in spills.groups())
    return Cubin(
        data=data,
        target=target,
        entry=entry,
        registers=int(registers[1]),
        spill_bytes=stores + loads,
        stack_bytes=stack,
        static_shared_bytes=int(shared[1]) if shared else 0,
        warnings=tuple(line.strip() for line in _WARNING.findall(log)),
        log=log,
    )
