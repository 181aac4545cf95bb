"""PTX to cubin with the pinned ptxas, and what it says of registers, spills and trouble.

The flags are fixed: ptxas is byte-deterministic only with the same ones, so none depends on a
debug switch.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.ptx import parse_ptx
from tilewright_compiler.ir.stages import Cubin, Ptx
from tilewright_compiler.toolchain import find_toolchain

FLAGS = ("-v", "-O3")
DEFAULT_TIMEOUT_S = 600.0
_MAX_MESSAGE = 4000

_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_COMPILE_TIME = re.compile(r"^.*Compile time = .*\n", re.MULTILINE)
# Advisories (C75xx: serialised wgmma, ignored setmaxnreg) come as info or as warning lines.
_WARNING = re.compile(r"^.*(?:warning\s*:|\(C75\d\d\)).*$", re.MULTILINE)


def assemble(ptx: Ptx | str, target: Target, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Cubin:
    """Assemble PTX for `target`.

    Raises InternalCompilerError when ptxas refuses, crashes or does not finish; ToolchainError
    without ptxas.
    """
    parsed = parse_ptx(ptx) if isinstance(ptx, str) else ptx
    where = f"\n  kernel: {parsed.location.render()}" if parsed.location else ""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(parsed.text, encoding="utf-8")
        # Relative names: the command line is recorded in the cubin, and must not name this machine.
        command = [
            str(find_toolchain().ptxas),
            *FLAGS,
            f"-arch={target}",
            source.name,
            "-o",
            result.name,
        ]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            msg = (
                f"ptxas did not assemble {parsed.entry} for {target} within {timeout_s:g} s{where}"
            )
            raise InternalCompilerError(msg) from error
        log = _COMPILE_TIME.sub("", done.stdout + done.stderr)
        if done.returncode != 0:
            msg = (
                f"ptxas refused {parsed.entry} for {target} with exit code {done.returncode}: "
                f"{log.strip()[:_MAX_MESSAGE]}{where}"
            )
            raise InternalCompilerError(msg)
        data = result.read_bytes()
    return _cubin(data, log, entry=parsed.entry, target=target)


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
