"""Scheduled tile IR with roles -> complaints: the rules of producers, consumers, and what runs on
behind their backs. `verify_scheduled` asks; that waits come in time, the schedule checker proves.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import MbarrierType, SharedType, TileType
from tilewright_compiler.layout.boxes import boxes_of
from tilewright_compiler.layout.wgmma_operand import plan_wgmma_operand
from tilewright_compiler.schedule.running_dots import is_asynchronous

_UNSCHEDULED = ("tma_tile", "descriptor_load", "descriptor_store", "descriptor_rmw")
_OF_PRODUCERS = ("tma_load", "mbarrier_expect")
_OF_CONSUMERS = ("barrier", "tma_store", "tma_store_wait", "async_fence", "dot_wait")
_HANDS_ON = ("for", "yield")
_MBARRIER_BYTES = 8


def role_complaints(module: Module) -> Iterator[tuple[Operation, str]]:
    """Yield operations that break a rule of roles, with what is wrong."""
    body = module.kernel.body
    roles = [operation for operation in body.walk() if operation.name == "roles"]
    producing: set[Operation] = set()
    consuming: set[Operation] = set()
    for operation in roles:
        producer, consumer = operation.regions
        producing.update(producer.walk())
        consuming.update(consumer.walk())
        if operation not in body.operations or len(roles) > 1:
            yield operation, "roles stand in a kernel's body, once"
    if roles and module.attributes.get("producer_warps") is None:
        yield roles[0], "the module does not say how many producer_warps there are"
    running = _running(module)
    for operation in body.walk():
        if operation.name in _UNSCHEDULED:
            yield operation, "only a schedule's steps have it, not its result"
        if operation.name in _OF_PRODUCERS and operation not in producing:
            yield operation, "only the producer does that"
        if operation.name in _OF_CONSUMERS and roles and operation in producing:
            yield operation, "the producer is one thread, and does not do that"
        tiles = (*operation.operands, *operation.results)
        if operation in producing and any(isinstance(value.type, TileType) for value in tiles):
            yield operation, "the producer has no tiles"
        complaint = _shared_complaint(operation) or _running_complaint(operation, running)
        if complaint is not None:
            yield operation, complaint


def _running(module: Module) -> set[Value]:
    """Return the values that may be results of dots that still run, loops included."""
    running: set[Value] = set()
    late = _late_waits(module.kernel.body)
    changed = True
    while changed:
        before = len(running)
        for operation in module.kernel.body.walk():
            if is_asynchronous(operation):
                running.add(operation.result)
            elif operation in late:
                running.update(late[operation])
            elif operation.name == "for":
                (body,) = operation.regions
                carried = zip(
                    body.terminator.operands, body.arguments[1:], operation.results, strict=True
                )
                for yielded, argument, result in carried:
                    if yielded in running:
                        running.update((argument, result))
        changed = len(running) > before
    return running


def _late_waits(body: Block) -> dict[Operation, list[Value]]:
    """Return the results of each wait whose dots it may leave running, as far as a block tells."""
    late: dict[Operation, list[Value]] = {}
    started: list[Value] = []
    for operation in body.operations:
        for region in operation.regions:
            late |= _late_waits(region)
        if is_asynchronous(operation):
            started.append(operation.result)
        if operation.name != "dot_wait" or not operation.attributes["pending"]:
            continue
        done = started[: len(started) - operation.attributes["pending"]]
        pairs = zip(operation.operands, operation.results, strict=True)
        late[operation] = [result for operand, result in pairs if operand not in done]
    return late


def _running_complaint(operation: Operation, running: set[Value]) -> str | None:
    if operation.name in (*_HANDS_ON, "dot_wait"):
        return None
    read = operation.operands[:2] if is_asynchronous(operation) else operation.operands
    for value in read:
        if value in running:
            return f"%{value.name or value.type} is the result of a dot that may still run"
    return None


def _shared_complaint(operation: Operation) -> str | None:
    match operation.name:
        case "alloc_shared" if "alignment" in operation.attributes:
            offset = operation.attributes.get("shared_offset", 0)
            alignment = operation.attributes["alignment"]
            return None if offset % alignment == 0 else f"{offset} is no multiple of {alignment}"
        case "alloc_mbarriers":
            offset = operation.attributes.get("shared_offset")
            if offset is None:
                return "has no shared_offset"
            good = offset % _MBARRIER_BYTES == 0
            return (
                None if good else f"mbarriers lie at multiples of {_MBARRIER_BYTES}, not {offset}"
            )
        case "tma_load" | "tma_store":
            tile = operation.operands[1].type
            assert isinstance(tile, SharedType), "the verifier checks types"
            good = boxes_of(tile.layout, size_bytes=tile.dtype.size_bytes) is not None
            return None if good else f"bulk copies do not move tiles of {tile.layout}"
        case "dot" if is_asynchronous(operation):
            return _operand_complaint(operation)
        case name if name in _HANDS_ON:
            carried = [value.type for value in operation.operands]
            return (
                "mbarriers are carried: only the operations that made them may say where they are"
                if any(isinstance(type_, MbarrierType) for type_ in carried)
                else None
            )
    return None


def _operand_complaint(dot: Operation) -> str | None:
    for value, k_axis in zip(dot.operands[:2], (1, 0), strict=True):
        type_ = value.type
        if not isinstance(type_, SharedType):
            if k_axis == 0:
                return f"wgmma reads its second operand from shared memory, not {type_}"
            continue
        size_bytes = type_.dtype.size_bytes
        if plan_wgmma_operand(type_.layout, k_axis=k_axis, size_bytes=size_bytes) is None:
            return f"wgmma cannot read {type_}"
    return None
