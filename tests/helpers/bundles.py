"""Write bundles of made-up binaries, which the fake driver takes: each says its target only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.abi import keys
from tilewright.abi.arguments import LaunchAbi, launch_abi
from tilewright.abi.dtypes import DType
from tilewright.abi.manifest import (
    FILE_NAME,
    OWN_SCHEDULE,
    PTX,
    Blob,
    Entry,
    Manifest,
    blob_target,
    write_manifest,
)
from tilewright.abi.pack import PackReader, write_pack
from tilewright.abi.signature import Constexpr, ConstexprValue, KernelSignature, declared
from tilewright.language.kernel import Kernel
from tilewright.language.provenance import kernel_record

TARGETS = ("sm_80", "sm_90a", "sm_100f", "sm_120f", PTX)
PACK = "test.pack"

Declaration = DType | tuple[DType] | ConstexprValue


def signatures(kernel: Kernel, /, **parameters: Declaration) -> tuple[KernelSignature, ...]:
    """Return both specializations of a kernel; `(dtype,)` is a pointer, a dtype a scalar."""
    declarations: dict[str, DType | tuple[DType] | Constexpr] = {}
    for parameter in kernel.parameters:
        value = parameters[parameter.name]
        if parameter.is_constexpr:
            assert not isinstance(value, tuple)
            declarations[parameter.name] = Constexpr(value)
        else:
            assert isinstance(value, DType | tuple)
            declarations[parameter.name] = value
    return tuple(
        declared(declarations, rule=kernel.rule, specialization=each, num_warps=4, num_stages=3)
        for each in ("fast", "general")
    )


def code_of(target: str, kernel: str) -> bytes:
    """Return a made-up binary that the fake driver accepts and logs by its target."""
    if target == PTX:
        return f"//  {PTX} of {kernel}\n.version 7.0\n".encode()
    return b"\x7fELF" + f"{target} of {kernel}\n".encode()


def write_bundle(
    folder: Path,
    kernels: Mapping[Kernel, Sequence[KernelSignature]],
    *,
    targets: Sequence[str] = TARGETS,
    abis: Mapping[str, LaunchAbi] | None = None,
    own: Mapping[str, LaunchAbi] | None = None,
    shared_bytes: int = 0,
    min_driver: int = 12000,
    waiting: bool = False,
) -> Manifest:
    """Write a bundle; `abis` replaces the launch ABI of kernels by name.

    Kernels in `own` have a second cubin for sm_90a, launched as it says there. With `waiting` the
    cubins for sm_90a wait by themselves for the kernels before them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    codes: list[bytes] = []
    entries: dict[str, Entry] = {}
    for kernel, wanted in kernels.items():
        for signature in wanted:
            written = ("out",) if any(p.name == "out" for p in kernel.parameters) else ()
            abi = (abis or {}).get(kernel.name) or launch_abi(
                signature, entry=kernel.name, shared_bytes=shared_bytes, writes=written
            )
            blobs = {}
            own_abi = (own or {}).get(kernel.name)
            keys_of = (*targets, *((f"sm_90a{OWN_SCHEDULE}",) if own_abi else ()))
            for target in keys_of:
                code = code_of(target, f"{kernel.name} {signature}")
                codes.append(code)
                blobs[target] = Blob(
                    sha256=hashlib.sha256(code).hexdigest(),
                    pack=PACK,
                    size=len(code),
                    kind="ptx" if target == PTX else "cubin",
                    target="sm_80" if target == PTX else blob_target(target),
                    min_driver=11000 if target == PTX else min_driver,
                    registers=16,
                    spill_bytes=0,
                    shared_bytes=0,
                    toolchain="test",
                    build_key="0" * 64,
                    abi=own_abi if target.endswith(OWN_SCHEDULE) else None,
                    waits=waiting and blob_target(target) == "sm_90a",
                )
            entries[keys.source_key(kernel.digest, signature)] = Entry(
                kernel=kernel.qualified_name,
                family="test",
                signature=str(signature),
                abi=abi,
                blobs=blobs,
            )
    write_pack(folder / PACK, codes)
    records = {kernel.qualified_name: kernel_record(kernel) for kernel in kernels}
    manifest = Manifest(version="0", kernels=records, entries=entries)
    write_manifest(folder / FILE_NAME, manifest)
    return manifest


def zero_blobs(pack: Path) -> None:
    """Overwrite all blobs of a pack by zeros; header and index stay as they are."""
    with PackReader(pack) as reader:
        start = reader._frames[0].position
    data = pack.read_bytes()
    pack.write_bytes(data[:start] + bytes(len(data) - start))
