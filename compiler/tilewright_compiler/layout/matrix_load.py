"""Reading a tile from shared memory with `ldmatrix`: eight rows of 16 bytes spread over a warp.

One instruction reads up to four matrices of 8 x 8 16-bit halves. Eight lanes give the addresses of
a matrix's rows; then lane `l` holds of each matrix the 32-bit word `l % 4` of row `l / 4`, or with
`.trans`, the halves `2 (l % 4)` and the one after of column `l / 4` (PTX ISA, "ldmatrix").

In bits: plain, the lowest bits of the offset in shared memory are the register bits within a word,
then lane bits 0 and 1; lane bits 2, 3 and 4 select rows, which may lie anywhere. Transposed, the
lowest bits of the offset are lane bits 2, 3 and 4, and a register bit and lane bits 0 and 1 select
rows. So a tile can be read this way if its two maps have that form, whatever else they do; rows of
words serve elements of 8 and 32 bits as well as those of 16.
"""

from __future__ import annotations

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout import banks, gf2
from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.swizzle import CHUNK_BYTES, SharedLayout

WORD_BYTES = 4
MAX_MATRICES = 4


@dataclass(frozen=True, slots=True)
class MatrixGroup:
    """One instruction: `words[i]` are the registers in the word that matrix i gives, low first."""

    offset: int
    words: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class MatrixLoad:
    """How a tile is read with `ldmatrix`. Offsets count elements.

    A lane's row of a group starts at `group.offset ^ base`, where `base` is the xor of `lane[i]`
    over the bits of the lane and of `warp[i]` over the bits of the warp. Each instruction reads
    `matrices` of them, transposed or not.
    """

    matrices: int
    is_transposed: bool
    groups: tuple[MatrixGroup, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]

    def conflict_ways(self, *, size_bytes: int) -> int:
        """Return how many words the busiest bank serves at once; 1 is free of conflicts."""
        return banks.conflict_ways(self.lane, access_bytes=CHUNK_BYTES, size_bytes=size_bytes)


def plan_matrix_load(
    layout: LinearLayout, shared: SharedLayout, *, size_bytes: int
) -> MatrixLoad | None:
    """Plan reading a tile in shared memory into `layout`; None if `ldmatrix` cannot.

    Registers that repeat others of their thread are left out.
    """
    if size_bytes > WORD_BYTES:
        return None
    free = layout.free.register
    register = {
        bit: shared.offset(basis)
        for bit, basis in enumerate(layout.register)
        if not free >> bit & 1
    }
    lane = [shared.offset(basis) for basis in layout.lane]
    warp = tuple(shared.offset(basis) for basis in layout.warp)
    chunk = CHUNK_BYTES // size_bytes
    plain = _plain(register, lane, size_bytes)
    form = plain or _transposed(register, lane, size_bytes)
    if form is None:
        return None
    word, rows = form
    others = [bit for bit in register if bit not in word]
    addresses = (*rows, *(register[bit] for bit in others), *warp)
    if any(address % chunk for address in addresses):
        return None
    # In the order of the registers: an instruction's results are consecutive registers, and those
    # that a matrix instruction takes must be.
    chosen, rest = others[: log2(MAX_MATRICES)], others[log2(MAX_MATRICES) :]
    lanes = (*rows, *(register[bit] for bit in chosen))
    steps = [register[bit] for bit in rest]
    return MatrixLoad(
        matrices=1 << len(chosen),
        is_transposed=plain is None,
        groups=tuple(
            MatrixGroup(gf2.apply(steps, group), _words(group, rest, chosen, word))
            for group in range(1 << len(rest))
        ),
        lane=(*lanes, *[0] * (len(lane) - len(lanes))),
        warp=warp,
    )


def _plain(
    register: dict[int, int], lane: list[int], size_bytes: int
) -> tuple[list[int], tuple[int, ...]] | None:
    """Return the register bits of a word and what the bits of a row's number add to the offset."""
    per_word = WORD_BYTES // size_bytes
    if lane[:2] != [per_word, 2 * per_word]:
        return None
    word = []
    for bit in range(log2(per_word)):
        holders = [index for index, offset in register.items() if offset == 1 << bit]
        if not holders:
            return None
        word.append(holders[0])
    return word, tuple(lane[2:])


def _transposed(
    register: dict[int, int], lane: list[int], size_bytes: int
) -> tuple[list[int], tuple[int, ...]] | None:
    if size_bytes != WORD_BYTES // 2 or lane[2:] != [1, 2, 4] or not register:
        return None
    pair = min(register)
    return [pair], (register[pair], lane[0], lane[1])


def _words(
    group: int, rest: list[int], chosen: list[int], word: list[int]
) -> tuple[tuple[int, ...], ...]:
    """Return the registers of each matrix's word: `group` counts in the bits of `rest`."""

    def register(matrix: int, half: int) -> int:
        return (
            gf2.apply([1 << bit for bit in rest], group)
            | gf2.apply([1 << bit for bit in chosen], matrix)
            | gf2.apply([1 << bit for bit in word], half)
        )

    return tuple(
        tuple(register(matrix, half) for half in range(1 << len(word)))
        for matrix in range(1 << len(chosen))
    )
