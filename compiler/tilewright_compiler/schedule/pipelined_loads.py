"""A loop -> the loads of it that run ahead, each with its ring of slots in shared memory.

A tile load runs ahead if its result reaches a dot of the same iteration by elementwise operations
and moves, or if the loop asks for stages itself. Its address must be an address slice, and the loop
may write no global memory: nothing is known of what aliases. A load with the attribute `ahead` runs
ahead in loops that write too, because its author says that they write something else; if it cannot,
that is an error.

A copy is asynchronous where every thread's vectors, as emission plans them, are of 4, 8 or 16 bytes
with one mask each, and what the mask leaves out is zero. Anything else goes through registers: it
is loaded at the same early place and stored to its slot at the end of the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from tilewright.errors import KernelValueError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_cost import longest_vector
from tilewright_compiler.analysis.access_plan import AccessPlan, plan_access
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.effects import is_pure, may_wait, may_write
from tilewright_compiler.ir.types import SharedType, TileType, element_dtype
from tilewright_compiler.layout.access import axis_units, vector_width
from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.swizzle import SharedLayout, swizzled
from tilewright_compiler.schedule.address_slice import AddressSlice, address_slice

_COPY_BYTES = (4, 8, 16)  # PTX ISA, cp.async: cp-size

AxisFacts = Mapping[Value, AxisInfo]

# Their results are not elements of what they were given.
_MIXING = ("dot", "reduce", "gather", "histogram")


@dataclass(frozen=True, slots=True)
class PipelinedLoad:
    """A load that runs ahead: its ring, and whether it copies asynchronously."""

    operation: Operation
    ring: SharedType
    is_async: bool


@dataclass(frozen=True, slots=True)
class PipelinedLoop:
    """A `for` loop whose `loads` run `stages` - 1 iterations ahead, and their common slice."""

    operation: Operation
    stages: int
    loads: tuple[PipelinedLoad, ...]
    slice: AddressSlice

    @property
    def has_async(self) -> bool:
        """Whether any load copies asynchronously, so that the loop has tokens."""
        return any(load.is_async for load in self.loads)


def plan_loop(
    loop: Operation,
    *,
    stages: int,
    facts: AxisFacts,
    constants: Mapping[Value, object],
    synchronous: Collection[Operation],
) -> PipelinedLoop | None:
    """Return which loads of a `for` loop run ahead and how; None if none do.

    `constants` are the values that are one constant, or a tile of it; the loads in `synchronous`
    go through registers whatever the facts say.
    """
    if stages < 2 or may_wait(loop):
        return None
    chosen = _candidates(loop)
    if not chosen:
        return None
    common = address_slice(loop, [value for load in chosen for value in load.operands])
    assert common is not None, "each load has a slice"
    loads = []
    for load in chosen:
        pointer, *rest = load.operands
        zero_filled = len(rest) < 2 or _is_zero(constants.get(rest[1]))
        ring = _ring(load, stages, facts[pointer])
        is_async = (
            load not in synchronous
            and zero_filled
            and copies_asynchronously(pointer, rest[0] if rest else None, ring.layout, facts)
        )
        loads.append(PipelinedLoad(load, ring, is_async))
    return PipelinedLoop(loop, stages, tuple(loads), common)


def copies_asynchronously(
    pointer: Value, mask: Value | None, layout: SharedLayout, facts: AxisFacts
) -> bool:
    """Whether emission can copy from a tile of pointers by cp.async into a tile of `layout`."""
    dtype = element_dtype(pointer.type)
    if dtype.bits < 8:
        return False
    plan = plan_access(
        _layout_of(pointer),
        facts[pointer],
        None if mask is None else facts[mask],
        size_bytes=dtype.size_bytes,
    )
    fits = plan.vector * dtype.size_bytes in _COPY_BYTES and plan.mask_is_uniform
    return fits and _is_contiguous(plan, layout)


def _is_contiguous(plan: AccessPlan, layout: SharedLayout) -> bool:
    """Whether the elements of each vector lie side by side in shared memory, and aligned."""
    units = axis_units(layout.shape, plan.axis)[: log2(plan.vector)]
    if any(layout.offset(unit) != 1 << bit for bit, unit in enumerate(units)):
        return False
    others = (1 << bit for bit in range(log2(layout.size)))
    return all(layout.offset(unit) % plan.vector == 0 for unit in others if unit not in units)


def _candidates(loop: Operation) -> list[Operation]:
    """Return the loads that are wanted ahead and can run ahead, in program order."""
    (body,) = loop.regions
    is_writing = may_write(loop)
    is_explicit = "num_stages" in loop.attributes and not is_writing
    users = _users(body)
    slices: dict[Operation, AddressSlice] = {}
    for operation in body.operations:
        if operation.name != "load" or not isinstance(operation.result.type, TileType):
            continue
        is_asked = is_explicit or must_run_ahead(operation)
        if is_asked or (not is_writing and _reaches_dot(operation, users)):
            found = address_slice(loop, operation.operands)
            if found is not None:
                slices[operation] = found
    # A load that only others need for their addresses runs ahead within their slices.
    inside = {operation for found in slices.values() for operation in found.operations}
    return [
        load
        for load in slices
        if load not in inside or must_run_ahead(load) or _reaches_dot(load, users)
    ]


def must_run_ahead(operation: Operation) -> bool:
    """Whether an operation is a load that its author wants ahead."""
    return operation.name == "load" and bool(operation.attributes.get("ahead"))


def require_ahead(body: Block, plans: Mapping[Operation, PipelinedLoop | None]) -> None:
    """Raise KernelValueError for a load that must run ahead and does not.

    `plans` are those of the loops of more than one stage; in others it need not.
    """
    for operation in body.operations:
        if must_run_ahead(operation):
            raise _refusal(operation, "it stands in no run-time `for`")
        for region in operation.regions:
            _require_inside(operation, region, plans)


def _require_inside(
    parent: Operation, body: Block, plans: Mapping[Operation, PipelinedLoop | None]
) -> None:
    plan = plans.get(parent)
    done = () if plan is None else [load.operation for load in plan.loads]
    for operation in body.operations:
        if must_run_ahead(operation):
            if parent.name != "for":
                raise _refusal(operation, f"it stands in a run-time `{parent.name}`")
            if parent in plans and operation not in done:
                raise _refusal(operation, _reason(parent, operation))
        for region in operation.regions:
            _require_inside(operation, region, plans)


def _reason(loop: Operation, load: Operation) -> str:
    if may_wait(loop):
        return "its loop may wait for what another program writes"
    assert address_slice(loop, load.operands) is None
    return "its address or mask depends on what its loop computes by tl.dot or in memory"


def _refusal(load: Operation, reason: str) -> KernelValueError:
    msg = f"tl.async_copy cannot run ahead: {reason}; use tl.load"
    return KernelValueError(msg, () if load.location is None else (load.location,))


def _users(body: Block) -> dict[Value, list[Operation]]:
    users: dict[Value, list[Operation]] = {}
    for operation in body.walk():
        for operand in operation.operands:
            users.setdefault(operand, []).append(operation)
    return users


def _reaches_dot(load: Operation, users: Mapping[Value, list[Operation]]) -> bool:
    return any(user.name == "dot" for user in _downstream(load, users))


def _downstream(load: Operation, users: Mapping[Value, list[Operation]]) -> Iterator[Operation]:
    """Yield the users of a load's result, and theirs, as far as elements stay elements."""
    pending, seen = [load.result], {load.result}
    while pending:
        for user in users.get(pending.pop(), ()):
            yield user
            if is_pure(user) and user.name not in _MIXING:
                new = [result for result in user.results if result not in seen]
                seen.update(new)
                pending += new


def _ring(load: Operation, stages: int, pointer: AxisInfo) -> SharedType:
    """Return the ring of a load's tiles: fastest along the axis that threads read vectors of."""
    type_ = load.result.type
    assert isinstance(type_, TileType)
    layout, dtype = _layout_of(load.result), element_dtype(type_)
    axes = range(len(type_.shape))

    def preference(axis: int) -> tuple[int, ...]:
        vector = vector_width(layout, axis, limit=longest_vector(pointer, axis, dtype.size_bytes))
        run = vector_width(layout, axis, limit=pointer.contiguity[axis])
        return vector, run, pointer.contiguity[axis], axis

    fastest = max(axes, key=preference)
    order = (fastest, *(axis for axis in reversed(axes) if axis != fastest))
    shared = swizzled(type_.shape, order, size_bytes=dtype.size_bytes)
    return SharedType(type_.shape, dtype, shared, stages)


def _layout_of(value: Value) -> LinearLayout:
    assert isinstance(value.type, TileType)
    assert value.type.layout is not None, "only tiles with layouts are scheduled"
    return value.type.layout


def _is_zero(constant: object) -> bool:
    """Whether a constant has no bit set; -0.0 has its sign."""
    if isinstance(constant, float):
        return constant == 0 and math.copysign(1.0, constant) > 0
    return constant is not None and not constant
