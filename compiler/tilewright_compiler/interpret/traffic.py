"""Scheduled tile IR -> the passes through shared memory that each of its operations takes.

Offsets are linear in the lane, so the count needs no run: the plan of an access says how many words
the busiest bank serves (`layout.banks`). An access without conflicts takes as many passes
(*wavefronts*) as its bytes need. Where a look-up reads and adds is for its index to say, and is not
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_plan import AccessPlan
from tilewright_compiler.interpret.warp.fragments import plan_read, plan_vectors
from tilewright_compiler.interpret.warp.state import layout_of
from tilewright_compiler.interpret.warp.vectors import copy_length, plan_accesses
from tilewright_compiler.ir.core import Block, Module, Operation
from tilewright_compiler.ir.types import SharedType, TileType, element_bytes, shape_of
from tilewright_compiler.layout import banks
from tilewright_compiler.layout.atoms import ATOMS, dot_layouts
from tilewright_compiler.layout.convert import Conversion, plan_conversion
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.matrix_load import MatrixLoad
from tilewright_compiler.layout.ordered import plan_ordered_reduction, plan_scan
from tilewright_compiler.layout.reduce import plan_reduce
from tilewright_compiler.layout.shared import SharedAccess, SharedExchange


@dataclass(frozen=True, slots=True)
class Access:
    """One kind of access by an operation: so many instructions of a warp, which take `passes` each
    without conflicts, and `ways` times as many with.
    """

    name: str
    instructions: int
    passes: int
    ways: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one execution of an operation by one warp does to shared memory; `loops` are around it.

    Without bank conflicts the access would take `ideal` wavefronts.
    """

    operation: Operation
    access: Access
    loops: int

    @property
    def ideal(self) -> int:
        """Passes that the bytes need."""
        return self.access.instructions * self.access.passes

    @property
    def wavefronts(self) -> int:
        """Passes that the access takes."""
        return self.ideal * self.access.ways


def shared_traffic(module: Module) -> tuple[Traffic, ...]:
    """Return every access of a scheduled kernel to shared memory, in program order."""
    return tuple(_block(module.kernel.body, 0, plan_accesses(module), module.signature.num_warps))


def _block(
    block: Block, loops: int, plans: Mapping[Operation, AccessPlan], num_warps: int
) -> Iterator[Traffic]:
    for operation in block.operations:
        for access in _accesses(operation, plans, num_warps):
            yield Traffic(operation, access, loops)
        inner = loops + (operation.name in ("for", "while"))
        for region in operation.regions:
            yield from _block(region, inner, plans, num_warps)


def _accesses(
    operation: Operation, plans: Mapping[Operation, AccessPlan], num_warps: int
) -> Iterator[Access]:
    match operation.name:
        case "convert_layout":
            yield from _conversion(operation)
        case "flip":
            yield from _flip(operation)
        case "reduce":
            yield from _reduction(operation)
        case "reduce_with" | "scan":
            yield from _ordered(operation)
        case "shared_load":
            source, target = operation.operands[0].type, operation.result.type
            yield _read("read", source, layout_of(target))
        case "shared_store":
            value, tile = (operand.type for operand in operation.operands)
            assert isinstance(tile, SharedType), "the verifier checks types"
            size = tile.dtype.size_bytes
            yield _vectors("write", plan_vectors(layout_of(value), tile.layout, size), size)
        case "async_copy":
            pointer, tile = (operand.type for operand in operation.operands[:2])
            assert isinstance(tile, SharedType), "the verifier checks types"
            layout, size = layout_of(pointer), tile.dtype.size_bytes
            length = copy_length(plans[operation], layout, tile.layout, warp=0)
            lanes = [tile.layout.offset(basis) for basis in layout.lane]
            yield _access("copy", layout.num_registers // length, length, lanes, size)
        case "dot":
            yield from _operands(operation, num_warps)


def _conversion(operation: Operation) -> Iterator[Access]:
    source, target = operation.operands[0].type, operation.result.type
    size = element_bytes(source)
    yield from _exchange(plan_conversion(layout_of(source), layout_of(target), size_bytes=size))


def _flip(operation: Operation) -> Iterator[Access]:
    type_, axis = operation.result.type, operation.attributes["axis"]
    yield from _exchange(plan_flip(layout_of(type_), axis, size_bytes=element_bytes(type_)))


def _exchange(plan: Conversion) -> Iterator[Access]:
    if isinstance(plan, SharedExchange):
        yield _vectors("write", plan.write, plan.size_bytes)
        yield _vectors("read", plan.read, plan.size_bytes)


def _ordered(operation: Operation) -> Iterator[Access]:
    layout, axis = layout_of(operation.operands[0].type), operation.attributes["axis"]
    sizes = tuple(element_bytes(operand.type) for operand in operation.operands)
    if operation.name == "scan":
        is_reversed: bool = operation.attributes["reverse"]
        plan = plan_scan(layout, axis, sizes=sizes, is_reversed=is_reversed)
    else:
        plan = plan_ordered_reduction(layout, axis, sizes=sizes)
    for exchange in plan.exchange.plans if plan.exchange else ():
        yield from _exchange(exchange)


def _reduction(operation: Operation) -> Iterator[Access]:
    source, axis = operation.operands[0].type, operation.attributes["axis"]
    size = element_bytes(source)
    across = plan_reduce(layout_of(source), axis, size_bytes=size).across_warps
    if across is not None:
        yield _vectors("write", across.exchange.write, size)
        yield _vectors("read", across.exchange.read, size)


def _operands(operation: Operation, num_warps: int) -> Iterator[Access]:
    a, b, _ = (operand.type for operand in operation.operands)
    if isinstance(a, TileType) and isinstance(b, TileType):
        return
    (m, k), (_, n) = shape_of(a), shape_of(b)
    layouts = dot_layouts(
        ATOMS[operation.attributes["atom"]],
        shape=(m, n, k),
        warps=operation.attributes["warps"],
        num_warps=num_warps,
    )
    for name, type_, layout in (("a", a, layouts.a), ("b", b, layouts.b)):
        if isinstance(type_, SharedType):
            yield _read(name, type_, layout)


def _read(name: str, type_: object, layout: LinearLayout) -> Access:
    assert isinstance(type_, SharedType), "the verifier checks types"
    size = type_.dtype.size_bytes
    plan = plan_read(layout, type_.layout, size)
    if not isinstance(plan, MatrixLoad):
        return _vectors(name, plan, size)
    # Each matrix is one phase: eight rows of 16 bytes.
    ways = plan.conflict_ways(size_bytes=size)
    return Access(name, len(plan.groups), plan.matrices, ways)


def _vectors(name: str, plan: SharedAccess, size: int) -> Access:
    return _access(name, len(plan.groups), plan.vector, plan.lane, size)


def _access(name: str, instructions: int, vector: int, lanes: Sequence[int], size: int) -> Access:
    """Return an access of `vector` elements of `size` bytes by lanes at linear offsets."""
    phases = 1 << (banks.LANE_BITS - banks.phase_lane_bits(vector * size))
    ways = banks.conflict_ways(lanes, access_bytes=vector * size, size_bytes=size)
    return Access(name, instructions, phases, ways)
