"""Scheduled tile IR -> the same with a place in shared memory for each tile and each exchange.

Tiles, rings and mbarriers live from where they stand to their last use, the wait for a dot that
reads them included, to the end of a loop that uses them, or of the roles of warps. An exchange
between threads needs its scratch only while it runs: it writes, lets all warps meet, and reads.
What does not live at once may share memory; who comes later then waits for a barrier
(`insert_barriers`).

Waiting is what exchanges that may follow each other directly can avoid: with different places, the
barrier inside the second already separates the first from the third. So they get different places
while memory is not scarce, and so do tiles that are stored and read like an exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.errors import KernelValueError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import MbarrierType, SharedType, shape_of
from tilewright_compiler.schedule.running_dots import is_asynchronous
from tilewright_compiler.schedule.scratch import scratch_bytes

MBARRIER_BYTES = 8
_ALLOCATIONS = ("alloc_shared", "alloc_mbarriers")
_SCRATCH_ALIGNMENT = 16
# Rows of a swizzled tile are permuted within the 128 bytes that the banks serve at once.
_TILE_ALIGNMENT = 128
# Keeping exchanges apart may cost up to this much memory, or this part of what is needed anyway,
# without costing occupancy.
_ROOMY_BYTES = 8 * 1024
_ROOMY_PART = 16

Span = tuple[int, int]


def allocate_shared(module: Module, *, limit_bytes: int = BASELINE_SHARED_BYTES) -> Module:
    """Set `shared_offset` on what needs shared memory, and `shared_bytes` on the module.

    Raises KernelValueError naming the operation and the excess if more than `limit_bytes` are
    needed at once.
    """
    walk = _Walk()
    walk.block(module.kernel.body)
    requests = walk.requests()
    apart: dict[Operation, set[Operation]] = {}
    _flow(module.kernel.body, frozenset(), walk, apart)
    needed = _place(requests, {})
    for request in requests:
        if needed[request.operation][1] > limit_bytes:
            raise _too_large(request, needed[request.operation], limit_bytes)
    peak = max((end for _, end in needed.values()), default=0)
    roomy = min(max(_ROOMY_BYTES, peak + peak // _ROOMY_PART), limit_bytes)
    spans = _place(requests, apart, roomy_bytes=max(roomy, peak))
    offsets = {operation: start for operation, (start, _) in spans.items()}
    result = _with_offsets(module, offsets)
    result.attributes["shared_bytes"] = max((end for _, end in spans.values()), default=0)
    return result


def find_overlap(module: Module) -> tuple[Operation, Operation] | None:
    """Return two operations that have places, live at once and share bytes, or None."""
    walk = _Walk()
    walk.block(module.kernel.body)
    seen: list[tuple[_Request, Span]] = []
    for request in walk.requests():
        start: int = request.operation.attributes["shared_offset"]
        for other, (low, high) in seen:
            if request.meets(other) and start < high and low < start + request.size:
                return request.operation, other.operation
        seen.append((request, (start, start + request.size)))
    return None


@dataclass(frozen=True, slots=True)
class _Request:
    """Memory that an operation needs while the walk is in `first .. last`."""

    operation: Operation
    size: int
    alignment: int
    first: int
    last: int

    def meets(self, other: _Request) -> bool:
        return self.first <= other.last and other.first <= self.last


class _Walk:
    """Numbers operations in program order, and notes what needs memory and until when.

    `sizes` are the bytes of allocations and exchanges; `singles` are the allocations that are no
    rings.
    """

    def __init__(self) -> None:
        self.sizes: dict[Operation, int] = {}
        self.singles: set[Operation] = set()
        self._first: dict[Operation, int] = {}
        self._last: dict[Operation, int] = {}
        self._now = 0
        # The allocation behind each shared value, and how many loops its place is in.
        self._allocations: dict[Value, Operation] = {}
        self._depths: dict[Operation, int] = {}
        # What dots that were started read until they are waited for.
        self._running: dict[Value, list[Operation]] = {}
        # What the loops being walked use of what was allocated before them.
        self._loops: list[set[Operation]] = []

    def requests(self) -> list[_Request]:
        """Return what needs memory in the order of placement: large tiles, then exchanges."""
        tiles, exchanges = [], []
        for operation, size in self.sizes.items():
            first, last = self._first[operation], self._last[operation]
            if operation.name == "alloc_shared":
                alignment: int = operation.attributes.get("alignment", _TILE_ALIGNMENT)
                tiles.append(_Request(operation, size, alignment, first, last))
            else:
                exchanges.append(_Request(operation, size, _SCRATCH_ALIGNMENT, first, last))
        tiles.sort(key=lambda request: -request.size)
        return [*tiles, *exchanges]

    def block(self, block: Block) -> None:
        for operation in block.operations:
            self._now += 1
            self._use(operation)
            size = _needed_bytes(operation)
            if size:
                self.sizes[operation] = size
                self._first[operation] = self._last[operation] = self._now
            if operation.name in _ALLOCATIONS:
                self._allocations[operation.result] = operation
                self._depths[operation] = len(self._loops)
            if operation.name == "alloc_shared" and _shared_type(operation).slots is None:
                self.singles.add(operation)
            # Roles run at once: what both use lives while either runs.
            is_loop = operation.name in ("for", "while", "roles")
            if is_loop:
                self._loops.append(set())
            for region in operation.regions:
                self.block(region)
            if is_loop:
                self._now += 1
                for allocation in self._loops.pop():
                    self._last[allocation] = self._now

    def _use(self, operation: Operation) -> None:
        if operation.name == "dot_wait":
            for dot in operation.operands:
                for read in self._running.pop(dot, ()):
                    self._touch(read)
            return
        for operand in operation.operands:
            allocation = self._allocations.get(operand)
            if allocation is None:
                continue
            self._touch(allocation)
            for result in operation.results:
                if isinstance(result.type, SharedType | MbarrierType):
                    self._allocations[result] = allocation
                elif is_asynchronous(operation):
                    self._running.setdefault(result, []).append(allocation)

    def _touch(self, allocation: Operation) -> None:
        self._last[allocation] = self._now
        for loop in self._loops[self._depths[allocation] :]:
            loop.add(allocation)


def _needed_bytes(operation: Operation) -> int:
    if operation.name == "alloc_shared":
        return _shared_type(operation).size_bytes
    if operation.name == "alloc_mbarriers":
        slots = _ring_slots(operation)
        return slots * MBARRIER_BYTES
    return scratch_bytes(operation)


def _ring_slots(alloc: Operation) -> int:
    type_ = alloc.result.type
    assert isinstance(type_, MbarrierType), "the verifier checks types"
    assert type_.slots is not None, "the verifier checks types"
    return type_.slots


def _shared_type(alloc: Operation) -> SharedType:
    type_ = alloc.result.type
    assert isinstance(type_, SharedType)
    return type_


def _flow(
    block: Block,
    last: frozenset[Operation],
    walk: _Walk,
    neighbours: dict[Operation, set[Operation]],
) -> frozenset[Operation]:
    """Record which exchange may directly follow which; return those that may be last.

    A tile that is no slot counts as one: it is stored once, and read behind a barrier.
    """
    for operation in block.operations:
        if operation.name == "if":
            branches = [_flow(region, last, walk, neighbours) for region in operation.regions]
            last = branches[0] | branches[1]
        elif operation.name in ("for", "while"):
            # Twice: the second time round sees what the end of the body leaves behind.
            for _ in range(2):
                for region in operation.regions:
                    last |= _flow(region, last, walk, neighbours)
        elif operation in walk.sizes and (
            operation.name not in _ALLOCATIONS or operation in walk.singles
        ):
            own = neighbours.setdefault(operation, set())
            for before in last - {operation}:
                own.add(before)
                neighbours[before].add(operation)
            last = frozenset({operation})
    return last


def _place(
    requests: Iterable[_Request],
    apart: Mapping[Operation, set[Operation]],
    *,
    roomy_bytes: int = 0,
) -> dict[Operation, Span]:
    """Return disjoint spans for requests that live at once, and for those `apart` if they fit."""
    placed: list[tuple[_Request, Span]] = []
    spans: dict[Operation, Span] = {}
    for request in requests:
        live = [span for other, span in placed if request.meets(other)]
        near = [spans[o] for o in apart.get(request.operation, ()) if o in spans]
        start = _first_gap([*live, *near], request)
        if near and start + request.size > roomy_bytes:
            start = _first_gap(live, request)
        spans[request.operation] = (start, start + _aligned(request.size, _SCRATCH_ALIGNMENT))
        placed.append((request, spans[request.operation]))
    return spans


def _first_gap(taken: list[Span], request: _Request) -> int:
    start = 0
    for low, high in sorted(taken):
        if start + request.size <= low:
            break
        start = max(start, _aligned(high, request.alignment))
    return start


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _too_large(request: _Request, span: Span, limit_bytes: int) -> KernelValueError:
    operation, (start, end) = request.operation, span
    beside = f" beside {start} in use" if start else ""
    owner = "that every GPU has" if limit_bytes == BASELINE_SHARED_BYTES else "there are"
    msg = (
        f"{_described(operation)} needs {request.size} bytes of shared memory{beside}, "
        f"{end - limit_bytes} more than the {limit_bytes} {owner}; use smaller block sizes"
    )
    return KernelValueError(msg, (operation.location,) if operation.location else ())


def _described(operation: Operation) -> str:
    if operation.name == "alloc_mbarriers":
        return "a ring of mbarriers"
    if operation.name != "alloc_shared":
        return f"{operation.name} of a tile of shape {shape_of(operation.operands[0].type)}"
    type_ = _shared_type(operation)
    tile = f"tile of shape {type_.shape} of {type_.dtype.name}"
    return f"a {tile}" if type_.slots is None else f"a ring of {type_.slots} stages of a {tile}"


def _with_offsets(module: Module, offsets: Mapping[Operation, int]) -> Module:
    """Return a copy in which these operations have their places."""
    copy = rewrite_module(module)
    pairs = zip(module.kernel.body.walk(), copy.kernel.body.walk(), strict=True)
    for operation, copied in pairs:
        if operation in offsets:
            copied.attributes["shared_offset"] = offsets[operation]
    return copy
