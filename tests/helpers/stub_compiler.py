"""A compiler in name only, for tests of what stands around it: quick, counted, and obedient.

Runs in the process under test. `FOLDER/compiled` gets a line for each compilation of any process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from helpers.bundles import code_of
from tilewright.abi.arguments import launch_abi
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit

_COUNT = "compiled"


def install(
    folder: Path, *, seconds: float = 0.0, before: Callable[[], None] | None = None
) -> None:
    """Put the stub in the compiler's place; `before` runs first and may raise."""

    def compile_kernel(
        kernel: Kernel, signature: KernelSignature, targets: tuple[Target, ...]
    ) -> Any:
        with (folder / _COUNT).open("a") as file:
            file.write(f"{os.getpid()} {kernel.name} {signature}\n")
        if before is not None:
            before()
        if seconds:
            time.sleep(seconds)
        name = f"{kernel.name} {signature}"
        abi = launch_abi(signature, entry=kernel.name, shared_bytes=0, writes=("out",))
        return SimpleNamespace(
            abi=abi,
            ptx=code_of("ptx", name).decode(),
            cubins={
                str(target): SimpleNamespace(data=code_of(str(target), name), abi=None, waits=False)
                for target in targets
            },
        )

    jit.compile_kernel = compile_kernel
    jit.build_key = lambda source_key, target: f"stub {source_key} {target}"
    jit.why_unavailable = lambda: None  # type: ignore[assignment]  # its cache is of no use here


def compilations(folder: Path) -> list[str]:
    """Return a line for each compilation so far."""
    path = folder / _COUNT
    return path.read_text().splitlines() if path.exists() else []
