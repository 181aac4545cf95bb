"""Plans of layout conversions, derived from the two maps: what each thread does to hold `target`.

Four forms, cheapest first; `plan_conversion` picks one:

- `Identity`: the registers are already right.
- `RegisterMove`: each thread renames registers.
- `ShuffleExchange`: values stay within their warp. For target register r, lane l needs source
  register r' of lane l', both linear in (r, l). In one round a lane can send one register, so
  rounds are skewed: in round k, lane l receives its target register k ^ C(l), with C chosen such
  that every sender is asked for one register only. The skews before and after become selects on
  lane bits.
- `SharedExchange`: through shared memory (`layout.shared`), needs scratch and a barrier.

The parallel exchange by skewed rounds follows "Linear Layouts" (Zhou et al., 2025), section 5.4.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LANE_BITS, LinearLayout, flatten
from tilewright_compiler.layout.shared import SharedExchange, plan_exchange

# A schedule, its emission and its check ask for the same sources again and again.
_CACHED = 4096

# Issue slots that a program loses at a barrier plus the latency of shared memory, against shuffles.
BARRIER_COST = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """Target register i is source register i."""

    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RegisterMove:
    """Target register i is source register `sources[i]`, in every thread."""

    sources: tuple[int, ...]
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaneSelect:
    """All at once: `v[i] = v[i ^ mask] if lane & (1 << lane_bit) else v[i]`."""

    lane_bit: int
    mask: int


@dataclass(frozen=True, slots=True)
class ShuffleRound:
    """Receive the value `register` (after the send selects) of lane `sender(lane) ^ lane_xor`."""

    register: int
    lane_xor: int


@dataclass(frozen=True, slots=True)
class ShuffleExchange:
    """Move values between the lanes of each warp. Steps, in order:

    1. `v` is the list of source registers; apply each of `send` to it in order.
    2. For round k: `u[k]` = value `rounds[k].register` of `v` in lane `sender(lane) ^
    rounds[k].lane_xor`, where `sender(lane)` is the xor of `sender[i]` over the set bits i of the
    lane. If `is_butterfly`, that lane is `lane ^ lane_xor`: shfl.bfly, and with `lane_xor` 0 no
    shuffle at all. 3. Apply each of `receive` to `u` in order; target register i is `u[i]`.
    """

    send: tuple[LaneSelect, ...]
    sender: tuple[int, ...]
    rounds: tuple[ShuffleRound, ...]
    receive: tuple[LaneSelect, ...]
    num_source_registers: int
    scratch_bytes: int = 0

    @property
    def is_butterfly(self) -> bool:
        """Whether the sender is the lane itself but for a constant."""
        return self.sender == tuple(1 << bit for bit in range(LANE_BITS))

    @property
    def cost(self) -> int:
        """Instructions of one warp for 32-bit values; a shuffle counts twice."""
        shuffles = sum(not self.is_butterfly or r.lane_xor != 0 for r in self.rounds)
        selects = len(self.send) * self.num_source_registers + len(self.receive) * len(self.rounds)
        return 2 * shuffles + selects


Conversion = Identity | RegisterMove | ShuffleExchange | SharedExchange


@lru_cache(_CACHED)
def part_registers(
    source: LinearLayout, part: LinearLayout, *, axis: int, start: int
) -> tuple[int, ...]:
    """Return the registers of `source` that are those of its block at `start` along `axis`."""
    held = gf2.Elimination(source.register)
    offset = flatten([start if a == axis else 0 for a in range(source.rank)], source.shape)
    registers = []
    for register in range(part.num_registers):
        within = flatten(part.coordinates(register=register), source.shape)
        selection = held.express(within ^ offset)
        assert selection is not None, "threads hold registers of every block"
        registers.append(selection)
    return tuple(registers)


def plan_conversion(source: LinearLayout, target: LinearLayout, *, size_bytes: int) -> Conversion:
    """Plan converting a tile of elements of `size_bytes` from one layout to another of the same
    shape.

    Raises InternalCompilerError if the shapes or numbers of warps differ, or if `source` does not
    hold every element that `target` wants.
    """
    return _plan(source, target, size_bytes)


# A choice of layouts, places in shared memory, barriers and emission all ask for the same plans.
@lru_cache(maxsize=512)
def _plan(source: LinearLayout, target: LinearLayout, size_bytes: int) -> Conversion:
    if source.shape != target.shape or len(source.warp) != len(target.warp):
        msg = f"cannot convert {source} to {target}: shape and number of warps must agree"
        raise InternalCompilerError(msg)
    if not source.is_surjective:
        msg = f"cannot convert from {source}: it does not hold every element"
        raise InternalCompilerError(msg)
    if source == target:
        return Identity()
    within_thread = _plan_register_move(source, target)
    if within_thread is not None:
        return within_thread
    exchange = plan_exchange(
        source, target, size_bytes=size_bytes, most_bytes=BASELINE_SHARED_BYTES
    )
    within_warp = _plan_shuffle(source, target)
    if within_warp is not None:
        words = max(1, size_bytes // 4)
        if within_warp.cost * words <= exchange.cost + BARRIER_COST:
            return within_warp
    return exchange


@lru_cache(_CACHED)
def register_sources(source: LinearLayout, target: LinearLayout) -> tuple[int, ...] | None:
    """Return for each register of `target` the register of `source` with the same element.

    None if a value would have to move between threads. The same in all threads.
    """
    if source.lane != target.lane or source.warp != target.warp:
        return None
    span = gf2.Elimination(source.register)
    steps = [span.express(basis) for basis in target.register]
    if any(step is None for step in steps):
        return None
    return tuple(gf2.images(step for step in steps if step is not None))


@lru_cache(_CACHED)
def broadcast_sources(source: LinearLayout, target: LinearLayout) -> tuple[int, ...] | None:
    """Return for each register of the broadcast tile the register of its operand to copy.

    None if the operand's layout does not have the elements in the threads that want them.
    """
    register, lane, warp = (
        tuple(target.project_basis(basis, source.shape) for basis in bases)
        for bases in (target.register, target.lane, target.warp)
    )
    return register_sources(source, LinearLayout(source.shape, register, lane, warp))


def _plan_register_move(source: LinearLayout, target: LinearLayout) -> Conversion | None:
    sources = register_sources(source, target)
    if sources is None:
        return None
    if sources == tuple(range(source.num_registers)):
        return Identity()
    return RegisterMove(sources)


def _plan_shuffle(source: LinearLayout, target: LinearLayout) -> ShuffleExchange | None:
    """Find the skewed rounds, or None if values cross warps or a sender is asked too much."""
    if source.warp != target.warp:
        return None
    registers = len(source.register)
    register_mask = (1 << registers) - 1
    by_register = gf2.Elimination(source.register)
    by_thread = gf2.Elimination((*source.register, *source.lane))

    # Where target bits read from: (source register, source lane) of each target register and lane
    # bit.
    register_from, lane_from = [], []
    for basis in target.register:
        selection = by_thread.express(basis)
        if selection is None:
            return None
        register_from.append((selection & register_mask, selection >> registers))
    for bit, basis in enumerate(target.lane):
        own = by_register.express(basis ^ source.lane[bit])
        if own is not None:  # the lane's own registers hold it: prefer no traffic
            lane_from.append((own, 1 << bit))
            continue
        selection = by_thread.express(basis)
        if selection is None:
            return None
        lane_from.append((selection & register_mask, selection >> registers))

    skew = _skew(register_from, lane_from)
    asked = [
        (
            register ^ gf2.apply([r for r, _ in register_from], skew[bit]),
            lane ^ gf2.apply([lane for _, lane in register_from], skew[bit]),
        )
        for bit, (register, lane) in enumerate(lane_from)
    ]
    sender = tuple(lane for _, lane in asked)
    answer = _answers(asked)
    if answer is None:
        return None
    rounds = []
    for index in range(target.num_registers):
        lane_xor = gf2.apply([lane for _, lane in register_from], index)
        register = gf2.apply([register for register, _ in register_from], index)
        rounds.append(ShuffleRound(register ^ gf2.apply(answer, lane_xor), lane_xor))
    return ShuffleExchange(
        send=tuple(LaneSelect(bit, mask) for bit, mask in enumerate(answer) if mask),
        sender=sender,
        rounds=tuple(rounds),
        receive=tuple(LaneSelect(bit, mask) for bit, mask in enumerate(skew) if mask),
        num_source_registers=source.num_registers,
    )


def _skew(register_from: list[tuple[int, int]], lane_from: list[tuple[int, int]]) -> list[int]:
    """Choose for each lane bit the target registers to swap, so that senders are distinct."""
    skew = [0] * len(lane_from)
    senders = gf2.Elimination()
    late = []
    for bit, (register, lane) in enumerate(lane_from):
        if not senders.add(lane) and (register or lane):
            late.append(bit)
    for bit in late:
        for index, (_, lane) in enumerate(register_from):
            if senders.add(lane ^ lane_from[bit][1]):
                skew[bit] = 1 << index
                break
    return skew


def _answers(asked: list[tuple[int, int]]) -> tuple[int, ...] | None:
    """Return for each bit of the sending lane the registers it adds; None on a conflict."""
    senders = gf2.Elimination(lane for _, lane in asked)
    for index, (register, lane) in enumerate(asked):
        earlier = gf2.Elimination(lane for _, lane in asked[:index])
        selection = earlier.express(lane)
        if selection is not None and gf2.apply([r for r, _ in asked], selection) != register:
            return None
    # Lanes that nobody asks may send anything: complete the requests by unit vectors sending
    # register 0.
    columns = [*asked]
    for bit in range(LANE_BITS):
        if senders.add(1 << bit):
            columns.append((0, 1 << bit))
    solver = gf2.Elimination(lane for _, lane in columns)
    registers = [register for register, _ in columns]
    return tuple(gf2.apply(registers, solver.reduce(1 << bit)[1]) for bit in range(LANE_BITS))
