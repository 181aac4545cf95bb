"""Scheduled tile IR + NumPy arrays -> the same arrays, as the warps of a device would leave them:
the schedule checker.

Where `interpret.tile` computes whole tiles, here every operation runs warp by warp on the elements
that the layouts give each lane. Warps are coroutines that run to the next barrier in an order drawn
anew each time; asynchronous copies arrive when a random number says so. What would be right by luck
only is an error: a race in shared memory, copies that no wait covers, warps that part, replicas
that differ (`interpret.warp`). Where warps have roles, each CTA of a persistent kernel runs with
its producer, and bulk copies arrive as late and in such an order as mbarriers allow. So one run
proves the schedule for every order of the accesses that it makes, and several seeds are for what
the values themselves decide.
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
    bulk,
    combine,
    dot,
    inline_asm,
    lookup,
    moves,
    roles,
)
from tilewright_compiler.interpret.warp.agreement import Agreement
from tilewright_compiler.interpret.warp.bulk import BulkCopies
from tilewright_compiler.interpret.warp.clocks import Clocks
from tilewright_compiler.interpret.warp.copies import Copies
from tilewright_compiler.interpret.warp.global_memory import GlobalTraces
from tilewright_compiler.interpret.warp.shared_memory import SharedMemory
from tilewright_compiler.interpret.warp.state import (
    Held,
    Iteration,
    Meeting,
    Program,
    Stop,
    Waiting,
    Walk,
    Warp,
)
from tilewright_compiler.interpret.warp.vectors import plan_accesses
from tilewright_compiler.ir.core import Block, Module, Operation
from tilewright_compiler.ir.types import MbarrierType, SharedType, TileType, element_bytes

_COMPUTE = {
    **moves.COMPUTE,
    **accesses.COMPUTE,
    **dot.COMPUTE,
    **inline_asm.COMPUTE,
    **bulk.COMPUTE,
    **roles.COMPUTE,
}
_EXCHANGES = {
    **moves.EXCHANGES,
    **lookup.EXCHANGES,
    **accesses.EXCHANGES,
    **atomics.EXCHANGES,
    **roles.EXCHANGES,
}
_MOST_CTAS = 3
_ARRIVES_EARLY = 0.2


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
    in_one_layout = frozenset(filter(_is_in_one_layout, module.kernel.body.walk()))
    traces = GlobalTraces(memory, granule=_global_granule(module))
    random = Random(seed)
    # A CTA of a persistent kernel runs several programs: a few CTAs are enough to see that.
    count = prod(grid)
    if _is_persistent(module):
        count = random.randint(1, min(count, _MOST_CTAS)) if count else 0
    numbers = list(range(count))
    random.shuffle(numbers)
    with np.errstate(all="ignore"):
        for number in numbers:
            batch = Batch(module.kernel.name, grid, np.array([number]), memory)
            _run_program(module, batch, values, vectors, in_one_layout, traces, random, count)


def _run_program(
    module: Module,
    batch: Batch,
    values: tuple[Array, ...],
    vectors: Mapping[Operation, AccessPlan],
    in_one_layout: frozenset[Operation],
    traces: GlobalTraces,
    random: Random,
    num_ctas: int,
) -> None:
    count = module.signature.num_warps
    where = f"kernel {batch.kernel!r}, program {batch.program_at(0)}"
    operations = list(module.kernel.body.walk())
    has_roles = any(operation.name == "roles" for operation in operations)
    clocks = Clocks(num_warps=count + has_roles, num_mbarriers=_count_mbarriers(operations))
    shared = SharedMemory(
        size_bytes=module.attributes.get("shared_bytes", 0),
        granule=_granule(module.kernel.body),
        where=where,
        clocks=clocks if has_roles else None,
        num_warps=count + has_roles,
    )
    traces.begin(where)
    program = Program(
        batch,
        count,
        vectors,
        shared,
        traces,
        Agreement(count),
        clocks,
        BulkCopies(random),
        in_one_layout,
        int(batch.programs[0]),
        num_ctas,
    )
    warps = [Warp(index, program, Copies(shared, random)) for index in range(count + has_roles)]
    walks = {warp: _walk(warp, module.kernel.body, values) for warp in warps}
    _take_turns(program, walks, random)
    for warp in warps:
        if warp.copies.under_way:
            (copy, *_) = warp.copies.under_way
            raise warp.error(copy.access.operation, "the kernel ends while the copy is under way")
    if program.bulk.under_way:
        (access, *_) = program.bulk.under_way
        raise warps[0].error(access.operation, "the kernel ends while the copy is under way")


def _take_turns(program: Program, walks: Mapping[Warp, Walk], random: Random) -> None:
    """Run warps to their ends, in any order that barriers and mbarriers allow."""
    stops: dict[Warp, Stop | None] = {}
    ready = list(walks)
    while True:
        if ready:
            if random.random() < _ARRIVES_EARLY:
                program.bulk.let_one_arrive()
            warp = ready.pop(random.randrange(len(ready)))
            program.shared.actor = warp.index
            stops[warp] = next(walks[warp], None)
        ready += [warp for warp, stop in stops.items() if _may_go_on(stop) and warp not in ready]
        if ready:
            continue
        ready = _met(program, stops)
        if not ready and not program.bulk.let_one_arrive():
            break
    waiting = [(warp, stop) for warp, stop in stops.items() if stop is not None]
    if waiting:
        _check_meetings(program, stops)
        lines = [f"{program.where}: nobody can go on"]
        for warp, stop in sorted(waiting, key=lambda pair: pair[0].index):
            lines.append(f"  {_warp_text(warp)} waits at {_stop_text(stop)}")
        raise ScheduleError("\n".join(lines))


def _may_go_on(stop: Stop | None) -> bool:
    return isinstance(stop, Waiting) and stop.mbarrier.is_complete(stop.parity)


def _warp_text(warp: Warp) -> str:
    return "the producer" if warp.is_producer else f"warp {warp.index}"


def _met(program: Program, stops: Mapping[Warp, Stop | None]) -> list[Warp]:
    """Let warps that all wait at one barrier pass it; return them."""
    for warp, stop in stops.items():
        if not isinstance(stop, Meeting):
            continue
        party = _party(program, stops, warp, stop)
        if any(stops[member] != stop for member in party):
            continue
        numbers = [member.index for member in party]
        program.shared.meet(numbers)
        program.clocks.meet(numbers)
        if stop.groups == 1:
            program.traces.meet()
        return party
    return []


def _party(
    program: Program, stops: Mapping[Warp, Stop | None], warp: Warp, meeting: Meeting
) -> list[Warp]:
    """Return the warps that a barrier lets meet."""
    size = program.num_warps // meeting.groups
    others = [other for other in stops if not other.is_producer]
    if meeting.groups > 1:
        others = [other for other in others if other.index // size == warp.index // size]
    return sorted(others, key=lambda other: other.index)


def _check_meetings(program: Program, stops: Mapping[Warp, Stop | None]) -> None:
    """Raise ScheduleError if warps wait at a barrier that others of them do not reach."""
    for warp, stop in stops.items():
        if isinstance(stop, Meeting):
            party = _party(program, stops, warp, stop)
            if not any(isinstance(stops[member], Waiting) for member in party):
                _check_meeting(program, [(member, stops[member]) for member in party])


def _check_meeting(program: Program, stops: list[tuple[Warp, Stop | None]]) -> None:
    """Demand that all warps wait at one barrier; raises ScheduleError."""
    _, first = stops[0]
    for warp, meeting in stops[1:]:
        if meeting == first:
            continue
        lines = [f"{program.where}: warps part at a barrier"]
        for index, stop in ((0, first), (warp.index, meeting)):
            where = "has ended" if stop is None else f"waits at {_stop_text(stop)}"
            lines.append(f"  warp {index} {where}")
        raise ScheduleError("\n".join(lines))


def _stop_text(stop: Stop) -> str:
    location = stop.operation.location
    where = "" if location is None else f" at {location.render()}"
    what = f"{stop.operation.name} (turn {stop.turn})"
    if isinstance(stop, Waiting):
        mbarrier = stop.mbarrier
        what += f" for parity {stop.parity} of {mbarrier.name}, which is in phase {mbarrier.phase}"
    return what + where


def _count_mbarriers(operations: list[Operation]) -> int:
    types = [result.type for operation in operations for result in operation.results]
    return sum(type_.slots or 0 for type_ in types if isinstance(type_, MbarrierType))


def _is_persistent(module: Module) -> bool:
    return any(operation.name == "num_ctas" for operation in module.kernel.body.walk())


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
        if isinstance(value.type, SharedType)
        or (isinstance(value.type, TileType) and "shared_offset" in operation.attributes)
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
        elif name in dot.WAITS:
            warp.held.update(zip(operation.results, dot.WAITS[name](warp, operation), strict=True))
        elif name in _CONTROL:
            results = yield from _CONTROL[name](warp, operation)
            warp.held.update(zip(operation.results, results, strict=True))
        else:
            held = _elementwise(warp, operation)
            if held is not None:
                warp.held.update(dict.fromkeys(operation.results, held))
    return tuple([warp.held[value] for value in block.terminator.operands])


def _is_in_one_layout(operation: Operation) -> bool:
    values = (*operation.operands, *operation.results)
    layouts = {value.type.layout for value in values if isinstance(value.type, TileType)}
    return len(layouts) <= 1 and None not in layouts


def _elementwise(warp: Warp, operation: Operation) -> Array | None:
    """Return the result of an operation on equal places; None of one that only checks."""
    compute = ELEMENTWISE.get(operation.name)
    if compute is None:
        msg = f"operation {operation.name!r} has no implementation, so the checker cannot run it"
        raise InternalCompilerError(msg)
    if operation not in warp.program.in_one_layout:
        raise warp.error(operation, "its tiles do not have one layout")
    operands = tuple([warp.array(value) for value in operation.operands])
    result = compute(operation, operands, warp.program.batch)
    assert (result is None) == (not operation.results), "what only checks has no result"
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


def _roles(warp: Warp, operation: Operation) -> Walk:
    producer, consumer = operation.regions
    warp.is_producer = warp.index == warp.program.num_warps
    return (yield from _walk(warp, producer if warp.is_producer else consumer, ()))


_CONTROL = {"for": _for, "while": _while, "if": _if, "roles": _roles, **combine.CONTROL}

# Every operation that scheduled IR may hold: calls are inlined before.
OPERATIONS = frozenset({*_COMPUTE, *_EXCHANGES, *_CONTROL, *dot.WAITS, *ELEMENTWISE})
