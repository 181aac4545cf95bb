"""The state of emitting one kernel: which SSA names hold each value of the IR.

A tile is a *fragment*: one name for each register of its layout, in order. A scalar is a fragment
of one name, equal in all threads, and so is a tile in shared memory: its address. Registers that
hold equal elements share a name, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.analysis.prefix_masks import PrefixMasks
from tilewright_compiler.emit.indices import ThreadIndices
from tilewright_compiler.emit.shared import SharedMemory
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import DescriptorType, TileType, TokenType, Type
from tilewright_compiler.layout.linear import LANE_BITS, NUM_LANES, LinearLayout, log2

Fragment = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryParameters:
    """The names of the entry's parameters that are no arguments of the program.

    `tensor_maps` has that of each bulk copy, `grid` the extents of the logical grid by axis.
    """

    tensor_maps: Mapping[Operation, str]
    grid: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class KernelForm:
    """What holds of a whole kernel.

    Its text is for sm_90a; lanes read tiles in shared memory; so many groups of warps store in bulk
    by themselves, at most.
    """

    is_hopper: bool
    has_lanes_that_read: bool
    storing_groups: int


@dataclass(slots=True)
class KernelEmitter:
    """What the emitters of all operation families share.

    `num_threads` are the threads that share the program's tiles, `arrivals` what a ring of
    mbarriers waits for. `flips` are the values that a flip gave. `is_producer` says that what is
    written runs in one thread of another warp. `contracts` says whether a product may become part
    of the addition that follows it.
    """

    text: FunctionText
    threads: ThreadIndices
    shared: SharedMemory
    axis_info: Mapping[Value, AxisInfo]
    prefix_masks: PrefixMasks
    parameters: EntryParameters
    num_threads: int
    form: KernelForm
    fragments: dict[Value, Fragment] = field(default_factory=dict)
    arrivals: dict[Value, int] = field(default_factory=dict)
    flips: set[Value] = field(default_factory=set)
    is_producer: bool = False
    contracts: bool = True

    @contextmanager
    def producer(self) -> Iterator[None]:
        """Write what the producer's one thread does."""
        self.is_producer = True
        yield
        self.is_producer = False

    def one_thread(self, *, groups: int = 1) -> str | None:
        """Return an i1 that is true in one thread of each group of warps, always the same.

        None if there is but one thread. It guards single instructions: no warp has to come together
        again behind a branch.
        """
        if self.is_producer:
            return None
        everyone = self.num_threads // groups - 1
        return self.threads.is_representative(
            free_lane=everyone & NUM_LANES - 1, free_warp=everyone >> LANE_BITS
        )

    def by_group(self, step: int, *, groups: int) -> str | None:
        """Return an i32, `step` times the number of the thread's group of warps; None if 0."""
        warps = log2(self.num_threads // NUM_LANES)
        first = warps - log2(groups)
        columns = [step << bit - first if bit >= first else 0 for bit in range(warps)]
        return self.threads.warp_uniform(warp=columns)

    def fragment(self, value: Value) -> Fragment:
        """Return the names that hold `value`."""
        return self.fragments[value]

    def scalar(self, value: Value) -> str:
        """Return the name that holds a scalar."""
        (name,) = self.fragments[value]
        return name

    def define(self, value: Value, names: Sequence[str]) -> None:
        """Record the names that hold `value`: as many as its layout has registers."""
        expected = num_registers(value.type)
        if len(names) != expected:
            msg = f"{value.type} takes {expected} registers, emission made {len(names)}"
            raise InternalCompilerError(msg)
        self.fragments[value] = tuple(names)

    def elementwise(self, operation: Operation, compute: Callable[..., str]) -> None:
        """Define the result by `compute(*names)` for each register, once for equal operands."""
        computed: dict[tuple[str, ...], str] = {}
        names = []
        operands = zip(*(self.fragment(value) for value in operation.operands), strict=True)
        for arguments in operands:
            if arguments not in computed:
                computed[arguments] = compute(*arguments)
            names.append(computed[arguments])
        self.define(operation.result, names)


Emit = Callable[[KernelEmitter, Operation], None]


def layout_of(type_: Type) -> LinearLayout:
    """Return a tile's layout; raises InternalCompilerError if the schedule gave it none."""
    if not isinstance(type_, TileType) or type_.layout is None:
        msg = f"{type_} has no layout: only a scheduled module can be emitted"
        raise InternalCompilerError(msg)
    return type_.layout


def num_registers(type_: Type) -> int:
    """Return how many names hold a value of this type."""
    match type_:
        case TileType():
            return layout_of(type_).num_registers
        case TokenType():
            return 0  # the hardware keeps count
        case DescriptorType():
            return 0  # copies name its tensor maps, which are parameters
        case _:
            return 1
