"""The native layouts of matrix instructions: which element of a dot each thread must hold.

An atom is one `mma.sync` of a warp (PTX ISA, "Matrix fragments for mma.sync"), one `wgmma` of a
warpgroup ("Register fragments for wgmma.mma_async"), or the multiply-add of each thread.
`dot_layouts` repeats it over a tile: over the registers of a warp's part, which is contiguous, and
over the warps. Everything else about a dot, from the register that an instruction takes to whether
the result of one dot is already the operand of the next, follows from these maps.
"""

from __future__ import annotations

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout.linear import LANE_BITS, LinearLayout, flatten, log2


@dataclass(frozen=True, slots=True)
class Atom:
    """One instruction: its name in IR and the extents that it multiplies, `[m, k] @ [k, n]`.

    `operand_bits` is the width of an operand's element as the instruction takes it.
    """

    name: str
    m: int
    n: int
    k: int
    operand_bits: int

    @property
    def is_mma(self) -> bool:
        """Whether the lanes of a warp execute it together."""
        return self.name != "fma"

    @property
    def is_wgmma(self) -> bool:
        """Whether the four warps of a warpgroup execute it together, and asynchronously."""
        return self.name.startswith("wgmma")


MMA_16 = Atom("mma.m16n8k16", 16, 8, 16, 16)  # f16, bf16
MMA_TF32 = Atom("mma.m16n8k8", 16, 8, 8, 32)
MMA_8 = Atom("mma.m16n8k32", 16, 8, 32, 8)  # i8, u8
MMA_F64 = Atom("mma.m8n8k4", 8, 8, 4, 64)
FMA = Atom("fma", 1, 1, 1, 32)


def wgmma(n: int, *, operand_bits: int) -> Atom:
    """Return the warpgroup's instruction of `n` columns, 8 to 256, for operands of that width."""
    k = 256 // operand_bits
    return Atom(f"wgmma.m64n{n}k{k}", 64, n, k, operand_bits)


WGMMA = tuple(
    wgmma(1 << bit, operand_bits=operand_bits)
    for operand_bits in (16, 32, 8)
    for bit in range(3, 9)
)

ATOMS = {atom.name: atom for atom in (MMA_16, MMA_TF32, MMA_8, MMA_F64, FMA, *WGMMA)}


@dataclass(frozen=True, slots=True)
class DotLayouts:
    """Layouts of the operands `[M, K]` and `[K, N]` and of the accumulator `[M, N]` of a dot."""

    a: LinearLayout
    b: LinearLayout
    acc: LinearLayout


@dataclass(frozen=True, slots=True)
class _Step:
    """A distance along an axis: what one bit of a hardware index selects."""

    axis: str
    distance: int


@dataclass(frozen=True, slots=True)
class _Places:
    """What the lane bits and the first register bits of each operand's fragment select."""

    lane: dict[str, list[_Step]]
    register: dict[str, list[_Step]]


_AXES = {"a": "mk", "b": "kn", "acc": "mn"}
GROUP_WARPS = 4


def dot_layouts(
    atom: Atom, *, shape: tuple[int, int, int], warps: tuple[int, int], num_warps: int
) -> DotLayouts:
    """Return the layouts of a dot of extents `shape` = (M, N, K) with `warps` along M and N.

    Warps beyond their product hold what others hold. Raises InternalCompilerError if the tile has
    too few atoms for that many warps.
    """
    extents = dict(zip("mnk", shape, strict=True))
    bits = {axis: [_Step(axis, 1 << i) for i in range(log2(extents[axis]))] for axis in "mnk"}
    warp = []
    rows, columns = warps
    if atom.is_wgmma:
        # The warps of a warpgroup share the atom: 16 of its rows each.
        rows //= GROUP_WARPS
        warp += [_Step("m", 16), _Step("m", 32)]
    for axis, count in (("n", columns), ("m", rows)):
        split = len(bits[axis]) - log2(count)
        if split < log2(getattr(atom, axis)):
            msg = f"{count} warps along {axis} have no {atom.name} each in a dot of {shape}"
            raise InternalCompilerError(msg)
        warp += bits[axis][split:]
    if extents["k"] < atom.k or log2(num_warps) < len(warp):
        msg = f"a dot of {shape} over {warps} of {num_warps} warps does not fit {atom.name}"
        raise InternalCompilerError(msg)
    own = {axis: [step for step in bits[axis] if step not in warp] for axis in "mnk"}
    places = _mma_places(atom) if atom.is_mma else _fma_places(own)

    def layout(operand: str) -> LinearLayout:
        axes = _AXES[operand]
        bounds = tuple(extents[axis] for axis in axes)

        def basis(step: _Step) -> int:
            return flatten([step.distance if a == step.axis else 0 for a in axes], bounds)

        lane, first = places.lane[operand], places.register[operand]
        rest = [
            step
            for axis in reversed(axes)
            for step in own[axis]
            if step not in lane and step not in first
        ]
        lane_bases = [basis(step) for step in lane]
        warp_bases = [basis(step) for step in warp]
        return LinearLayout(
            bounds,
            tuple(basis(step) for step in (*first, *rest)),
            (*lane_bases, *[0] * (LANE_BITS - len(lane_bases))),
            (*warp_bases, *[0] * (log2(num_warps) - len(warp_bases))),
        )

    return DotLayouts(layout("a"), layout("b"), layout("acc"))


def _mma_places(atom: Atom) -> _Places:
    """Return a warp's fragments: 32-bit registers (64-bit for f64) of neighbours along k."""
    word = log2(max(32, atom.operand_bits) // atom.operand_bits)
    within = [_Step("k", 1 << bit) for bit in range(word)]
    along_k = [_Step("k", 1 << bit) for bit in range(word, word + 2)]
    upper_k = [_Step("k", 1 << bit) for bit in range(word + 2, log2(atom.k))]
    rows = [_Step("m", 1 << bit) for bit in range(3)]
    lower_rows = [_Step("m", 1 << bit) for bit in range(3, min(4, log2(atom.m)))]
    columns = [_Step("n", 1 << bit) for bit in range(3)]
    return _Places(
        lane={
            "a": [*along_k, *rows],
            "b": [*along_k, *columns],
            "acc": [*columns[1:], *rows],
        },
        register={
            "a": [*within, *lower_rows, *upper_k],
            "b": [*within, *upper_k],
            "acc": [columns[0], *lower_rows],
        },
    )


def _fma_places(own: dict[str, list[_Step]]) -> _Places:
    """Return the fragments of multiply-adds: blocks of 4 x 4 a lane, and of those a square.

    A thread reads a row or a column of its part for each step along k, so near-square parts read
    least; runs of four are one access to shared memory, whichever axis is contiguous there. Where a
    warp's part is small, filling the lanes comes first; where it has fewer elements than lanes,
    the upper lanes hold copies.
    """
    columns, rows = own["n"], own["m"]
    spare = max(0, len(columns) + len(rows) - LANE_BITS)
    run = columns[: min(2, spare)]
    rows = rows[min(2, spare - len(run)) :]
    columns = columns[len(run) :]
    count = min(LANE_BITS, len(columns) + len(rows))

    def part(along_n: int) -> int:
        """Return the elements of both operands that a thread reads for a step along k."""
        return (1 << len(own["n"]) - along_n) + (1 << len(own["m"]) - (count - along_n))

    fitting = range(max(0, count - len(rows)), min(count, len(columns)) + 1)
    along_n = min(reversed(fitting), key=part)
    lane = [*columns[:along_n], *rows[: count - along_n]]
    # A lane bit along the axis that an operand lacks holds a copy: its basis is 0.
    return _Places(lane=dict.fromkeys(_AXES, lane), register={"a": [], "b": run, "acc": run})
