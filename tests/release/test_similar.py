from __future__ import annotations

import random
from pathlib import Path

import pytest

from tilewright.abi.pack import CHAIN_FRAMES, PackReader, write_pack
from tilewright_release.similar import CHAIN_BYTES, Arrangement, arrange

ELF = b"\x7fELF\x02\x01\x01\x33"


def _noise(size: int, seed: int) -> bytes:
    return ELF + random.Random(seed).randbytes(size - len(ELF))


def _like(blob: bytes, *, seed: int) -> bytes:
    """Return the blob with 1 % of its instructions changed."""
    changed = bytearray(blob)
    numbers = random.Random(seed)
    for _ in range(len(blob) // 1600):
        at = 16 * numbers.randrange(1, len(blob) // 16)
        changed[at : at + 16] = numbers.randbytes(16)
    return bytes(changed)


def _chains(arrangement: Arrangement, blobs: list[bytes]) -> list[list[bytes]]:
    """Return for each place the blobs to expand, the wanted one first."""
    chains = []
    for place in range(len(blobs)):
        chain, at = [], place
        while True:
            chain.append(blobs[arrangement.order[at]])
            base = arrangement.bases[at]
            if base is None:
                break
            at = base
        chains.append(chain)
    return chains


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    """Three kinds of blobs, mixed up, each kind alike."""
    kinds = [_noise(20_000, seed) for seed in range(3)]
    found = [_like(kinds[i % 3], seed=i) for i in range(24)]
    random.Random(7).shuffle(found)
    return found


def test_like_blobs_are_compressed_against_each_other(blobs: list[bytes], tmp_path: Path) -> None:
    arrangement = arrange(blobs)
    ordered = [blobs[index] for index in arrangement.order]
    digests = write_pack(tmp_path / "p", ordered, bases=arrangement.bases)
    write_pack(tmp_path / "alone", blobs)
    # Noise does not compress, so what is saved is what the kinds have in common.
    assert (tmp_path / "alone").stat().st_size > 24 * 20_000
    assert (tmp_path / "p").stat().st_size < 6 * 20_000
    with PackReader(tmp_path / "p") as reader:
        assert [reader.read(digest) for digest in digests] == ordered


def test_chains_are_short_and_bases_come_first(blobs: list[bytes]) -> None:
    arrangement = arrange(blobs)
    assert sorted(arrangement.order) == list(range(len(blobs)))
    assert all(base is None or base < at for at, base in enumerate(arrangement.bases))
    for chain in _chains(arrangement, blobs):
        assert len(chain) <= CHAIN_FRAMES
        assert sum(map(len, chain)) <= CHAIN_BYTES


def test_large_blobs_have_chains_of_bounded_bytes() -> None:
    first = _noise(100_000, 1)
    blobs = [_like(first, seed=seed) for seed in range(8)]
    lengths = [len(chain) for chain in _chains(arrange(blobs), blobs)]
    assert max(lengths) == 2


def test_texts_are_compared_by_lines() -> None:
    numbers = random.Random(3)
    kinds = [[f"{numbers.random()}\n" for _ in range(500)] for _ in range(2)]
    blobs = []
    for i in range(8):
        lines = list(kinds[i % 2])
        lines.insert(i, "one line moves all bytes behind it\n")
        blobs.append("".join(lines).encode())
    chains = _chains(arrange(blobs), blobs)
    assert sum(len(chain) == 1 for chain in chains) == 2
    assert all(blob[-20:] == chain[0][-20:] for chain in chains for blob in chain)


def test_the_arrangement_depends_on_the_blobs_alone(blobs: list[bytes]) -> None:
    assert arrange(blobs) == arrange([bytes(bytearray(blob)) for blob in blobs])


@pytest.mark.parametrize("blobs", [[], [b""], [b"", b""], [ELF], [b"x" * 600_000]], ids=len)
def test_few_blobs_are_arranged_too(blobs: list[bytes], tmp_path: Path) -> None:
    arrangement = arrange(blobs)
    ordered = [blobs[index] for index in arrangement.order]
    digests = write_pack(tmp_path / "p", ordered, bases=arrangement.bases)
    with PackReader(tmp_path / "p") as reader:
        assert [reader.read(digest) for digest in digests] == ordered
