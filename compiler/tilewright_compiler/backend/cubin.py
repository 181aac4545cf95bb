"""What a cubin says of itself, read from its ELF, and the check that it is what was asked for.

Targets, entry, parameters and threads are compared with the launch ABI before a cubin may enter a
pack: a mismatch would launch with garbage for arguments. The fields are undocumented; what they
mean for ptxas 12.9 was measured, and files made by it are the tests.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass

_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PARAMETER = struct.Struct("<IHHI")

_MAGIC = b"\x7fELF"
_MACHINE_CUDA = 190
_TYPE_EXECUTABLE = 2
_SYMBOL_FUNCTION = 2
_BIND_GLOBAL = 1
_SECTION_SYMBOLS = 2
_SECTION_NO_BITS = 8

# (EI_OSABI, EI_ABIVERSION) of ptxas 12.9: the first up to sm_90a, which drivers from r525 on load.
_CONTAINER_12 = (0x33, 7)
_CONTAINER_13 = (0x41, 8)

# Where parameters begin in their constant bank up to sm_90a: at a multiple of 16 only. A tensor map
# is aligned by its address there, not by its offset.
_PARAMETER_BASE = 0x210

# Attributes of .nv.info.<kernel>; format 4 carries a payload, the others a 16-bit value.
_FORMAT_PAYLOAD = 4
_ATTRIBUTE_PARAMETER_BYTES = 0x19
_ATTRIBUTE_PARAMETER = 0x17
_ATTRIBUTE_REQUIRED_THREADS = 0x10

_COMMAND_LINE_TARGET = re.compile(rb"-arch[ =](sm_\d+[af]?)")


@dataclass(frozen=True, slots=True)
class CubinHeader:
    """What the ELF says. `parameters` are (offset, size in bytes) in order.

    `recorded_target` is what the tool's note names, where it has one: only it tells `f` from plain.
    """

    container: tuple[int, int]
    major: int
    minor: int
    is_exact: bool
    recorded_target: str | None
    entries: tuple[str, ...]
    parameters: tuple[tuple[int, int], ...]
    parameter_bytes: int
    required_threads: tuple[int, int, int] | None


def read_cubin(data: bytes) -> CubinHeader:
    """Read a cubin with one kernel; raises InternalCompilerError if it is none, or is cut short."""
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, KeyError) as error:
        msg = f"not a readable cubin of {len(data)} bytes: {error!r}"
        raise InternalCompilerError(msg) from error


def check_cubin(data: bytes, *, target: Target, abi: LaunchAbi) -> CubinHeader:
    """Read a cubin; raise InternalCompilerError if it disagrees with target or launch ABI."""
    header = read_cubin(data)
    wanted = _parameters(abi)
    threads = (abi.num_threads, 1, 1)
    container = _CONTAINER_13 if target.major >= 10 else _CONTAINER_12
    checks: tuple[tuple[str, object, object], ...] = (
        ("compute capability", (header.major, header.minor), (target.major, target.minor)),
        ("suffix a", header.is_exact, target.suffix == "a"),
        ("recorded target", header.recorded_target or str(target), str(target)),
        ("ELF OS ABI and version", header.container, container),
        ("entries", header.entries, (abi.entry,)),
        ("parameters (offset, size)", header.parameters, wanted),
        ("parameter bytes", header.parameter_bytes, wanted[-1][0] + wanted[-1][1] if wanted else 0),
        ("required threads", header.required_threads, threads),
    )
    wrong = [f"{what} is {found}, not {want}" for what, found, want in checks if found != want]
    if wrong:
        msg = f"cubin of {abi.entry} for {target} is not what was asked for: {'; '.join(wrong)}"
        raise InternalCompilerError(msg)
    return header


def _parameters(abi: LaunchAbi) -> tuple[tuple[int, int], ...]:
    """Return offset and size of each parameter, as ptxas lays them out."""
    found: list[tuple[int, int]] = []
    end = _PARAMETER_BASE
    for parameter in abi.parameters:
        size = parameter.size_bytes
        start = -(-end // size) * size
        found.append((start - _PARAMETER_BASE, size))
        end = start + size
    return tuple(found)


def _read(data: bytes) -> CubinHeader:
    head = _HEADER.unpack_from(data)
    magic, elf_class, _, _, os_abi, abi_version, type_, machine = head[:8]
    if (magic, elf_class, type_, machine) != (_MAGIC, 2, _TYPE_EXECUTABLE, _MACHINE_CUDA):
        msg = (
            f"not a cubin: ELF magic {magic!r}, class {elf_class}, type {type_}, machine {machine}"
        )
        raise InternalCompilerError(msg)
    section_offset, flags, section_count, names_index = head[11], head[12], head[17], head[18]
    rows = [
        _SECTION.unpack_from(data, section_offset + index * _SECTION.size)
        for index in range(section_count)
    ]
    program_end = head[10] + head[14] * head[15]
    ends = [row[4] + row[5] for row in rows if row[1] != _SECTION_NO_BITS]
    if max(program_end, *ends) > len(data):
        msg = f"cubin is cut short: {len(data)} bytes of {max(program_end, *ends)}"
        raise InternalCompilerError(msg)
    names_row = rows[names_index]
    sections = {_string(data, names_row[4] + row[0]): row for row in rows}
    entries = tuple(_entries(data, rows))
    parameters: list[tuple[int, int, int]] = []
    parameter_bytes, threads = 0, None
    for name in entries:
        for attribute, value, payload in _attributes(_content(data, sections[f".nv.info.{name}"])):
            if attribute == _ATTRIBUTE_PARAMETER:
                _, ordinal, offset, packed = _PARAMETER.unpack(payload)
                parameters.append((ordinal, offset, packed >> 18))
            elif attribute == _ATTRIBUTE_PARAMETER_BYTES:
                parameter_bytes = value
            elif attribute == _ATTRIBUTE_REQUIRED_THREADS:
                threads = struct.unpack("<III", payload)
    major, minor, is_exact = _target((os_abi, abi_version), flags)
    note = sections.get(".note.nv.tkinfo")
    recorded = _COMMAND_LINE_TARGET.search(_content(data, note)) if note else None
    return CubinHeader(
        container=(os_abi, abi_version),
        major=major,
        minor=minor,
        is_exact=is_exact,
        recorded_target=recorded[1].decode() if recorded else None,
        entries=entries,
        parameters=tuple((offset, size) for _, offset, size in sorted(parameters)),
        parameter_bytes=parameter_bytes,
        required_threads=threads,
    )


def _target(container: tuple[int, int], flags: int) -> tuple[int, int, bool]:
    """Return major, minor and whether the suffix is `a`, by the rules of ptxas 12.9."""
    if container == _CONTAINER_12:
        return *divmod(flags & 0xFF, 10), bool(flags & 0x800)
    if container == _CONTAINER_13:
        return *divmod(flags >> 8 & 0xFF, 10), bool(flags & 0x08)
    msg = f"cubin with ELF OS ABI {container[0]:#x} version {container[1]}: no known ptxas makes it"
    raise InternalCompilerError(msg)


def _entries(data: bytes, rows: list[tuple[int, ...]]) -> Iterator[str]:
    for row in rows:
        if row[1] != _SECTION_SYMBOLS:
            continue
        strings = rows[row[6]]
        for offset in range(row[4], row[4] + row[5], _SYMBOL.size):
            name, info, _, section, *_ = _SYMBOL.unpack_from(data, offset)
            # In no section is what the driver links, such as __assertfail.
            if info == _BIND_GLOBAL << 4 | _SYMBOL_FUNCTION and section:
                yield _string(data, strings[4] + name)


def _attributes(section: bytes) -> Iterator[tuple[int, int, bytes]]:
    position = 0
    while position < len(section):
        format_, attribute, value = struct.unpack_from("<BBH", section, position)
        position += 4
        length = value if format_ == _FORMAT_PAYLOAD else 0
        if position + length > len(section):
            msg = f"attribute {attribute:#x} runs past the end of its section"
            raise InternalCompilerError(msg)
        yield attribute, value, section[position : position + length]
        position += length


def _content(data: bytes, row: tuple[int, ...]) -> bytes:
    return data[row[4] : row[4] + row[5]]


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
