"""Blobs become an order and bases: which one each is compressed against in a pack.

The blobs of a family are one kernel many times over, so most of a cubin stands in another one. This
is the search for a tree of bases, each as cheap as can be found, in which every way to the root is
short: a first launch expands the whole way. What a pair costs is tried with a quick compression,
for the few pairs that share most 16-byte words (of a cubin, that is instructions) or lines (of a
PTX text). The result depends on the blobs and their order alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import zstandard

from tilewright.abi.pack import CHAIN_FRAMES

VERSION = 1
"""Enters the names of packs: raise it when the same blobs would be arranged differently."""

CHAIN_BYTES = 256 * 1024
"""What a first launch expands at most for a cubin: about 0.2 ms of it."""

TEXT_CHAIN_BYTES = 640 * 1024
"""The same for PTX, which a driver then compiles for tens of milliseconds."""

_CANDIDATES = 8
_WORD_BYTES = 16
_SAMPLED = 8  # one word in so many is compared
_TRIAL_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The blobs' indices in the order to write them, and for each place that of its base."""

    order: tuple[int, ...]
    bases: tuple[int | None, ...]


def arrange(blobs: Sequence[bytes]) -> Arrangement:
    """Return an order in which every base stands before what is compressed against it."""
    alone = [_trial_size(blob, b"") for blob in blobs]
    against: dict[int, list[tuple[int, int]]] = {}
    for (other, base), cost in _pair_costs(blobs).items():
        against.setdefault(base, []).append((other, cost))
    best: dict[int, tuple[int, int | None]] = {i: (cost, None) for i, cost in enumerate(alone)}
    place: dict[int, int] = {}
    chain: dict[int, int] = {}
    chain_bytes: dict[int, int] = {}
    bases: list[int | None] = []
    while best:
        # The blob that gains most comes next, so that a base is one that many gain from.
        blob = min(best, key=lambda i: (best[i][0] - alone[i], -alone[i], i))
        chosen = best.pop(blob)[1]
        bases.append(None if chosen is None else place[chosen])
        place[blob] = len(place)
        chain[blob] = 1 if chosen is None else chain[chosen] + 1
        chain_bytes[blob] = len(blobs[blob]) + (0 if chosen is None else chain_bytes[chosen])
        if chain[blob] == CHAIN_FRAMES:
            continue
        for other, cost in against.get(blob, ()):
            fits = chain_bytes[blob] + len(blobs[other]) <= _limit(blobs[other])
            if other in best and cost < best[other][0] and fits:
                best[other] = (cost, blob)
    return Arrangement(tuple(place), tuple(bases))


def _limit(blob: bytes) -> int:
    return CHAIN_BYTES if _is_elf(blob) else TEXT_CHAIN_BYTES


def _pair_costs(blobs: Sequence[bytes]) -> dict[tuple[int, int], int]:
    """Return the trial size of a blob against another, (blob, base), for pairs that look alike."""
    sketches = [_sketch(blob) for blob in blobs]
    pairs: set[tuple[int, int]] = set()
    for i, sketch in enumerate(sketches):
        others = [j for j in range(len(blobs)) if j != i]
        others.sort(key=lambda j: (-len(sketch & sketches[j]), abs(i - j), j))
        pairs |= {pair for j in others[:_CANDIDATES] for pair in ((i, j), (j, i))}
    return {(i, j): _trial_size(blobs[i], blobs[j]) for i, j in sorted(pairs)}


def _sketch(blob: bytes) -> frozenset[int]:
    if _is_elf(blob):
        ends = range(_WORD_BYTES, len(blob) + 1, _WORD_BYTES)
        words = {blob[end - _WORD_BYTES : end] for end in ends}
    else:
        words = set(blob.split(b"\n"))
    # Not hash(), which has a seed of its own in each process.
    return frozenset(number for word in words if (number := zlib.crc32(word)) % _SAMPLED == 0)


def _is_elf(blob: bytes) -> bool:
    return blob.startswith(b"\x7fELF")


def _trial_size(blob: bytes, base: bytes) -> int:
    dictionary = (
        zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        if base
        else None
    )
    return len(zstandard.ZstdCompressor(level=_TRIAL_LEVEL, dict_data=dictionary).compress(blob))
