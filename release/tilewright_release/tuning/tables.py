"""Tuned tables as files: TOML in the checkout, a folder for each kind of device, JSON in bundles.

`prebuilt/tuned/<device>/<family>.toml` is written by `tilewright tune time --out` and read by
people; the bundle carries all of them as one small file, which a process reads faster than TOML.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.abi.tuned import FILE_NAME, TunedTable, from_data, from_json, to_json
from tilewright.errors import FormatError
from tilewright.tensor.tuned import user_file
from tilewright_release.signatures import DeclaredEntry
from tilewright_release.tuning.candidates import kernel_name


def read_tuned(folder: Path) -> list[TunedTable]:
    """Read the tables of a checkout; raises FormatError for a wrong or misplaced one."""
    tables = []
    for path in sorted(folder.glob("*/*.toml")):
        table = _read(path)
        if (table.device, table.family) != (path.parent.name, path.stem):
            msg = f"{path} is of {table.family} on {table.device}; its place says otherwise"
            raise FormatError(msg)
        tables.append(table)
    return tables


def write_bundled(tables: Sequence[TunedTable], folder: Path) -> None:
    """Put the tables into a bundle, or take them out where there are none."""
    path = folder / FILE_NAME
    if tables:
        _replace(path, to_json(tables))
    else:
        path.unlink(missing_ok=True)


def write_to_folder(table: TunedTable, folder: Path) -> Path:
    """Write a table below a folder such as prebuilt/tuned; what it does not replace stays in it."""
    path = folder / table.device / f"{table.family}.toml"
    _replace(path, to_toml(_merged(table, _read(path) if path.is_file() else None)))
    return path


def write_to_cache(table: TunedTable) -> Path:
    """Write a table for the user, likewise; raises FormatError if there is no cache."""
    path = user_file(table.device, table.family)
    if path is None:
        msg = "TILEWRIGHT_CACHE_DIR=off leaves no place for a table; give a folder with --out"
        raise FormatError(msg)
    known: TunedTable | None = None
    if path.is_file():
        try:
            known = next(iter(from_json(path.read_text(encoding="utf-8"), source=path)), None)
        except (FormatError, UnicodeError):
            known = None  # launches do not use it either
    _replace(path, to_json([_merged(table, known)]))
    return path


def to_toml(table: TunedTable) -> str:
    """Return the text of a table, a block a line, in order of case and size."""
    data = table.to_data()
    blocks = data.pop("line")
    lines = [f"{name} = {_spell(value)}" for name, value in data.items()]
    for block in blocks:
        lines += ["", "[[line]]", *(f"{name} = {_spell(value)}" for name, value in block.items())]
    return "\n".join(lines) + "\n"


def undeclared_choices(
    tables: Iterable[TunedTable], declared: Iterable[DeclaredEntry]
) -> Iterator[str]:
    """Yield choices of tables that no signature declares: of that kernel, dtype and tiles."""
    known = {_declared_choice(entry) for entry in declared}
    for table in tables:
        for line in table.lines:
            dtype = line.case.partition(" ")[0]
            if (kernel_name(line.choice), dtype, line.choice.tiles) not in known:
                yield (
                    f"the tuned table of {table.family} on {table.device} chooses {line.choice} "
                    f"for {line.case}, which no signature declares"
                )


def _declared_choice(entry: DeclaredEntry) -> tuple[str, str, tuple[object, ...]]:
    signature = entry.signature
    values = signature.constexprs
    depth = values.get("BLOCK_K", values.get("BLOCK_D"))
    tiles = (values.get("BLOCK_M"), values.get("BLOCK_N"), depth)
    _, first = signature.runtime[0]
    loop = (signature.num_warps, signature.num_stages)
    return entry.kernel.name, str(first.dtype), (*tiles, *loop)


def _merged(table: TunedTable, known: TunedTable | None) -> TunedTable:
    lines = {} if known is None else {line.key: line for line in known.lines}
    lines |= {line.key: line for line in table.lines}
    ordered = sorted(lines.values(), key=lambda line: (line.case, line.sizes))
    return table._replace(lines=tuple(ordered))


def _read(path: Path) -> TunedTable:
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise FormatError(msg) from error
    return from_data(data, source=path)


def _replace(path: Path, text: str) -> None:
    """Write a file that appears by one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _spell(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_spell, value))}]"
    return repr(value)
