"""How the register file is divided among the roles of a kernel, and what accumulators take of it.

At entry all threads have the same part, in steps of the hardware's; then the producer's warpgroup
gives up most of its own, and the consumers share that (PTX ISA, setmaxnreg).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import TileType, Type, element_bytes, shape_of
from tilewright_compiler.layout.linear import NUM_LANES
from tilewright_compiler.schedule.unsuited import Unsuited

PRODUCER_WARPS = 4
PRODUCER_REGISTERS = 40
_MOST_REGISTERS = 240
_REGISTER_FILE = 65536
_REGISTER_STEP = 8
_MOST_WARPS = 32  # of a CTA
_OTHER_REGISTERS = 40  # of a consumer's thread, besides accumulators


def _most_at_once(block: Block, sizes: Mapping[Operation, int]) -> int:
    """Return the registers of the dots of a block that are held at once; `sizes` are theirs."""
    position = {operation: index for index, operation in enumerate(block.operations)}
    # What a loop carries is there from the start, scaled by an iteration perhaps.
    definitions = {result: operation for operation in position for result in operation.results}
    starts = {
        dot: 0 if _is_carried(dot.operands[2], block, definitions) else position[dot]
        for dot in sizes
    }
    ends = {dot: _last_use(dot, block) for dot in sizes}
    return max(
        (
            sum(size for dot, size in sizes.items() if starts[dot] <= now <= ends[dot])
            for now in map(position.__getitem__, sizes)
        ),
        default=0,
    )


def _is_carried(value: Value, block: Block, definitions: Mapping[Value, Operation]) -> bool:
    """Whether a value is computed element by element from one that a block was given."""
    if value in block.arguments:
        return True
    made = definitions.get(value)
    return made is not None and any(
        _is_carried(operand, block, definitions)
        for operand in made.operands
        if _is_as_large(operand.type, value.type)
    )


def _last_use(dot: Operation, block: Block) -> int:
    """Return where in a block the registers of a dot's result are read last."""
    held = {dot.result}
    last = 0
    for index, operation in enumerate(block.operations):
        if held.isdisjoint(value for inner in operation.walk() for value in inner.operands):
            continue
        last = index
        if operation.name not in ("dot", "transpose"):
            held.update(r for r in operation.results if _is_as_large(r.type, dot.result.type))
    return last


def _is_as_large(type_: Type, accumulator: Type) -> bool:
    """Whether a value takes the registers of an accumulator that it is computed from."""
    is_tile = isinstance(type_, TileType) and shape_of(type_) == shape_of(accumulator)
    return is_tile and element_bytes(type_) >= element_bytes(accumulator)


def consumer_registers(num_warps: int) -> int:
    """Return what each thread of the consumers may have."""
    groups = num_warps // PRODUCER_WARPS
    at_entry = _REGISTER_FILE // (NUM_LANES * (num_warps + PRODUCER_WARPS))
    at_entry -= at_entry % _REGISTER_STEP
    share = (at_entry * (groups + 1) - PRODUCER_REGISTERS) // groups
    return min(share - share % _REGISTER_STEP, _MOST_REGISTERS)


def check_accumulators(module: Module, dots: Mapping[Operation, int]) -> int:
    """Demand that there is room for a producer, and for the accumulators that meet in one loop.

    Returns how many registers of each thread are left where they are fewest.

    `dots` says how many of its size each dot needs: one it keeps, further ones only until its
    result has been used. What a dot makes for its iteration alone it keeps until the last use of
    what is computed from it element by element, in the same registers. Raises Unsuited. The kernel
    has neither layouts nor calls.
    """
    if module.signature.num_warps + PRODUCER_WARPS > _MOST_WARPS:
        msg = f"{module.signature.num_warps} warps leave no room for a producer"
        raise Unsuited(msg)
    threads = NUM_LANES * module.signature.num_warps
    available = consumer_registers(module.signature.num_warps)

    def needed(operation: Operation) -> tuple[int, int]:
        """Return the registers of what meets in an operation, and the most of one further."""
        if operation in dots:
            size = prod(shape_of(operation.result.type)) // threads
            return size, (dots[operation] - 1) * size
        # Loops that follow each other do not meet.
        kept, loops, more = 0, 0, 0
        for region in operation.regions:
            sizes = {}
            for inner in region.operations:
                size, further = needed(inner)
                more = max(more, further)
                if inner.regions:
                    loops = max(loops, size)
                elif size:
                    sizes[inner] = size
            kept += _most_at_once(region, sizes)
        return kept + loops, more

    left = available - _OTHER_REGISTERS
    for operation in module.kernel.body.operations:
        registers = sum(needed(operation))
        left = min(left, available - _OTHER_REGISTERS - registers)
        if left < 0:
            first = next(inner for inner in operation.walk() if inner in dots)
            msg = (
                f"accumulators take {registers} registers of each thread, "
                f"of {available} that it has"
            )
            raise Unsuited(msg, first)
    return left
