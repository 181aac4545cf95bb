"""A scheduled module to MLIR text: one `gpu.module` with one `llvm.func`, in a single walk.

Parameters carry no `noalias` or `readonly`: launching a kernel in place is legal. Pointers stay
64-bit and offsets are extended before they are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.abi.arguments import AbiParameter
from tilewright.abi.signature import DIVISOR, Pointer, Scalar
from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.alias import written_arguments
from tilewright_compiler.analysis.axis_info import analyze
from tilewright_compiler.analysis.prefix_masks import PrefixMasks
from tilewright_compiler.analysis.tensor_maps import added_parameters, copied_tile, tensor_maps
from tilewright_compiler.emit import (
    arithmetic,
    async_copy,
    atomics,
    combine,
    control,
    convert_layout,
    debug,
    descriptor,
    dot,
    hints,
    indexing,
    inline_asm,
    libdevice,
    math,
    mbarrier,
    memory,
    reduce,
    roles,
    shape,
    shared_tiles,
    tma,
)
from tilewright_compiler.emit.indices import ThreadIndices
from tilewright_compiler.emit.kernel import Emit, EntryParameters, KernelEmitter, KernelForm
from tilewright_compiler.emit.shared import SharedMemory
from tilewright_compiler.emit.shared_access import SYMBOL
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import GENERIC_POINTER, POINTER, dtype_text, memory_dtype
from tilewright_compiler.ir.core import Block, Module, Operation
from tilewright_compiler.ir.stages import MlirText
from tilewright_compiler.ir.types import SharedType
from tilewright_compiler.layout.atoms import ATOMS
from tilewright_compiler.layout.linear import NUM_LANES

SHARED_ALIGNMENT = 128


def emit_module(module: Module) -> MlirText:
    """Return the MLIR text of a scheduled module whose calls are all inlined.

    Raises InternalCompilerError on an operation that has no emitter or a tile without a layout.
    """
    if len(module.functions) != 1:
        msg = f"emission takes one function, got {list(module.functions)}: calls are inlined first"
        raise InternalCompilerError(msg)
    kernel, signature = module.kernel, module.signature
    producer_warps: int = module.attributes.get("producer_warps", 0)
    num_threads = NUM_LANES * (signature.num_warps + producer_warps)
    text = FunctionText()
    threads = ThreadIndices(text, num_threads=NUM_LANES * signature.num_warps, launched=num_threads)
    axis_info = analyze(module)
    added = added_parameters(module)
    emitter = KernelEmitter(
        text,
        threads,
        SharedMemory(text, threads),
        axis_info,
        PrefixMasks(module, axis_info),
        _entry_parameters(module, added),
        num_threads=NUM_LANES * signature.num_warps,
        form=KernelForm(
            is_hopper=producer_warps > 0,
            has_lanes_that_read=any(map(_reads_shared, kernel.body.walk())),
            storing_groups=max(o.attributes.get("groups", 1) for o in kernel.body.walk()),
        ),
    )
    parameters = ", ".join([*_emit_parameters(emitter, module), *map(_added_parameter, added)])
    _emit_block(emitter, kernel.body)
    shared_bytes: int = module.attributes.get("shared_bytes", 0)
    attributes = f"gpu.kernel, nvvm.kernel, nvvm.reqntid = array<i32: {num_threads}, 1, 1>"
    programs = [o.attributes["programs"] for o in kernel.body.walk() if o.name == "resident"]
    if producer_warps:
        # ptxas lets registers move between warpgroups only if it knows that one CTA is enough.
        attributes += ", nvvm.minctasm = 1 : i32"
    elif programs:
        attributes += f", nvvm.minctasm = {max(programs)} : i32"
    lines = [
        "module attributes {gpu.container_module} {",
        "  gpu.module @kernels {",
        *(f"    {line}" for line in _globals(module)),
        *(f"    {line}" for line in text.declarations()),
        f"    llvm.func @{kernel.name}({parameters}) attributes {{{attributes}}} {{",
        *(f"    {line}" for line in text.body()),
        "    }",
        "  }",
        "}",
    ]
    return MlirText(
        text="\n".join(lines) + "\n",
        entry=kernel.name,
        num_threads=num_threads,
        shared_bytes=shared_bytes,
        writes=written_arguments(module),
        signature=signature,
        location=kernel.location,
    )


def _reads_shared(operation: Operation) -> bool:
    """Whether the lanes of a warp read a tile in shared memory, each its part."""
    if operation.name != "dot":
        return operation.name == "shared_load"
    in_shared = any(isinstance(value.type, SharedType) for value in operation.operands)
    return in_shared and not ATOMS[operation.attributes["atom"]].is_wgmma


def _emit_block(emitter: KernelEmitter, block: Block) -> None:
    for operation in block.operations:
        emit = EMITTERS.get(operation.name)
        if emit is None:
            where = f"\n  at {operation.location.render()}" if operation.location else ""
            msg = f"operation {operation.name} has no emitter{where}"
            raise InternalCompilerError(msg)
        emit(emitter, operation)


def _emit_parameters(emitter: KernelEmitter, module: Module) -> list[str]:
    """Define the kernel's arguments; return the texts of their parameters."""
    texts = []
    arguments = zip(module.kernel.body.arguments, module.signature.runtime, strict=True)
    for index, (argument, (_, parameter)) in enumerate(arguments):
        name = f"%arg{index}"
        texts.append(f"{name}: {_parameter_type(parameter)}")
        if isinstance(parameter, Scalar) and parameter.dtype.bits == 1:
            zero = emitter.text.raw_constant("0 : i8", "i8")
            name = emitter.text.value(f'llvm.icmp "ne" {name}, {zero} : i8')
        elif isinstance(parameter, Scalar) and parameter.dtype.bits == 16:
            target = dtype_text(parameter.dtype)
            if target != "i16":
                name = emitter.text.value(f"llvm.bitcast {name} : i16 to {target}")
        emitter.define(argument, [name])
    return texts


def _entry_parameters(module: Module, added: tuple[AbiParameter, ...]) -> EntryParameters:
    by_spec = {p.tensor_map: f"%{p.name}" for p in added if p.kind == "tensor_map"}
    return EntryParameters(
        tensor_maps={copy: by_spec[map_.spec] for copy, map_ in tensor_maps(module).items()},
        grid={p.axis: f"%{p.name}" for p in added if p.kind == "grid"},
    )


def _added_parameter(parameter: AbiParameter) -> str:
    if parameter.kind == "grid":
        return f"%{parameter.name}: {dtype_text(parameter.dtype)}"
    size = parameter.size_bytes
    # By value: the copy engine reads the map where the launch put it.
    return (
        f"%{parameter.name}: {GENERIC_POINTER} {{llvm.byval = !llvm.array<{size} x i8>, "
        f"nvvm.grid_constant, llvm.align = {size} : i32}}"
    )


def _parameter_type(parameter: Pointer | Scalar) -> str:
    if isinstance(parameter, Pointer):
        aligned = f" {{llvm.align = {DIVISOR} : i64}}" if parameter.aligned else ""
        return f"{POINTER}{aligned}"
    # As an integer: LLVM would pass a half as an array of two bytes.
    return "i16" if parameter.dtype.bits == 16 else dtype_text(memory_dtype(parameter.dtype))


def _globals(module: Module) -> list[str]:
    if module.attributes.get("shared_bytes", 0) == 0:
        return []
    copied = [copied_tile(operation)[2].alignment_bytes for operation in tensor_maps(module)]
    alignment = max([SHARED_ALIGNMENT, *copied])
    # Dynamic shared memory: the size comes with the launch, and may pass the static limit of 48
    # KiB.
    return [
        f"llvm.mlir.global external @{SYMBOL}() "
        f"{{addr_space = 3 : i32, alignment = {alignment} : i64}} : !llvm.array<0 x i8>"
    ]


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        **shape.EMITTERS,
        **arithmetic.EMITTERS,
        **math.EMITTERS,
        **libdevice.EMITTERS,
        **inline_asm.EMITTERS,
        **memory.EMITTERS,
        **atomics.EMITTERS,
        **reduce.EMITTERS,
        **indexing.EMITTERS,
        **convert_layout.EMITTERS,
        **shared_tiles.EMITTERS,
        **async_copy.EMITTERS,
        **descriptor.EMITTERS,
        **tma.EMITTERS,
        **mbarrier.EMITTERS,
        **debug.EMITTERS,
        **dot.EMITTERS,
        **hints.EMITTERS,
        **combine.emitters(_emit_block),
        **control.emitters(_emit_block),
        **roles.emitters(_emit_block),
    }
)
