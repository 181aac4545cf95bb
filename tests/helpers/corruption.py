"""Seeded damage to the files of a bundle and of the cache, and what it is called.

Each mutation takes the folder's files and one of them, and changes the disk as a failing disk, a
killed copy, a careless script or a stranger would. All draws come from the generator given.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Damage:
    """One mutation: its name and the file, with what stood in the way when nothing was changed."""

    name: str
    path: Path
    is_void: bool = False


Mutation = Callable[[random.Random, Path, Sequence[Path]], None]


def damage(draw: random.Random, files: Sequence[Path]) -> Damage:
    """Damage one of the files; `is_void` when the draw happened to change nothing."""
    path = draw.choice(files)
    before = _state(path)
    others = _state_of(files)
    name = draw.choice(sorted(MUTATIONS))
    MUTATIONS[name](draw, path, files)
    return Damage(name, path, is_void=_state(path) == before and _state_of(files) == others)


def _state_of(files: Sequence[Path]) -> list[tuple[object, ...]]:
    return [_state(path) for path in files]


def _state(path: Path) -> tuple[object, ...]:
    if not path.exists() or not path.is_file():
        return (path.is_symlink(), path.exists())
    return (path.read_bytes(), path.stat().st_mode)


def _flip_bits(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    data = bytearray(path.read_bytes())
    for _bit in range(draw.choice((1, 1, 1, 8))):
        place = draw.randrange(len(data))
        data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def _change_bytes(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    data = bytearray(path.read_bytes())
    start = draw.randrange(len(data))
    size = min(draw.randrange(1, 64), len(data) - start)
    data[start : start + size] = draw.randbytes(size)
    path.write_bytes(data)


def _truncate(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def _zero(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    data = bytearray(path.read_bytes())
    unit = draw.choice((16, 512, PAGE))
    start = draw.randrange(-(-len(data) // unit)) * unit
    size = min(unit, len(data) - start)
    data[start : start + size] = bytes(size)
    path.write_bytes(data)


def _append(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 200)))


def _swap_parts(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    """Exchange two stretches, as of two blobs or of two records."""
    data = bytearray(path.read_bytes())
    size = draw.randrange(1, max(2, len(data) // 4))
    one, two = draw.randrange(len(data) - size + 1), draw.randrange(len(data) - size + 1)
    if abs(one - two) >= size:
        data[one : one + size], data[two : two + size] = (
            data[two : two + size],
            data[one : one + size],
        )
    path.write_bytes(data)


def _swap_lines(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    lines = path.read_bytes().split(b"\n")
    one, two = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    path.write_bytes(b"\n".join(lines))


def _swap_files(draw: random.Random, path: Path, files: Sequence[Path]) -> None:
    other = draw.choice(files)
    data = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(data)


def _copy_over(draw: random.Random, path: Path, files: Sequence[Path]) -> None:
    other = draw.choice(files)
    if other != path:
        shutil.copyfile(other, path)


def _delete(_draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    path.unlink()


def _empty(_draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    path.write_bytes(b"")


def _permissions(draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    path.chmod(draw.choice((0o000, 0o200, 0o666, 0o777, 0o444)))


def _to_folder(_draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    path.unlink()
    path.mkdir()


def _to_pipe(_draw: random.Random, path: Path, _: Sequence[Path]) -> None:
    path.unlink()
    os.mkfifo(path)


def _to_link(draw: random.Random, path: Path, files: Sequence[Path]) -> None:
    """Put a link in its place: to nowhere, to itself, or to another of the files."""
    target = draw.choice((path.with_name("nowhere"), path, draw.choice(files)))
    path.unlink()
    path.symlink_to(target)


MUTATIONS: dict[str, Mutation] = {
    "bits": _flip_bits,
    "bytes": _change_bytes,
    "truncation": _truncate,
    "zeros": _zero,
    "garbage at the end": _append,
    "swapped parts": _swap_parts,
    "swapped lines": _swap_lines,
    "swapped files": _swap_files,
    "another's contents": _copy_over,
    "deletion": _delete,
    "emptied": _empty,
    "permissions": _permissions,
    "a folder instead": _to_folder,
    "a pipe instead": _to_pipe,
    "a link instead": _to_link,
}
