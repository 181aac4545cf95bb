"""Values that depend on the thread: its index, and linear maps of the bits of that index.

A layout's lane and warp bases are a GF(2) map of the thread index. Runs of bases that double with
each bit are one mask and one shift; the usual layouts are a single run, so that `offset = thread
* 4` is one instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from tilewright.abi.dtypes import int32
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.layout.linear import LANE_BITS


class ThreadIndices:
    """The thread index of the kernel and what is derived from it, each written once at the top."""

    def __init__(self, text: FunctionText, *, num_threads: int, launched: int) -> None:
        """Write the read of the thread index.

        `num_threads` share the program's tiles; further ones that are `launched` have indices
        behind theirs.
        """
        self._text = text
        self._bits = (num_threads - 1).bit_length()
        self._is_exact = num_threads == launched
        self._cache: dict[object, str] = {}
        with text.at_top():
            self.thread = text.value(f"nvvm.read.ptx.sreg.tid.x range <i32, 0, {launched}> : i32")

    def warp_uniform(self, *, warp: Sequence[int]) -> str | None:
        """Return `linear` of the warp alone, in a form that shows it equal in all lanes."""
        per_lane = self.linear(lane=[0] * LANE_BITS, warp=warp)
        if per_lane is None:
            return None
        key = ("uniform", tuple(warp))
        if key not in self._cache:
            with self._text.at_top():
                self._cache[key] = first_lane(self._text, per_lane)
        return self._cache[key]

    def warp(self) -> str:
        """Return the number of the warp, an i32 that is seen to be equal in all lanes."""
        key = "warp"
        if key not in self._cache:
            with self._text.at_top():
                self._cache[key] = first_lane(self._text, self._shifted(self.thread, -LANE_BITS))
        return self._cache[key]

    def lane_bit(self, bit: int) -> str:
        """Return an i1: whether that bit of the lane is set."""
        key = ("lane_bit", bit)
        if key not in self._cache:
            with self._text.at_top():
                masked = self._masked(1 << bit)
                zero = self._text.i32(0)
                self._cache[key] = self._text.value(f'llvm.icmp "ne" {masked}, {zero} : i32')
        return self._cache[key]

    def is_representative(self, *, free_lane: int, free_warp: int) -> str | None:
        """Return an i1: whether these bits of lane and warp are all 0; None if there are none."""
        mask = (free_lane | free_warp << LANE_BITS) & ((1 << self._bits) - 1)
        if mask == 0:
            return None
        key = ("representative", mask)
        if key not in self._cache:
            with self._text.at_top():
                masked = self._masked(mask)
                zero = self._text.i32(0)
                self._cache[key] = self._text.value(f'llvm.icmp "eq" {masked}, {zero} : i32')
        return self._cache[key]

    def any_bit(self, *, lane: int, warp: int, is_clear: bool) -> str:
        """Return an i1: whether one of these bits of lane and warp is set, or is clear."""
        mask = (lane | warp << LANE_BITS) & ((1 << self._bits) - 1)
        key = ("any_bit", mask, is_clear)
        if key not in self._cache:
            with self._text.at_top():
                masked, none = self._masked(mask), self._text.i32(mask if is_clear else 0)
                self._cache[key] = self._text.value(f'llvm.icmp "ne" {masked}, {none} : i32')
        return self._cache[key]

    def linear(self, *, lane: Sequence[int], warp: Sequence[int]) -> str | None:
        """Return an i32, the xor of the bases over the set bits of lane and warp; None if 0."""
        bases = (*lane, *warp)
        if not any(bases):
            return None
        key = ("linear", bases)
        if key not in self._cache:
            with self._text.at_top():
                self._cache[key] = self._linear(bases)
        return self._cache[key]

    def _linear(self, bases: tuple[int, ...]) -> str:
        pieces: list[tuple[int, str]] = []
        bit = 0
        while bit < len(bases):
            length = _run_length(bases, bit)
            if bases[bit]:
                span = reduce(or_, bases[bit : bit + length])
                pieces.append((span, self._piece(bit, length, bases[bit])))
            bit += length
        covered, result = pieces[0]
        for span, piece in pieces[1:]:
            result = add_or_xor(self._text, result, piece, disjoint=not covered & span)
            covered |= span
        return result

    def _piece(self, bit: int, length: int, basis: int) -> str:
        masked = self._masked(((1 << length) - 1) << bit)
        if basis & (basis - 1):  # several bits at once: one run is one bit
            shifted = self._shifted(masked, -bit)
            return self._text.value(f"llvm.mul {shifted}, {self._text.i32(basis)} : i32")
        return self._shifted(masked, basis.bit_length() - 1 - bit)

    def _masked(self, mask: int) -> str:
        if mask == (1 << self._bits) - 1 and self._is_exact:
            return self.thread
        return self._text.value(f"llvm.and {self.thread}, {self._text.i32(mask)} : i32")

    def _shifted(self, value: str, distance: int) -> str:
        amount = self._text.i32(abs(distance))
        if distance > 0:
            return self._text.value(f"llvm.shl {value}, {amount} overflow<nsw, nuw> : i32")
        return self._text.value(f"llvm.lshr {value}, {amount} : i32") if distance else value


def first_lane(text: FunctionText, value: str) -> str:
    """Return an i32 that the whole warp executes, as its first lane has it."""
    everyone, first, clamp = text.i32(-1), text.i32(0), text.i32((1 << LANE_BITS) - 1)
    return text.value(f"nvvm.shfl.sync idx {everyone}, {value}, {first}, {clamp} : i32 -> i32")


def add_or_xor(text: FunctionText, left: str, right: str, *, disjoint: bool) -> str:
    """Combine two i32 by xor; as a sum, which addresses can use, where they share no bits."""
    operation = "add" if disjoint else "xor"
    flags = " overflow<nsw, nuw>" if disjoint else ""
    return text.value(f"llvm.{operation} {left}, {right}{flags} : {int32.name}")


def _run_length(bases: tuple[int, ...], start: int) -> int:
    first = bases[start]
    if first & (first - 1):
        return 1
    length = 1
    while start + length < len(bases) and bases[start + length] == first << length:
        length += 1
    return length
