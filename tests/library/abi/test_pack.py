"""A pack gives back exactly the blobs it was given, or an error: never other bytes."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.abi import pack
from tilewright.abi.pack import CHAIN_FRAMES, FRAME_BYTES, PackReader, write_pack
from tilewright.errors import CorruptBlobError, FormatError

HEADER_BYTES = pack._HEADER.size
ELF = b"\x7fELF\x02\x01\x01\x33"


def noise(size: int, *, seed: int = 0) -> bytes:
    """Return bytes that do not compress."""
    blocks = (hashlib.sha256(b"%d %d" % (seed, i)).digest() for i in range(-(-size // 32)))
    return b"".join(blocks)[:size]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


BLOBS = [ELF + noise(5000), ELF + noise(5000)[:-9] + b"different", b"", b"x", noise(40_000, seed=1)]
BASES = [None, 0, None, None, 1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "some.pack"
    write_pack(target, BLOBS, bases=BASES)
    return target


sizes = st.one_of(
    st.integers(0, 300),
    st.sampled_from([FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES, 600_000]),
)


@given(st.lists(st.tuples(sizes, st.integers(0, 3)), max_size=8))
@settings(max_examples=25)
def test_every_blob_comes_back(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[int, int]]
) -> None:
    target = tmp_path_factory.mktemp("pack") / "p.pack"
    blobs = [noise(size, seed=seed) for size, seed in wanted]
    digests = write_pack(target, blobs)
    assert digests == tuple(sha256(blob) for blob in blobs)
    with PackReader(target) as reader:
        assert [reader.read(digest) for digest in reversed(digests)] == blobs[::-1]
        assert [reader.size(digest) for digest in digests] == [len(blob) for blob in blobs]
        assert sorted(set(digests)) == list(reader)
        assert len(reader) == len(set(digests))


def test_equal_blobs_are_stored_once(tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    write_pack(once, [noise(9000), noise(100)])
    write_pack(twice, [noise(9000), noise(100), noise(9000)])
    assert once.read_bytes() == twice.read_bytes()


def test_the_same_blobs_give_the_same_bytes(tmp_path: Path, path: Path) -> None:
    write_pack(tmp_path / "other.pack", iter(BLOBS), bases=BASES)
    assert (tmp_path / "other.pack").read_bytes() == path.read_bytes()


def test_a_blob_takes_little_beside_one_that_it_resembles(tmp_path: Path) -> None:
    blobs = [noise(5_000) + b"%d" % i for i in range(10)]
    write_pack(tmp_path / "alone", blobs)
    digests = write_pack(tmp_path / "p", blobs, bases=[None] + [0] * 9)
    assert (tmp_path / "alone").stat().st_size > 50_000
    assert (tmp_path / "p").stat().st_size < 7_000
    with PackReader(tmp_path / "p") as reader:
        assert [reader.read(digest) for digest in digests] == blobs


@given(st.data())
@settings(max_examples=40)
def test_bases_change_the_size_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.tuples(sizes, st.integers(0, 3)), max_size=7))
    blobs = [noise(size, seed=seed) for size, seed in wanted]
    bases = [data.draw(st.none() | st.integers(0, i - 1)) if i else None for i in range(len(blobs))]
    target = tmp_path_factory.mktemp("pack") / "p.pack"
    digests = write_pack(target, blobs, bases=bases)
    with PackReader(target) as reader:
        assert [reader.read(digest) for digest in digests] == blobs
        assert all(len(chain(reader, i)) <= CHAIN_FRAMES for i in range(len(reader._frames)))


def chain(reader: PackReader, frame: int) -> list[int]:
    """Return a frame and those it is compressed against."""
    frames = [frame]
    while (base := reader._frames[frames[-1]].base) != pack._NO_BASE:
        frames.append(base)
    return frames


def test_a_chain_of_bases_is_cut_where_it_grows_too_long(tmp_path: Path) -> None:
    blobs = [noise(5_000) + b"%d" % i for i in range(9)]
    digests = write_pack(tmp_path / "p", blobs, bases=[None, *range(8)])
    with PackReader(tmp_path / "p") as reader:
        assert [len(chain(reader, i)) for i in range(9)] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
        assert [reader.read(digest) for digest in digests] == blobs


def test_a_pack_is_no_elf_file_and_shows_none(path: Path) -> None:
    data = path.read_bytes()
    assert data.startswith(pack.MAGIC)
    assert not data.startswith(b"\x7fELF")


def test_frames_are_at_most_256_kib(tmp_path: Path) -> None:
    write_pack(tmp_path / "p", [bytes(3_000_000)])
    with PackReader(tmp_path / "p") as reader:
        assert all(frame.expanded <= 256 * 1024 for frame in reader._frames)
        assert reader.read(sha256(bytes(3_000_000))) == bytes(3_000_000)


def test_a_read_expands_only_the_frames_of_its_blob(tmp_path: Path) -> None:
    blobs = [noise(100_000, seed=seed) for seed in range(5)]
    digests = write_pack(tmp_path / "p", blobs, bases=[None, 0, None, 0, 3])
    with PackReader(tmp_path / "p") as reader:
        assert reader.read(digests[3]) == blobs[3]
        assert list(reader._cache) == [0, 3]


def test_a_blob_that_is_not_there_is_named(path: Path) -> None:
    with PackReader(path) as reader:
        assert sha256(b"absent") not in reader
        with pytest.raises(FormatError, match=f"holds no blob {sha256(b'absent')}.*install"):
            reader.read(sha256(b"absent"))


def test_a_missing_pack_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be opened: No such file"):
        PackReader(tmp_path / "absent.pack")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_and_keeps_nobody_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.pack"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(FormatError, match="it is no file"):
        PackReader(path)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_failing_disk_is_a_format_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with PackReader(path) as reader:

        def fail(*_: int) -> bytes:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "pread", fail)
        with pytest.raises(FormatError, match=f"cannot be read.*{os.strerror(code)}"):
            reader.read(max(reader, key=reader.size))


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_pack(tmp_path / "p", [b"good", "bad"])  # type: ignore[list-item]  # the mistake
    assert list(tmp_path.iterdir()) == []


# Damage


def read_all(target: Path) -> None:
    """Read every blob; every one that comes back is what was asked for."""
    with PackReader(target) as reader:
        for digest in reader:
            assert sha256(reader.read(digest)) == digest


@given(st.data())
@settings(max_examples=300)
def test_no_flipped_bit_gives_other_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    write_pack(folder / "p", BLOBS, bases=BASES)
    content = bytearray((folder / "p").read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "p").write_bytes(content)
    # Two bits of zstd's frame header mean nothing, so a flip may also be harmless.
    try:
        read_all(folder / "p")
    except FormatError:
        return
    with PackReader(folder / "p") as reader:
        assert [reader.read(sha256(blob)) for blob in BLOBS] == BLOBS


def test_every_flip_in_header_and_index_is_refused(path: Path) -> None:
    content = path.read_bytes()
    with PackReader(path) as reader:
        index_end = reader._frames[0].position
    for position in range(index_end):
        changed = bytearray(content)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(FormatError, match=r"is not a usable pack.*install tilewright again"):
            PackReader(path)


def test_every_truncation_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for size in [*range(HEADER_BYTES + 200), *range(HEADER_BYTES + 200, len(content), 997)]:
        path.write_bytes(content[:size])
        with pytest.raises(FormatError):
            PackReader(path)


@pytest.mark.parametrize("tail", [b"\0", b"more"])
def test_bytes_after_the_end_are_refused(path: Path, tail: bytes) -> None:
    path.write_bytes(path.read_bytes() + tail)
    with pytest.raises(FormatError, match=r"it has \d+ bytes instead of"):
        PackReader(path)


def test_a_zeroed_file_is_refused(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(FormatError, match="it begins with"):
        PackReader(path)


def test_zeroed_frames_are_a_corrupt_blob(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with PackReader(path) as reader:
        start = reader._frames[0].position
    content[start:] = bytes(len(content) - start)
    path.write_bytes(content)
    with PackReader(path) as reader, pytest.raises(CorruptBlobError, match="cannot be expanded"):
        reader.read(sha256(BLOBS[0]))


def test_a_file_cut_while_it_is_open_is_refused(path: Path) -> None:
    with PackReader(path) as reader:
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(FormatError, match="it ends at byte"):
            reader.read(sha256(BLOBS[0]))


def test_a_pack_of_another_version_is_refused(path: Path) -> None:
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, len(pack.MAGIC), 1)
    path.write_bytes(content)
    with pytest.raises(FormatError, match="of version 1, this library reads 2"):
        PackReader(path)


# Forgeries: files that are consistent in themselves but lie


def forge(
    target: Path,
    frames: list[tuple[bytes, int]],
    blobs: list[tuple[bytes, int, int]],
    *,
    bases: Sequence[int] = (pack._NO_BASE,) * 9,
) -> None:
    """Write a pack with a valid index over the given (stored, expanded size) frames and places."""
    index = b"".join(
        pack._FRAME.pack(len(stored), size, base)
        for (stored, size), base in zip(frames, bases, strict=False)
    )
    index += b"".join(pack._BLOB.pack(*blob) for blob in blobs)
    size = HEADER_BYTES + len(index) + sum(len(stored) for stored, _ in frames)
    checked = pack._CHECKED.pack(pack.MAGIC, pack.VERSION, 0, size, len(frames), len(blobs))
    header = checked + hashlib.sha256(checked + index).digest()
    target.write_bytes(header + index + b"".join(stored for stored, _ in frames))


def test_swapped_bytes_under_a_good_index_are_a_corrupt_blob(tmp_path: Path) -> None:
    wanted = hashlib.sha256(b"right").digest()
    forge(tmp_path / "p", [(zstandard.compress(b"wrong"), 5)], [(wanted, 0, 5)])
    with (
        PackReader(tmp_path / "p") as reader,
        pytest.raises(CorruptBlobError, match="bytes have sha256"),
    ):
        reader.read(wanted.hex())


def test_a_frame_that_claims_gigabytes_is_not_expanded(tmp_path: Path) -> None:
    # A zstd frame whose header says 4 TiB, with an index that says 16 bytes.
    bomb = struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 42) + b"\x01\x00\x00"
    wanted = hashlib.sha256(b"x").digest()
    forge(tmp_path / "p", [(bomb, 16)], [(wanted, 0, 16)])
    with PackReader(tmp_path / "p") as reader, pytest.raises(CorruptBlobError, match="claims"):
        reader.read(wanted.hex())


def test_a_frame_without_a_size_is_not_expanded(tmp_path: Path) -> None:
    stored = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000_000))
    wanted = hashlib.sha256(b"x").digest()
    forge(tmp_path / "p", [(stored, 16)], [(wanted, 0, 16)])
    with PackReader(tmp_path / "p") as reader, pytest.raises(CorruptBlobError, match="claims"):
        reader.read(wanted.hex())


@pytest.mark.parametrize(
    ("expanded", "place", "reason"),
    [
        (FRAME_BYTES + 1, (0, 5), "claims to expand"),
        (0, (0, 0), "claims to expand"),
        (5, (0, 6), "outside the frames"),
        (5, (0, 3), "outside the frames"),
        (5, (1, 1), "outside the frames"),
        (5, (9, 0), "outside the frames"),
        (5, (0, 2**60), "outside the frames"),
    ],
)
def test_an_index_that_points_outside_is_refused(
    tmp_path: Path, expanded: int, place: tuple[int, int], reason: str
) -> None:
    forge(tmp_path / "p", [(zstandard.compress(b"right"), expanded)], [(bytes(32), *place)])
    with pytest.raises(FormatError, match=reason), PackReader(tmp_path / "p") as reader:
        reader.read(bytes(32).hex())


@pytest.mark.parametrize(
    ("bases", "reason"),
    [
        ((0,), "frame 0 has the base 0"),
        ((pack._NO_BASE, 2, 1), "frame 1 has the base 2"),
        ((pack._NO_BASE, 7), "frame 1 has the base 7"),
        ((pack._NO_BASE, 0, 1, 2, 3), "frame 4 needs 5 frames"),
    ],
    ids=["itself", "ring", "absent", "long"],
)
def test_bases_in_rings_and_long_chains_are_refused(
    tmp_path: Path, bases: tuple[int, ...], reason: str
) -> None:
    frames = [(zstandard.compress(b"right"), 5)] * len(bases)
    forge(tmp_path / "p", frames, [(bytes(32), len(bases) - 1, 5)], bases=bases)
    with PackReader(tmp_path / "p") as reader, pytest.raises(FormatError, match=reason):
        reader.read(bytes(32).hex())


def test_a_damaged_base_is_a_corrupt_blob(tmp_path: Path) -> None:
    blobs = [noise(5_000), noise(5_000) + b"more"]
    digests = write_pack(tmp_path / "p", blobs, bases=[None, 0])
    content = bytearray((tmp_path / "p").read_bytes())
    with PackReader(tmp_path / "p") as reader:
        middle = reader._frames[0].position + reader._frames[0].stored // 2
    content[middle] ^= 0xFF
    (tmp_path / "p").write_bytes(content)
    with PackReader(tmp_path / "p") as reader:
        for digest in digests:
            with pytest.raises(CorruptBlobError, match="is damaged"):
                reader.read(digest)


def test_counts_larger_than_the_file_are_refused(tmp_path: Path) -> None:
    checked = pack._CHECKED.pack(pack.MAGIC, 2, 0, HEADER_BYTES, 2**32 - 1, 2**32 - 1)
    (tmp_path / "p").write_bytes(checked + bytes(32))
    with pytest.raises(FormatError, match="its index does not fit"):
        PackReader(tmp_path / "p")


# Use


def test_threads_share_a_reader(tmp_path: Path) -> None:
    blobs = [noise(150_000, seed=seed) for seed in range(12)]
    digests = write_pack(tmp_path / "p", blobs)
    wrong: list[int] = []
    with PackReader(tmp_path / "p") as reader:

        def work(offset: int) -> None:
            for i in range(24):
                at = (i * 5 + offset) % len(blobs)
                if reader.read(digests[at]) != blobs[at]:
                    wrong.append(at)

        threads = [threading.Thread(target=work, args=(offset,)) for offset in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_expanded_frames_kept_are_bounded(tmp_path: Path) -> None:
    blobs = [noise(200_000, seed=seed) for seed in range(9)]
    digests = write_pack(tmp_path / "p", blobs)
    with PackReader(tmp_path / "p") as reader:
        for digest in digests:
            reader.read(digest)
        assert len(reader._cache) == CHAIN_FRAMES


def test_zstandard_is_imported_only_to_expand(path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from tilewright.abi.pack import PackReader\n"
        f"reader = PackReader(pathlib.Path({str(path)!r}))\n"
        "assert 'zstandard' not in sys.modules\n"
        "reader.read(next(iter(reader)))\n"
        "assert 'zstandard' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
