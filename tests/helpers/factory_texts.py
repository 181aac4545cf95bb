"""Compilations that take what the factory made, where its cache has it.

`make wheel` has compiled what the bundle declares. The keys of its cache are hashes of what goes
into a text and of the compiler that made it, so one of another compiler is not found. Without the
cache, or where it lacks a text, that is compiled here: the verdict of a test is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.language.kernel import Kernel
from tilewright.settings import settings
from tilewright_compiler.driver import compile_kernel
from tilewright_compiler.pipeline import CompiledKernel
from tilewright_release.stage_cache import StageCache, default_cache


class _ReadOnly:
    """What the factory's cache has; nothing is put there, so that no test makes another quicker."""

    def __init__(self) -> None:
        self._stages = (
            StageCache(default_cache(), "stages") if settings().cache_candidates else None
        )

    def get(self, key: str) -> bytes | None:
        return None if self._stages is None else self._stages.get(key)

    def put(self, key: str, value: bytes) -> None:
        pass


def compile_declared(
    kernel: Kernel, signature: KernelSignature, targets: Sequence[Target]
) -> CompiledKernel:
    """Compile a kernel as `compile_kernel` does, in a form that the bundle declares."""
    return compile_kernel(kernel, signature, targets, store=_ReadOnly())
