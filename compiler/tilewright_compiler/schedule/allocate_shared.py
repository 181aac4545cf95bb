"""Scheduled tile IR -> the same with a place in shared memory for each exchange between threads.

An exchange writes its scratch, lets all warps meet, and reads it; nothing lives longer. So all
could share one place, but then each would first have to wait until the one before is read
everywhere. Exchanges that may follow each other directly therefore get different places while
memory is not scarce: the barrier inside the second already separates the first from the third.
Emission adds a barrier only where places overlap.
"""

from __future__ import annotations

from tilewright.errors import KernelValueError
from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.ir.builder import Builder, Rewrite, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import shape_of
from tilewright_compiler.schedule.scratch import scratch_bytes

_ALIGNMENT_BYTES = 16
# Keeping exchanges apart may cost up to this much memory without costing occupancy.
_ROOMY_BYTES = 8 * 1024

Span = tuple[int, int]


def allocate_shared(module: Module) -> Module:
    """Set `shared_offset` on operations that need scratch, and `shared_bytes` on the module.

    Raises KernelValueError naming the operation and the excess if one needs more than 99 KiB.
    """
    followers: dict[Operation, set[Operation]] = {}
    _flow(module.kernel.body, frozenset(), followers)
    spans = _place(module, followers)
    offsets = {operation: start for operation, (start, _) in spans.items()}
    result = rewrite_module(module, _offset_setter(offsets))
    result.attributes["shared_bytes"] = max((end for _, end in spans.values()), default=0)
    return result


def _flow(
    block: Block, last: frozenset[Operation], followers: dict[Operation, set[Operation]]
) -> frozenset[Operation]:
    """Record which exchange may directly follow which; return those that may be last."""
    for operation in block.operations:
        if operation.name == "if":
            branches = [_flow(region, last, followers) for region in operation.regions]
            last = branches[0] | branches[1]
        elif operation.regions:
            # Twice: the second time round sees what the end of the body leaves behind.
            for _ in range(2):
                for region in operation.regions:
                    last |= _flow(region, last, followers)
        elif scratch_bytes(operation):
            followers.setdefault(operation, set())
            for before in last:
                followers[before].add(operation)
            last = frozenset({operation})
    return last


def _place(module: Module, followers: dict[Operation, set[Operation]]) -> dict[Operation, Span]:
    sizes = {operation: _aligned(scratch_bytes(operation)) for operation in followers}
    largest = max(sizes.values(), default=0)
    neighbours: dict[Operation, set[Operation]] = {operation: set() for operation in followers}
    for operation, after in followers.items():
        for follower in after:
            if follower is not operation:
                neighbours[operation].add(follower)
                neighbours[follower].add(operation)
    spans: dict[Operation, Span] = {}
    for operation in module.kernel.body.walk():
        if operation not in sizes:
            continue
        size = sizes[operation]
        if size > BASELINE_SHARED_BYTES:
            raise _too_large(operation, size)
        taken = sorted(spans[other] for other in neighbours[operation] if other in spans)
        start = _first_gap(taken, size)
        if start + size > max(largest, _ROOMY_BYTES):
            start = 0
        spans[operation] = (start, start + size)
    return spans


def _first_gap(taken: list[Span], size: int) -> int:
    start = 0
    for low, high in taken:
        if start + size <= low:
            break
        start = max(start, high)
    return start


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _too_large(operation: Operation, size: int) -> KernelValueError:
    shape = shape_of(operation.operands[0].type)
    msg = (
        f"{operation.name} of a tile of shape {shape} needs {size} bytes of shared memory, "
        f"{size - BASELINE_SHARED_BYTES} more than the {BASELINE_SHARED_BYTES} that every GPU has; "
        "use smaller block sizes"
    )
    return KernelValueError(msg, (operation.location,) if operation.location else ())


def _offset_setter(offsets: dict[Operation, int]) -> Rewrite:
    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation not in offsets:
            return None
        new = builder.create(
            operation.name,
            operands,
            [result.type for result in operation.results],
            **{**operation.attributes, "shared_offset": offsets[operation]},
        )
        for old, result in zip(operation.results, new.results, strict=True):
            result.name = old.name
        return new.results

    return rewrite
