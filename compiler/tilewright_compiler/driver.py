"""What the runtime and the factory call: compile a kernel, interpret it, or show a stage of it.

The border of the compiler: an exception that is not one of ours becomes an InternalCompilerError
that names the kernel and the signature.

Each function imports what it needs when it is called, because a process waits for that: the
compiler needs no NumPy and the interpreter no emitter, and the process in which LLVM runs gets
ready while the rest is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.errors import (
    ArgumentError,
    InternalCompilerError,
    TilewrightError,
    ToolchainError,
)
from tilewright.language.kernel import Kernel
from tilewright.language.source import bounded_nesting
from tilewright_compiler.backend.worker import POOL
from tilewright_compiler.capabilities import BASELINE, OWN_TEXTS, TARGETS
from tilewright_compiler.options import DEFAULT, CompileOptions
from tilewright_compiler.snapshots import STAGES, Snapshots

if TYPE_CHECKING:
    from tilewright_compiler.interpret.tile import Argument
    from tilewright_compiler.ir.core import Module
    from tilewright_compiler.pipeline import CompiledKernel, Store, Texts

_EARLY_STAGES = ("tile", "optimized", "scheduled", "mlir")


def compile_kernel(
    kernel: Kernel,
    signature: KernelSignature,
    targets: Sequence[Target],
    *,
    texts: Texts = "all",
    store: Store | None = None,
    options: CompileOptions = DEFAULT,
) -> CompiledKernel:
    """Compile a kernel for one signature and these targets; `store` caches PTX and cubins.

    Where a target has a schedule of its own for the kernel, `texts` says which of the two to make.
    Raises CompileError, UnsupportedTargetError, ToolchainError or InternalCompilerError.
    """
    if store is None:
        POOL.start()
    from tilewright_compiler.pipeline import compile_signature

    with _border(kernel, signature), bounded_nesting(lambda: kernel.location):
        return compile_signature(
            kernel, signature, targets=targets, texts=texts, store=store, options=options
        )


def interpret_kernel(
    kernel: Kernel,
    signature: KernelSignature,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Argument],
) -> None:
    """Run a kernel on NumPy arrays, in place. `arguments` are the run-time parameters by name.

    Raises CompileError, ArgumentError, LaunchError or InterpreterError.
    """
    from tilewright_compiler.interpret import tile

    with _border(kernel, signature):
        tile.run(_tile_module(kernel, signature), grid=grid, arguments=arguments)


def step_kernel(
    kernel: Kernel,
    signature: KernelSignature,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Argument],
) -> None:
    """Run a kernel on NumPy arrays, in place, as the Python function it is: a debugger may step.

    Raises as `interpret_kernel` does, and whatever Python raises in the kernel.
    """
    from tilewright_compiler import stepping

    stepping.step_kernel(kernel, signature, grid=grid, arguments=arguments)


def build_key(source_key: str, target: Target | None, options: CompileOptions = DEFAULT) -> str:
    """Return the key of a blob that this compiler would make; with no target, of the PTX."""
    from tilewright.abi import keys
    from tilewright_compiler.toolchain import compiler_fingerprint, toolchain_id

    fingerprint = f"{compiler_fingerprint()} {options}"
    return keys.build_key(source_key, str(target or "ptx"), toolchain_id(), fingerprint)


def why_unusable() -> str | None:
    """Return what is wrong with the installed tools, a version or a missing file; or None."""
    from tilewright_compiler.toolchain import find_toolchain

    try:
        find_toolchain()
    except ToolchainError as error:
        return str(error)
    return None


def why_common_schedule(kernel: Kernel, signature: KernelSignature, target: Target) -> str | None:
    """Return why a kernel gets the common schedule on a target; None if it gets that target's."""
    from tilewright_compiler.pipeline import why_common

    with _border(kernel, signature), bounded_nesting(lambda: kernel.location):
        return why_common(kernel, signature, target)


def show(
    kernel: Kernel,
    signature: KernelSignature,
    stage: str,
    *,
    targets: Sequence[Target] = tuple(TARGETS),
    options: CompileOptions = DEFAULT,
) -> str:
    """Return the text of a stage of STAGES.

    If there is one target, stages from `scheduled` on are in its own schedule where it has one.
    `sass` is of the first target, `resources` of all.
    """
    if stage not in STAGES:
        msg = f"there is no stage {stage!r}; the stages are {', '.join(STAGES)}"
        raise ArgumentError(msg)
    from tilewright_compiler.pipeline import compile_signature, schedule_signature

    if stage == "source":
        import inspect

        return "\n".join(inspect.getsource(member.fn) for member in kernel.closure())
    with _border(kernel, signature), bounded_nesting(lambda: kernel.location):
        snapshots = Snapshots()
        if stage in _EARLY_STAGES:
            target = targets[0] if len(targets) == 1 else None
            schedule_signature(kernel, signature, snapshots=snapshots, target=target)
            return snapshots.text(stage)
        has_own = len(targets) == 1 and targets[0] in OWN_TEXTS
        few = {"ptx": tuple(targets) if has_own else (), "sass": tuple(targets[:1])}
        wanted = few.get(stage, tuple(targets))
        compiled = compile_signature(
            kernel,
            signature,
            targets=wanted,
            texts="first" if stage in few else "all",
            options=options,
            snapshots=snapshots,
        )
    if stage == "ptx":
        return compiled.own_ptx.get(targets[0], compiled.ptx) if has_own else compiled.ptx
    if stage == "sass":
        from tilewright_compiler.backend.ptxas import disassemble

        return disassemble(next(iter(compiled.cubins.values())).data)
    return _resources(compiled)


def _resources(compiled: CompiledKernel) -> str:
    """Return what each cubin takes and how long each phase took, as two tables."""
    abi = compiled.abi
    lines = [
        f"{compiled.name} {compiled.signature}",
        f"entry {abi.entry}, {abi.num_threads} threads, {abi.shared_bytes} bytes of shared memory, "
        f"writes {', '.join(abi.writes) or 'nothing'}, PTX {BASELINE.target}",
        "",
        f"{'target':<12}{'registers':>10}{'spills':>8}{'stack':>7}{'bytes':>8}",
    ]
    lines += [
        f"{name:<12}{cubin.registers:>10}{cubin.spill_bytes:>8}{cubin.stack_bytes:>7}"
        f"{len(cubin.data):>8}"
        for name, cubin in compiled.cubins.items()
    ]
    lines += ["", f"{'phase':<16}{'ms':>8}"]
    lines += [f"{phase.name:<16}{phase.seconds * 1e3:>8.1f}" for phase in compiled.phases]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=256)
def _tile_module(kernel: Kernel, signature: KernelSignature) -> Module:
    from tilewright_compiler.frontend.lower import lower_kernel

    return lower_kernel(kernel, signature)


@contextmanager
def _border(kernel: Kernel, signature: KernelSignature) -> Iterator[None]:
    try:
        yield
    except (TilewrightError, KeyboardInterrupt):
        raise
    except Exception as error:
        msg = (
            f"the compiler failed on kernel {kernel.qualified_name} {signature} with "
            f"{type(error).__name__}: {error}\n  kernel: {kernel.location.render()}"
        )
        raise InternalCompilerError(msg) from error
