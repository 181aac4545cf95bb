"""A kernel and a signature to PTX and cubins: the whole way on one page.

There is one text for all targets. A target with a schedule of its own, where a kernel fits that,
gets a second text and cubin, launched in a way of its own; the cubin of the common text serves
where the launch's arguments do not suit it. A factory makes both; who waits for one launch asks for
the text that serves it.

Two content caches stand behind it. The frontend and the passes always run; what they give is the
key of the PTX, and the PTX is the key of each cubin. So a change of the compiler that leaves a
kernel's PTX the same assembles nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Literal, Protocol

from tilewright.abi.arguments import LaunchAbi, launch_abi
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.errors import AssemblyError, KernelValueError, UnsupportedTargetError
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.alias import written_arguments
from tilewright_compiler.analysis.tensor_maps import added_parameters, launch_condition
from tilewright_compiler.backend.cubin import check_cubin
from tilewright_compiler.backend.dependent_launch import with_wait
from tilewright_compiler.backend.inline_ptx import blame_call
from tilewright_compiler.backend.ptx import lower_to_ptx, parse_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import BASELINE, OWN_TEXTS, PtxFlavor, capabilities_of
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.stages import Cubin, Ptx
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.options import DEFAULT, CompileOptions
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.hopper import schedule_hopper, why_not
from tilewright_compiler.schedule.plan import schedule_module
from tilewright_compiler.snapshots import Phase, Snapshots
from tilewright_compiler.toolchain import assembler_fingerprint, emitter_fingerprint

_DIGEST_BYTES = 32
_PARAMETER_BYTES = 4096  # of a kernel in PTX of before 8.1

Texts = Literal["all", "first", "common"]
"""Of a target that has a text of its own both, the one that a launch tries first, or the other."""


class Store(Protocol):
    """A content cache. It may lose or damage entries: they carry their sha256."""

    def get(self, key: str) -> bytes | None:
        """Return what was put under `key`, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Keep `value` under `key`."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel for one signature: how to launch it, its PTX, its cubins by their keys.

    `own_ptx` is the text of each target that has a schedule of its own for this kernel; the cubin
    made of it stands before that of the common text. Where only texts of their own were asked for,
    `ptx` is empty and `abi` is that of the first of them.
    """

    name: str
    signature: KernelSignature
    abi: LaunchAbi
    ptx: str
    cubins: dict[str, Cubin]
    phases: tuple[Phase, ...] = ()
    own_ptx: dict[Target, str] = field(default_factory=dict)


def compile_signature(
    kernel: Kernel,
    signature: KernelSignature,
    *,
    targets: Sequence[Target],
    texts: Texts = "all",
    store: Store | None = None,
    options: CompileOptions = DEFAULT,
    snapshots: Snapshots | None = None,
) -> CompiledKernel:
    """Compile a kernel for one signature; with no targets, to PTX only.

    Raises CompileError for a wrong kernel, UnsupportedTargetError for an unknown target or too much
    shared memory, InternalCompilerError for a fault of ours.
    """
    record = snapshots or Snapshots()
    optimized = _optimized(kernel, signature, record)
    cubins: list[Cubin] = []
    own_ptx: dict[Target, str] = {}
    for target in targets if texts != "common" else ():
        own = _scheduled(optimized, target, record) if target in OWN_TEXTS else None
        if own is not None:
            own_abi = _abi(own)
            _check_parameters(kernel, own_abi)
            text = _ptx(own, OWN_TEXTS[target], options=options, store=store, record=record)
            own_ptx[target] = text.text
            made = _cubin(own, text, target, options=options, store=store, record=record)
            cubins.append(replace(made, abi=own_abi))
    abi, ptx = cubins[0].abi if cubins else None, ""
    others = [target for target in targets if texts != "first" or target not in own_ptx]
    if others or not targets:
        module = _scheduled(optimized, None, record)
        assert module is not None, "the common schedule takes every kernel"
        _record(module, record)
        abi = _abi(module)
        _check_parameters(kernel, abi)
        for target in others:
            _check_shared_memory(kernel, abi, target)
        common = _ptx(module, BASELINE, options=options, store=store, record=record)
        ptx = common.text
        record.record("ptx", lambda: ptx)
        cubins += [
            _cubin(module, common, t, options=options, store=store, record=record) for t in others
        ]
    # Of a target's cubins its own, which came first, stays before that of the common text.
    cubins.sort(key=lambda cubin: list(targets).index(cubin.target))
    assert abi is not None, "there is a text"
    for cubin in cubins:
        check_cubin(cubin.data, target=cubin.target, abi=cubin.abi or abi)
    return CompiledKernel(
        kernel.qualified_name,
        signature,
        abi,
        ptx,
        {cubin.key: cubin for cubin in cubins},
        record.phases,
        own_ptx,
    )


def schedule_signature(
    kernel: Kernel,
    signature: KernelSignature,
    *,
    snapshots: Snapshots,
    target: Target | None = None,
) -> Module:
    """Return the scheduled module of a kernel: the stages that run on every machine the same.

    It is the one for `target`, if that has a schedule of its own which the kernel fits.
    """
    optimized = _optimized(kernel, signature, snapshots)
    scheduled = None if target is None else _scheduled(optimized, target, snapshots)
    scheduled = scheduled or _scheduled(optimized, None, snapshots)
    assert scheduled is not None, "the common schedule takes every kernel"
    _record(scheduled, snapshots)
    return scheduled


def why_common(kernel: Kernel, signature: KernelSignature, target: Target) -> str | None:
    """Return why a kernel gets the common schedule on a target; None if it gets that target's."""
    if target not in OWN_TEXTS:
        return f"there is no schedule for {target} alone"
    return why_not(_optimized(kernel, signature, Snapshots()))


def _optimized(kernel: Kernel, signature: KernelSignature, snapshots: Snapshots) -> Module:
    with snapshots.phase("frontend"):
        tile = lower_kernel(kernel, signature)
        verify(tile)
    snapshots.record("tile", lambda: print_module(tile))
    with snapshots.phase("passes"):
        optimized = optimize(tile)
        verify(optimized)
    snapshots.record("optimized", lambda: print_module(optimized))
    return optimized


def _scheduled(optimized: Module, target: Target | None, record: Snapshots) -> Module | None:
    """Return the module in a target's own schedule, None if it does not fit; None: the common."""
    with record.phase("schedule" if target is None else f"schedule {target}"):
        if target is None:
            scheduled: Module | None = schedule_module(optimized)
        else:
            scheduled = _scheduled_for_hopper(optimized) if target in OWN_TEXTS else None
        if scheduled is not None:
            verify(scheduled)
    return scheduled


def _scheduled_for_hopper(optimized: Module) -> Module | None:
    # Most kernels have no products, and need not wait for what could not schedule them.
    if not any(operation.name == "dot" for operation in optimized.kernel.body.walk()):
        return None
    return schedule_hopper(optimized)


def _record(module: Module, snapshots: Snapshots) -> None:
    snapshots.record("scheduled", lambda: print_module(module))
    snapshots.record("mlir", lambda: emit_module(module).text)


def _abi(module: Module) -> LaunchAbi:
    producer_warps: int = module.attributes.get("producer_warps", 0)
    return launch_abi(
        module.signature,
        entry=module.kernel.name,
        shared_bytes=module.attributes.get("shared_bytes", 0),
        writes=written_arguments(module),
        added=added_parameters(module),
        added_warps=producer_warps,
        grid_kind="persistent" if producer_warps else "user",
        tma_ok=launch_condition(module),
    )


def _check_parameters(kernel: Kernel, abi: LaunchAbi) -> None:
    last = abi.parameters[-1].size_bytes if abi.parameters else 0
    size = sum((*abi.offsets()[-1:], last))
    if size > _PARAMETER_BYTES:
        msg = (
            f"kernel {kernel.qualified_name} has {size} bytes of parameters, and a launch takes "
            f"{_PARAMETER_BYTES}; pass numbers in an array"
        )
        raise KernelValueError(msg, (kernel.location,))


def _check_shared_memory(kernel: Kernel, abi: LaunchAbi, target: Target) -> None:
    limit = capabilities_of(target).shared_bytes
    if abi.shared_bytes > limit:
        msg = (
            f"kernel {kernel.qualified_name} needs {abi.shared_bytes} bytes of shared memory, and "
            f"{target} runs on devices that have {limit}; make its tiles smaller"
        )
        raise UnsupportedTargetError(msg)


def _ptx(
    module: Module,
    flavor: PtxFlavor,
    *,
    options: CompileOptions,
    store: Store | None,
    record: Snapshots,
) -> Ptx:
    key = ""
    if store is not None:
        key = _key("ptx", print_module(module), emitter_fingerprint(), str(flavor), str(options))
        found = _get(store, key)
        if found is not None:
            record.cached("ptx")
            return parse_ptx(found.decode())
    with record.phase("emit"):
        mlir = emit_module(module)
    with record.phase("ptx"):
        ptx = lower_to_ptx(mlir, flavor=flavor, options=options)
    if store is not None:
        _put(store, key, ptx.text.encode())
    return ptx


def _cubin(
    module: Module,
    ptx: Ptx,
    target: Target,
    *,
    options: CompileOptions,
    store: Store | None,
    record: Snapshots,
) -> Cubin:
    name = f"ptxas {target}"
    ptx = with_wait(ptx, target)
    key = ""
    if store is not None:
        key = _key("cubin", ptx.text, assembler_fingerprint(), str(target), str(options))
        found = _get(store, key)
        if found is not None:
            record.cached(name)
            return _unpack_cubin(found, target)
    with record.phase(name):
        try:
            cubin = assemble(ptx, target, options=options)
        except AssemblyError as error:
            told = blame_call(error, module, target)
            if told is None:
                raise
            raise told from error
    if store is not None:
        _put(store, key, _pack_cubin(cubin))
    return cubin


def _get(store: Store, key: str) -> bytes | None:
    """Return what `_put` kept; None if it is not there, or not whole."""
    sealed = store.get(key)
    if sealed is None:
        return None
    digest, value = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:]
    return value if hashlib.sha256(value).digest() == digest else None


def _put(store: Store, key: str, value: bytes) -> None:
    store.put(key, hashlib.sha256(value).digest() + value)


def _key(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _pack_cubin(cubin: Cubin) -> bytes:
    head = {
        "entry": cubin.entry,
        "registers": cubin.registers,
        "spill_bytes": cubin.spill_bytes,
        "stack_bytes": cubin.stack_bytes,
        "static_shared_bytes": cubin.static_shared_bytes,
        "warnings": list(cubin.warnings),
        "log": cubin.log,
        "waits": cubin.waits,
    }
    return json.dumps(head).encode() + b"\n" + cubin.data


def _unpack_cubin(packed: bytes, target: Target) -> Cubin:
    head, _, data = packed.partition(b"\n")
    fields = json.loads(head)
    return Cubin(data=data, target=target, **{**fields, "warnings": tuple(fields["warnings"])})
