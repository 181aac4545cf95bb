"""A persistent kernel with `tma_tile`s -> one whose warps have roles: one thread of a warpgroup of
its own copies blocks into rings, the others compute.

Both roles do the same walk over programs and loops, so they agree about which slot is which without
a word: the producer does its slice of the program (`producer`), the consumers the rest
(`consumer`). A full slot has one arrival, of the producer, and the bytes of its tiles; an empty one
an arrival of each consumer's warp.
"""

from __future__ import annotations

from tilewright_compiler.analysis.alias import (
    READING,
    WRITING,
    Roots,
    pointer_roots,
    written_arguments,
)
from tilewright_compiler.ir.builder import Builder, copy_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.effects import is_pure, may_wait
from tilewright_compiler.ir.ops import SPECS, Effect
from tilewright_compiler.ir.types import MbarrierType, SharedType, TileType
from tilewright_compiler.layout.panels import ALIGNMENT_BYTES
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.schedule.consumer import Consumer
from tilewright_compiler.schedule.fetch_groups import FetchGroup, find_sites, shared_type
from tilewright_compiler.schedule.producer import Producer
from tilewright_compiler.schedule.role import Rings
from tilewright_compiler.schedule.role_registers import (
    PRODUCER_REGISTERS,
    PRODUCER_WARPS,
    consumer_registers,
)
from tilewright_compiler.schedule.unsuited import Unsuited

_RELAXED = "relaxed"
# These have effects, but not on global memory.
_LOCAL = frozenset({"shared_store", "async_fence", "tma_store_wait", "assert"})


def warp_specialize(module: Module, *, max_stages: int, program_slots: int) -> Module:
    """Give the warps of a persistent kernel roles; see `find_sites` for the slots of rings.

    Raises Unsuited if the producer would need what only the consumers have.
    """
    _check_order(module)
    sites = find_sites(module, max_stages=max_stages, program_slots=program_slots)
    kernel = module.kernel
    body = Block(tuple(Value(argument.type, argument.name) for argument in kernel.body.arguments))
    values = dict(zip(kernel.body.arguments, body.arguments, strict=True))
    builder = Builder(body, kernel.location)
    shared: list[Operation] = []
    for operation in kernel.body.operations[:-1]:
        if _is_common(operation) and not shared:
            copy_operation(operation, values, builder)
        else:
            shared.append(operation)
    builder.location = kernel.location
    found = dict.fromkeys(site.group for of_block in sites.values() for site in of_block)
    rings = {group: _rings(builder, group, module.signature.num_warps) for group in found}
    for group in found:
        builder.create("mbarrier_init", [rings[group].full])
        builder.create("mbarrier_init", [rings[group].empty])
    builder.create("barrier")
    producer = Producer(sites, rings, values).region(shared)
    consumer = Consumer(sites, rings, values).region(shared)
    if any(operation.name == "tma_store" for operation in consumer.walk()):
        last_wait = Operation("tma_store_wait", attributes={"pending": 0})
        consumer.operations.insert(len(consumer.operations) - 1, last_wait)
    registers = consumer_registers(module.signature.num_warps)
    builder.create(
        "roles",
        (),
        (),
        [producer, consumer],
        producer_registers=PRODUCER_REGISTERS,
        consumer_registers=registers,
    )
    builder.create("return")
    function = Function(kernel.name, body, (), is_kernel=True, location=kernel.location)
    attributes = {**module.attributes, "producer_warps": PRODUCER_WARPS}
    result = dce(Module({kernel.name: function}, module.signature, attributes))
    _check_producer(result)
    return result


def _is_common(operation: Operation) -> bool:
    """Whether both roles may take an operation's scalars and descriptors from before the roles."""
    has_tiles = any(isinstance(r.type, TileType | SharedType) for r in operation.results)
    return operation.name == "alloc_shared" or (is_pure(operation) and not has_tiles)


def _rings(builder: Builder, group: FetchGroup, num_warps: int) -> Rings:
    tiles = []
    for tile in group.tiles:
        type_ = shared_type(tile)
        ring = SharedType(type_.shape, type_.dtype, type_.layout, group.slots)
        value = builder.value("alloc_shared", [], ring, alignment=ALIGNMENT_BYTES)
        value.name = f"{tile.name}_ring" if tile.name else ""
        tiles.append(value)
    full, empty = (
        builder.value("alloc_mbarriers", [], MbarrierType(group.slots), arrivals=arrivals)
        for arrivals in (1, num_warps)
    )
    full.name, empty.name = "full", "empty"
    return Rings(tuple(tiles), full, empty)


def _check_order(module: Module) -> None:
    """Demand that a program reads through descriptors nothing that it may have written before.

    The producer runs ahead within a program. As for barriers, different arguments are taken to be
    different memory, or to be accessed alike; and programs are not ordered anyway.
    """
    kernel = module.kernel
    if may_wait(Operation("for", regions=(kernel.body,))):
        msg = "the kernel may wait for what other programs write"
        raise Unsuited(msg)
    order = _Order(module)
    for program in (o for o in kernel.body.operations if o.name == "for"):
        order.block(program.regions[0], frozenset())


class _Order:
    """What has been written when a descriptor is read, by the arguments that it may belong to."""

    def __init__(self, module: Module) -> None:
        self._roots = pointer_roots(module)
        self._everything: Roots = frozenset(name for name, _ in module.signature.runtime)

    def block(self, block: Block, written: Roots) -> Roots:
        """Return what has been written behind a block; raises Unsuited."""
        for operation in block.operations:
            if operation.name == "tma_tile" and self._of(operation.operands[0]) & written:
                msg = "a descriptor is read after the program has written to its memory"
                raise Unsuited(msg, operation)
            if operation.name in ("for", "while"):
                # An iteration comes after all that earlier ones wrote.
                written = written.union(*map(self._writes, operation.walk()))
            ends = [self.block(region, written) for region in operation.regions]
            written = written.union(self._writes(operation), *ends)
        return written

    def _writes(self, operation: Operation) -> Roots:
        """Return what an operation writes, or what others may have written that it waits for."""
        if operation.attributes.get("sem", _RELAXED) != _RELAXED:
            return self._everything
        if operation.name in WRITING:
            return self._of(operation.operands[0])
        is_write = SPECS[operation.name].effect is Effect.WRITE
        return self._everything if is_write and operation.name not in _LOCAL else frozenset()

    def _of(self, value: Value) -> Roots:
        return self._roots.get(value, frozenset())


def _check_producer(module: Module) -> None:
    """Demand that the producer computes scalars, from what the kernel does not write."""
    roots = pointer_roots(module)
    nowhere: Roots = frozenset()
    written = frozenset(written_arguments(module))
    body = module.kernel.body
    (roles,) = (operation for operation in body.operations if operation.name == "roles")
    known = {*body.arguments, *(r for o in body.operations for r in o.results)}
    for operation in roles.regions[0].walk():
        known.update(operation.results)
        known.update(argument for region in operation.regions for argument in region.arguments)
        values = (*operation.operands, *operation.results)
        if any(isinstance(value.type, TileType) for value in values):
            msg = "where a block lies, or how many there are, depends on a tile"
            raise Unsuited(msg, operation)
        reads = operation.name in READING and roots.get(operation.operands[0], nowhere)
        if reads and reads & written:
            msg = "where a block lies depends on memory that the kernel writes"
            raise Unsuited(msg, operation)
        # What has an effect and a result is done by the consumers alone.
        if not known.issuperset(operation.operands):
            msg = "where a block lies depends on what the program does besides computing"
            raise Unsuited(msg, operation)
