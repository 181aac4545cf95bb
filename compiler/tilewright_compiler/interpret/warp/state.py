"""What a warp holds, and what it shares with the other warps of its program."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from tilewright.errors import InternalCompilerError, ScheduleError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_plan import AccessPlan
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.memory import Access as GlobalAccess
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.agreement import Agreement
from tilewright_compiler.interpret.warp.clocks import Clocks, Mbarrier
from tilewright_compiler.interpret.warp.copies import Copies
from tilewright_compiler.interpret.warp.global_memory import GlobalTraces
from tilewright_compiler.interpret.warp.places import elements, is_injective
from tilewright_compiler.interpret.warp.shared_memory import SharedMemory
from tilewright_compiler.interpret.warp.traces import Access
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import DescriptorType, SharedType, TileType, Type, element_dtype
from tilewright_compiler.layout.linear import LinearLayout

if TYPE_CHECKING:
    from tilewright_compiler.interpret.warp.bulk import BulkCopies


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile in shared memory, or a ring of them: its type and the byte at which it starts."""

    type: SharedType
    start: int
    allocation: Operation


@dataclass(frozen=True, slots=True)
class Token:
    """A group of copies of this warp, by its number."""

    group: int


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in global memory: address, sizes and strides in elements."""

    type: DescriptorType
    base: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MbarrierRing:
    """A ring of mbarriers, the same for all warps; without members until it is initialised."""

    operation: Operation
    slots: int
    members: list[Mbarrier] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """What a matrix instruction will have added up: nobody may look before it is waited for.

    `groups` are the numbers of the warp's dots that still add to it.
    """

    values: Array
    group: int


# A scalar is an array [1], a tile the array [lanes, registers] of the warp's part.
Held = Array | SharedTile | Token | Descriptor | Mbarrier | MbarrierRing | Running


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a warp waits for others: the barrier's operation, and how often it ran before.

    It waits for all, or if there are several `groups` of consecutive warps for those of its own.
    """

    operation: Operation
    turn: int
    groups: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Where a warp waits for a phase of an mbarrier."""

    operation: Operation
    turn: int
    mbarrier: Mbarrier
    parity: int


Stop = Meeting | Waiting
Walk = Generator[Stop, None, tuple[Held, ...]]
"""The run of a block: it pauses where warps meet or wait, and gives what the block yields."""


@dataclass(slots=True)
class Program:
    """What the warps of one program share. `batch` holds this program alone, `vectors` how each
    access to global memory is planned, `in_one_layout` the operations whose tiles have one layout.

    Of a persistent kernel it is one CTA, number `cta` of `num_ctas`, that runs several programs.
    """

    batch: Batch
    num_warps: int
    vectors: Mapping[Operation, AccessPlan]
    shared: SharedMemory
    traces: GlobalTraces
    agreement: Agreement
    clocks: Clocks
    bulk: BulkCopies
    in_one_layout: frozenset[Operation]
    cta: int = 0
    num_ctas: int = 1
    mbarriers: dict[Operation, MbarrierRing] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The program, for messages."""
        return f"kernel {self.batch.kernel!r}, program {self.batch.program_at(0)}"


@dataclass(frozen=True, slots=True)
class Iteration:
    """Which iteration of a `for` a warp is in; `entry` tells one run of the loop from the next."""

    entry: object
    number: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Which slot of a ring the present iteration consumes, where the loops stood."""

    loops: tuple[Iteration, ...]
    slot: int


@dataclass(slots=True, eq=False)
class Warp:
    """One warp of a program, or the thread that is the producer.

    `dots` counts the asynchronous dots that it started; of `reading`, those that it has not waited
    for, it knows what they read.
    """

    index: int
    program: Program
    copies: Copies
    held: dict[Value, Held] = field(default_factory=dict)
    loops: tuple[Iteration, ...] = ()
    turns: dict[Operation, int] = field(default_factory=dict)
    phases: dict[Operation, Phase] = field(default_factory=dict)
    is_producer: bool = False
    dots: int = 0
    reading: dict[int, list[Array]] = field(default_factory=dict)

    def array(self, value: Value) -> Array:
        """Return the scalar or tile that the warp holds for a value."""
        held = self.held[value]
        if isinstance(held, np.ndarray):
            return held
        if isinstance(held, Running):
            name = f"%{value.name}" if value.name else str(value.type)
            msg = f"{self.program.where}, warp {self.index}: {name} is read while its dot runs"
            raise ScheduleError(msg)
        msg = f"{value.type} is no scalar and no tile, and the verifier checks types"
        raise InternalCompilerError(msg)

    def shared(self, value: Value) -> SharedTile:
        """Return the place in shared memory that a value stands for."""
        held = self.held[value]
        assert isinstance(held, SharedTile), "the verifier checks types"
        return held

    def begin(self, operation: Operation) -> int:
        """Count an execution of an operation and return its number."""
        turn = self.turns.get(operation, -1) + 1
        self.turns[operation] = turn
        return turn

    def access(self, operation: Operation, allocation: Operation) -> Access:
        """Return the execution of an operation that the warp is in, as an access."""
        return Access(operation, self.turns[operation], allocation)

    def global_access(self, operation: Operation, verb: str) -> GlobalAccess:
        """Return how global memory names this access in messages."""
        pointer = operation.operands[0].type
        assert not isinstance(pointer, SharedType)
        here = () if operation.location is None else (operation.location,)
        return GlobalAccess(
            verb=verb,
            dtype=element_dtype(pointer),
            kernel=self.program.batch.kernel,
            locations=here,
            program=lambda _position: self.program.batch.program_at(0),
        )

    def agree(self, operation: Operation, values: Array, *, result: Value | None = None) -> None:
        """Demand that replicas of a result agree; raises ScheduleError where they do not.

        By default it is the only one.
        """
        result = operation.result if result is None else result
        type_ = result.type
        if isinstance(type_, TileType):
            layout = layout_of(type_)
            if is_injective(layout):
                return
            places, size = elements(layout, self.index), layout.size
        else:
            places, size = np.zeros(1, np.int64), 1
        turn = self.turns[operation]
        found = self.program.agreement.disagreement(result, turn, values, places, size=size)
        if found is not None:
            raise self.error(operation, f"replicas of element {found} of the result differ")

    def error(self, operation: Operation, what: str) -> ScheduleError:
        """Return the error that this warp's execution of an operation is wrong."""
        msg = f"{self.program.where}, warp {self.index}: {operation.name}: {what}"
        if operation.location is not None:
            msg += f"\n  at {operation.location.render()}"
        return ScheduleError(msg)


def layout_of(type_: Type) -> LinearLayout:
    """Return the layout of a tile; raises InternalCompilerError if the schedule gave it none."""
    if not isinstance(type_, TileType) or type_.layout is None:
        msg = f"{type_} has no layout: only a scheduled module runs by warps"
        raise InternalCompilerError(msg)
    return type_.layout
