"""A compiler in name only, for tests of what stands around it: quick, counted, and obedient.

Runs in the process under test. `FOLDER/compiled` gets a line for each compilation of any process:
its process, kernel, texts and signature.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from helpers.bundles import code_of
from tilewright.abi.arguments import LaunchAbi, launch_abi
from tilewright.abi.manifest import OWN_SCHEDULE
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit

_COUNT = "compiled"


def install(
    folder: Path,
    *,
    seconds: float = 0.0,
    before: Callable[[], None] | None = None,
    own: LaunchAbi | None = None,
) -> None:
    """Put the stub in the compiler's place; `before` runs first and may raise.

    With `own` each target has a schedule of its own, launched so, for every kernel.
    """

    def compile_kernel(
        kernel: Kernel, signature: KernelSignature, targets: tuple[Target, ...], *, texts: str
    ) -> Any:
        with (folder / _COUNT).open("a") as file:
            file.write(f"{os.getpid()} {kernel.name} {texts} {signature}\n")
        if before is not None:
            before()
        if seconds:
            time.sleep(seconds)
        name = f"{kernel.name} {signature}"
        is_own = own is not None and bool(targets) and texts == "first"
        abi = launch_abi(signature, entry=kernel.name, shared_bytes=0, writes=("out",))
        keys = [f"{target}{OWN_SCHEDULE if is_own else ''}" for target in targets]
        return SimpleNamespace(
            abi=own if is_own else abi,
            ptx="" if is_own else code_of("ptx", name).decode(),
            cubins={
                key: SimpleNamespace(
                    data=code_of(key, name), abi=own if is_own else None, waits=False
                )
                for key in keys
            },
        )

    jit.compile_kernel = compile_kernel
    jit.build_key = lambda source_key, target: f"stub {source_key} {target}"
    jit.why_unavailable = lambda: None  # type: ignore[assignment]  # its cache is of no use here


def compilations(folder: Path) -> list[str]:
    """Return a line for each compilation so far."""
    path = folder / _COUNT
    return path.read_text().splitlines() if path.exists() else []
