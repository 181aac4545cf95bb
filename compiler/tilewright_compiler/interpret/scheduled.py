"""Scheduled tile IR + NumPy arrays -> the same arrays, as the warps of a device would leave them:
the schedule checker.

Where `interpret.tile` computes whole tiles, here every operation runs warp by warp on the elements
that the layouts give each lane. Warps are coroutines that run to the next barrier in an order drawn
anew each time; asynchronous copies arrive when a random number says so. What would be right by luck
only is an error: a race in shared memory, copies that no wait covers, warps that part, replicas
that differ (`interpret.warp`). So one run proves the schedule for every order of the accesses that
it makes, and several seeds are for what the values themselves decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from random import Random

import numpy as np

from tilewright.abi.signature import Pointer
from tilewright.errors import InternalCompilerError, InterpreterError, ScheduleError
from tilewright_compiler.analysis.access_plan import AccessPlan
from tilewright_compiler.interpret import tile
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops import COMPUTE as ELEMENTWISE
from tilewright_compiler.interpret.plan import may_wait
from tilewright_compiler.interpret.warp import (
    accesses,
    atomics,
    combine,
    dot,
    inline_asm,
    lookup,
    moves,
)
from tilewright_compiler.interpret.warp.agreement import Agreement
from tilewright_compiler.interpret.warp.copies import Copies
from tilewright_compiler.interpret.warp.global_memory import GlobalTraces
from tilewright_compiler.interpret.warp.shared_memory import SharedMemory
from tilewright_compiler.interpret.warp.state import (
    Held,
    Iteration,
    Meeting,
    Program,
    Walk,
    Warp,
)
from tilewright_compiler.interpret.warp.vectors import plan_accesses
from tilewright_compiler.ir.core import Block, Module, Operation
from tilewright_compiler.ir.types import SharedType, TileType, element_bytes

_COMPUTE = {**moves.COMPUTE, **accesses.COMPUTE, **dot.COMPUTE, **inline_asm.COMPUTE}
_EXCHANGES = {
    **moves.EXCHANGES,
    **lookup.EXCHANGES,
    **accesses.EXCHANGES,
    **atomics.EXCHANGES,
}


def run(
    module: Module,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, tile.Argument],
    seed: int = 0,
) -> None:
    """Run a scheduled kernel over a grid, writing its array arguments in place.

    Programs run one after the other. Raises ScheduleError for what is wrong with the schedule, and
    what `interpret.tile.run` raises.
    """
    memory, values = tile.prepare(module, grid=grid, arguments=arguments)
    if may_wait(module, memory):
        msg = f"kernel {module.kernel.name!r}: the checker runs no programs that wait for others"
        raise InterpreterError(msg)
    vectors = plan_accesses(module)
    traces = GlobalTraces(memory, granule=_global_granule(module))
    numbers = list(range(prod(grid)))
    random = Random(seed)
    random.shuffle(numbers)
    with np.errstate(all="ignore"):
        for number in numbers:
            batch = Batch(module.kernel.name, grid, np.array([number]), memory)
            _run_program(module, batch, values, vectors, traces, random)


def _run_program(
    module: Module,
    batch: Batch,
    values: tuple[Array, ...],
    vectors: Mapping[Operation, AccessPlan],
    traces: GlobalTraces,
    random: Random,
) -> None:
    count = module.signature.num_warps
    where = f"kernel {batch.kernel!r}, program {batch.program_at(0)}"
    shared = SharedMemory(
        size_bytes=module.attributes.get("shared_bytes", 0),
        granule=_granule(module.kernel.body),
        where=where,
    )
    traces.begin(where)
    program = Program(batch, count, vectors, shared, traces, Agreement(count))
    warps = [Warp(index, program, Copies(shared, random)) for index in range(count)]
    walks = [(warp, _walk(warp, module.kernel.body, values)) for warp in warps]
    while True:
        random.shuffle(walks)
        stops = [(warp, next(walk, None)) for warp, walk in walks]
        if all(meeting is None for _, meeting in stops):
            break
        _check_meeting(program, stops)
        shared.meet()
        traces.meet()
    for warp in warps:
        if warp.copies.under_way:
            (copy, *_) = warp.copies.under_way
            raise warp.error(copy.access.operation, "the kernel ends while the copy is under way")


def _check_meeting(program: Program, stops: list[tuple[Warp, Meeting | None]]) -> None:
    """Demand that all warps wait at one barrier; raises ScheduleError."""
    stops = sorted(stops, key=lambda stop: stop[0].index)
    _, first = stops[0]
    for warp, meeting in stops[1:]:
        if meeting == first:
            continue
        lines = [f"{program.where}: warps part at a barrier"]
        for index, stop in ((0, first), (warp.index, meeting)):
            where = "has ended" if stop is None else f"waits at {_meeting_text(stop)}"
            lines.append(f"  warp {index} {where}")
        raise ScheduleError("\n".join(lines))


def _meeting_text(meeting: Meeting) -> str:
    location = meeting.operation.location
    where = "" if location is None else f" at {location.render()}"
    return f"{meeting.operation.name} (turn {meeting.turn}){where}"


def _global_granule(module: Module) -> int:
    """Return the bytes of the smallest element that an argument points to."""
    pointers = (p.dtype.size_bytes for _, p in module.signature.runtime if isinstance(p, Pointer))
    return min(pointers, default=1)


def _granule(body: Block) -> int:
    """Return the bytes of the smallest element that a kernel has in shared memory."""
    sizes = [
        element_bytes(value.type)
        for operation in body.walk()
        for value in (*operation.operands, *operation.results)
        if isinstance(value.type, SharedType) or "shared_offset" in operation.attributes
    ]
    return min(sizes, default=1)


def _walk(warp: Warp, block: Block, arguments: tuple[Held, ...]) -> Walk:
    """Run a block and give the operands of its terminator."""
    warp.held.update(zip(block.arguments, arguments, strict=True))
    for operation in block.operations[:-1]:
        warp.begin(operation)
        name = operation.name
        if name in _COMPUTE:
            held = _COMPUTE[name](warp, operation)
            if operation.results and held is not None:
                warp.held[operation.result] = held
        elif name in _EXCHANGES:
            held = yield from _EXCHANGES[name](warp, operation)
            if operation.results and held is not None:
                warp.held[operation.result] = held
        elif name in _CONTROL:
            results = yield from _CONTROL[name](warp, operation)
            warp.held.update(zip(operation.results, results, strict=True))
        else:
            warp.held[operation.result] = _elementwise(warp, operation)
    return tuple([warp.held[value] for value in block.terminator.operands])


def _elementwise(warp: Warp, operation: Operation) -> Array:
    compute = ELEMENTWISE.get(operation.name)
    if compute is None:
        msg = f"operation {operation.name!r} has no implementation, so the checker cannot run it"
        raise InternalCompilerError(msg)
    values = (*operation.operands, operation.result)
    layouts = {value.type.layout for value in values if isinstance(value.type, TileType)}
    if len(layouts) > 1 or None in layouts:
        raise warp.error(operation, "its tiles do not have one layout")
    operands = tuple([warp.array(value) for value in operation.operands])
    result = compute(operation, operands, warp.program.batch)
    assert result is not None, "operations without results are no elementwise ones"
    return result


def _for(warp: Warp, operation: Operation) -> Walk:
    (body,) = operation.regions
    lower, upper, step = (warp.array(value) for value in operation.operands[:3])
    carried = tuple([warp.held[value] for value in operation.operands[3:]])
    start, stop, stride = int(lower[0]), int(upper[0]), int(step[0])
    if stride <= 0:
        msg = f"{warp.program.where}: a loop's step is {stride}, it must be positive"
        raise InterpreterError(msg)
    outer, entry = warp.loops, object()
    for number, _ in enumerate(range(start, stop, stride)):
        warp.loops = (*outer, Iteration(entry, number))
        carried = yield from _walk(warp, body, (lower, *carried))
        lower = lower + step
    warp.loops = outer
    return carried


def _while(warp: Warp, operation: Operation) -> Walk:
    before, after = operation.regions
    carried = tuple([warp.held[value] for value in operation.operands])
    while True:
        condition, *passed = yield from _walk(warp, before, carried)
        assert isinstance(condition, np.ndarray), "a condition is a scalar"
        if not condition[0]:
            return tuple(passed)
        carried = yield from _walk(warp, after, tuple(passed))


def _if(warp: Warp, operation: Operation) -> Walk:
    then, otherwise = operation.regions
    taken = then if warp.array(operation.operands[0])[0] else otherwise
    return (yield from _walk(warp, taken, ()))


_CONTROL = {"for": _for, "while": _while, "if": _if, **combine.CONTROL}

# Every operation that scheduled IR may hold: calls are inlined before.
OPERATIONS = frozenset({*_COMPUTE, *_EXCHANGES, *_CONTROL, *ELEMENTWISE})
