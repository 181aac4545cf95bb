"""Scheduled tile IR -> nothing, or an InternalCompilerError: the rules that only layouts bring.

`ir.verifier` checks the IR itself. Here: every tile has a layout of the program's warps; an
operation's tiles agree as its kind demands, so that emission never has to move data between threads
but in reductions, scans, look-ups, `flip`, `convert_layout` and the results of atomic operations,
and a dot's are those of its instruction; what goes through shared memory has its place there, apart
from what lives at the same time; and control flow carries tokens, but no shared memory, so that
where a tile lies is plain from the text. That barriers stand where they must, and waits cover what
they say, the schedule checker proves.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.dot_layouts import layouts_of_dot
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops.atomics import ATOMICS
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import SharedType, TileType, TokenType
from tilewright_compiler.layout.convert import broadcast_sources, register_sources
from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.ordered import is_ordered
from tilewright_compiler.schedule.allocate_shared import find_overlap
from tilewright_compiler.schedule.scratch import scratch_bytes
from tilewright_compiler.schedule.verify_roles import role_complaints

_TOKEN_USERS = ("async_wait", "for", "yield")
_CONTROL = ("for", "while", "if", "yield", "condition", "return")  # ir.verifier checks types


def verify_scheduled(module: Module) -> None:
    """Check the layouts and shared memory of a scheduled module; raises at the first violation."""
    for operation, message in _complaints(module):
        msg = f"invalid scheduled IR: {operation.name}: {message}"
        error = InternalCompilerError(msg)
        error.add_note(print_module(module, notes={operation: message}))
        raise error


def _complaints(module: Module) -> Iterator[tuple[Operation, str]]:
    warp_bits = log2(module.signature.num_warps)
    for operation in module.kernel.body.walk():
        values = (*operation.results, *_arguments(operation.regions))
        complaint = _tiles_complaint(values, warp_bits) or _operation_complaint(operation, module)
        complaint = complaint or _carried_complaint(operation)
        if complaint is not None:
            yield operation, complaint
    yield from role_complaints(module)
    overlap = find_overlap(module)
    if overlap is not None:
        operation, other = overlap
        yield operation, f"shares memory with {other.name}, which lives at the same time"


def _arguments(regions: tuple[Block, ...]) -> Iterator[Value]:
    for region in regions:
        yield from region.arguments


def _tiles_complaint(values: tuple[Value, ...], warp_bits: int) -> str | None:
    for value in values:
        if not isinstance(value.type, TileType):
            continue
        layout = value.type.layout
        if layout is None:
            return f"{value.type} has no layout"
        if len(layout.warp) != warp_bits:
            return f"{value.type}: the layout is for {layout.num_warps} warps"
        if not layout.is_surjective:
            return f"{value.type}: the layout does not hold every element"
    return None


def _carried_complaint(operation: Operation) -> str | None:
    """Check what control flow hands on, and where tokens go."""
    is_control = operation.name in _CONTROL
    for value in operation.operands:
        if is_control and isinstance(value.type, SharedType):
            return f"{value.type} is carried: only the operations that made it may say where it is"
        if isinstance(value.type, TokenType) and operation.name not in _TOKEN_USERS:
            return "a token is waited for or carried by a loop"
    return None


def _operation_complaint(operation: Operation, module: Module) -> str | None:
    if operation.name == "dot":
        return _dot_complaint(operation, module)
    if operation.name in ATOMICS and not isinstance(operation.operands[0].type, TileType):
        return _scratch_complaint(operation, module)
    if operation.name == "alloc_shared":
        assert isinstance(operation.result.type, SharedType)
        return _place_complaint(operation, module, operation.result.type.size_bytes)
    tiles = [
        value.type
        for value in (*operation.operands, *operation.results)
        if isinstance(value.type, TileType)
    ]
    if not tiles or operation.name in (*_CONTROL, "tile_part"):
        return None
    layouts = [tile.layout for tile in tiles if tile.layout is not None]
    if operation.name in ("reduce", "reduce_with", "scan", "convert_layout"):
        return _reduce_complaint(operation, layouts) or _scratch_complaint(operation, module)
    if operation.name in ("gather", "histogram"):
        return _lookup_complaint(operation, layouts) or _scratch_complaint(operation, module)
    if operation.name in ("expand_dims", "reshape", "transpose", "broadcast"):
        return _move_complaint(operation, *layouts)
    if operation.name == "dot_wait":  # of several dots at once, each as it is
        count = len(operation.results)
        same = layouts[:count] == layouts[count:]
        return None if same else "each result of a wait has the layout of its dot"
    if len(set(layouts)) > 1:
        return "tiles of one operation have one layout"
    is_exchange = operation.name in ("flip", *ATOMICS)
    return _scratch_complaint(operation, module) if is_exchange else None


def _reduce_complaint(operation: Operation, layouts: list[LinearLayout]) -> str | None:
    if operation.name == "convert_layout":
        return None
    axis: int = operation.attributes["axis"]
    source, *others = layouts[: len(operation.operands)]
    if any(other != source for other in others):
        return "operands have one layout"
    suits = source.is_separable(axis) if operation.name == "reduce" else is_ordered(source, axis)
    if not suits:
        return f"{source} cannot be reduced along axis {axis}"
    expected = source if operation.name == "scan" else source.slice(axis)
    results = layouts[len(operation.operands) :]
    if any(result != expected for result in results):
        return f"the result has layout {expected}"
    return None


def _lookup_complaint(operation: Operation, layouts: list[LinearLayout]) -> str | None:
    """What is looked up has one layout, and so have an index and its result, or mask and source."""
    source, *others = layouts
    if operation.name == "gather":
        return None if others[0] == others[1] else "the index and the result have one layout"
    masks = others[: len(operation.operands) - 1]
    return None if all(mask == source for mask in masks) else "tile and mask have one layout"


def _dot_complaint(operation: Operation, module: Module) -> str | None:
    """Check the operands that are in registers; a dot reads those in shared memory by itself."""
    if not {"atom", "warps"} <= operation.attributes.keys():
        return "has no atom and warps"
    layouts = layouts_of_dot(operation, num_warps=module.signature.num_warps)
    expected = (layouts.a, layouts.b, layouts.acc, layouts.acc)
    tiles = (*operation.operands, operation.result)
    for name, value, layout in zip(("a", "b", "acc", "result"), tiles, expected, strict=True):
        if isinstance(value.type, TileType) and value.type.layout != layout:
            return f"{name} has layout {layout}, got {value.type.layout}"
        if isinstance(value.type, SharedType) and value.type.slots is not None:
            return f"{name} is a ring: take a slot of it"
    return None


def _scratch_complaint(operation: Operation, module: Module) -> str | None:
    size = scratch_bytes(operation)
    if size == 0:
        offset = operation.attributes.get("shared_offset")
        return None if offset is None else "needs no shared memory but has a shared_offset"
    return _place_complaint(operation, module, size)


def _place_complaint(operation: Operation, module: Module, size: int) -> str | None:
    offset = operation.attributes.get("shared_offset")
    if offset is None:
        return f"needs {size} bytes of shared memory and has no shared_offset"
    total = module.attributes.get("shared_bytes", 0)
    return None if offset + size <= total else f"ends beyond the module's {total} shared bytes"


def _move_complaint(operation: Operation, source: LinearLayout, target: LinearLayout) -> str | None:
    match operation.name:
        case "expand_dims" | "reshape":
            sources = register_sources(source.reshape(target.shape), target)
        case "transpose":
            sources = register_sources(source.transpose(operation.attributes["order"]), target)
        case _:
            sources = broadcast_sources(source, target)
    return None if sources is not None else f"{source} to {target} would move data between threads"
