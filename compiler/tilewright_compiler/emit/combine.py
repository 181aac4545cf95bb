"""Reductions and scans by a region: carries out the plans of `layout.ordered`.

The region is written once for each `Combine` of the plan, on the names of that step. Within it
nothing contracts, so that all threads that combine equal elements get equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tilewright.errors import InternalCompilerError
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.lanes import shuffle
from tilewright_compiler.emit.types import element_text
from tilewright_compiler.ir.core import Block, Operation
from tilewright_compiler.ir.types import ElementType, TileType, element_bytes, element_type
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.ordered import (
    Choose,
    Combine,
    Exchange,
    OrderedPlan,
    Shuffle,
    ThreadTest,
    plan_ordered_reduction,
    plan_scan,
)

EmitBlock = Callable[[KernelEmitter, Block], None]
# One name for each operand.
Names = tuple[str, ...]


def emitters(emit_block: EmitBlock) -> Mapping[str, Emit]:
    """Return the emitters of combining operations; `emit_block` emits those of a region."""

    def emit_reduce_with(emitter: KernelEmitter, operation: Operation) -> None:
        layout, axis, sizes = _form(operation)
        plan = plan_ordered_reduction(layout, axis, sizes=sizes)
        _carry_out(emitter, operation, plan, emit_block)

    def emit_scan(emitter: KernelEmitter, operation: Operation) -> None:
        layout, axis, sizes = _form(operation)
        is_reversed: bool = operation.attributes["reverse"]
        plan = plan_scan(layout, axis, sizes=sizes, is_reversed=is_reversed)
        _carry_out(emitter, operation, plan, emit_block)

    return MappingProxyType({"reduce_with": emit_reduce_with, "scan": emit_scan})


def _form(operation: Operation) -> tuple[LinearLayout, int, tuple[int, ...]]:
    """Return what plans are made for: layout, axis, and bytes of an element of each operand."""
    sizes = tuple(element_bytes(operand.type) for operand in operation.operands)
    return layout_of(operation.operands[0].type), operation.attributes["axis"], sizes


def _carry_out(
    emitter: KernelEmitter, operation: Operation, plan: OrderedPlan, emit_block: EmitBlock
) -> None:
    elements = [element_type(operand.type) for operand in operation.operands]
    fragments = (emitter.fragment(operand) for operand in operation.operands)
    combine = _Region(emitter, operation, emit_block)
    values: list[Names] = list(zip(*fragments, strict=True))
    for step in plan.steps:
        match step:
            case Combine():
                values.append(combine(values[step.left], values[step.right]))
            case Shuffle():
                values.append(_shuffled(emitter, values[step.value], elements, step.lane_xor))
            case Choose():
                chosen = (values[step.value], values[step.otherwise])
                values.append(_chosen(emitter, step.test, chosen, elements))
            case Exchange():
                sources = [values[source] for source in step.values]
                values += _exchanged(emitter, operation, plan, step, sources, elements)
    for index, result in enumerate(operation.results):
        if isinstance(result.type, TileType) and result.type.layout != plan.layout:
            msg = f"{operation.name} gives {plan.layout}, the schedule wants {result.type.layout}"
            raise InternalCompilerError(msg)
        emitter.define(result, [values[number][index] for number in plan.results])


class _Region:
    """The operation's region as a function of names; equal arguments are computed once."""

    def __init__(self, emitter: KernelEmitter, operation: Operation, emit_block: EmitBlock) -> None:
        (region,) = operation.regions
        self._emitter = emitter
        self._emit_block = emit_block
        self._arguments = region.arguments
        self._results = region.terminator.operands
        self._body = Block(region.arguments, region.operations[:-1])
        self._known: dict[tuple[Names, Names], Names] = {}

    def __call__(self, left: Names, right: Names) -> Names:
        if (left, right) not in self._known:
            for argument, name in zip(self._arguments, (*left, *right), strict=True):
                self._emitter.define(argument, [name])
            contracts, self._emitter.contracts = self._emitter.contracts, False
            self._emit_block(self._emitter, self._body)
            self._emitter.contracts = contracts
            self._known[left, right] = tuple(map(self._emitter.scalar, self._results))
        return self._known[left, right]


def _shuffled(
    emitter: KernelEmitter, names: Names, elements: Sequence[ElementType], lane_xor: int
) -> Names:
    distance = emitter.text.i32(lane_xor)
    return tuple(
        shuffle(emitter.text, name, element, mode="bfly", lane=distance)
        for name, element in zip(names, elements, strict=True)
    )


def _chosen(
    emitter: KernelEmitter,
    test: ThreadTest,
    chosen: tuple[Names, Names],
    elements: Sequence[ElementType],
) -> Names:
    condition = emitter.threads.any_bit(lane=test.lanes, warp=test.warps, is_clear=test.is_clear)
    return tuple(
        emitter.text.value(
            f"llvm.select {condition}, {value}, {otherwise} : i1, {element_text(element)}"
        )
        for value, otherwise, element in zip(*chosen, elements, strict=True)
    )


def _exchanged(
    emitter: KernelEmitter,
    operation: Operation,
    plan: OrderedPlan,
    step: Exchange,
    sources: Sequence[Names],
    elements: Sequence[ElementType],
) -> list[Names]:
    start: int = operation.attributes["shared_offset"]
    parts = list(zip(step.plans, elements, plan.places, strict=False))
    for (exchange, element, place), fragment in zip(parts, zip(*sources, strict=True), strict=True):
        emitter.shared.write(exchange, fragment, element, offset=start + place)
    emitter.shared.barrier()
    read = [
        emitter.shared.read(exchange, element, offset=start + place)
        for exchange, element, place in parts
    ]
    return list(zip(*read, strict=True))
