"""PTX text as a list of instructions: enough of the language for what the compiler emits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

_REGISTERS = re.compile(r"\.reg \.(\w+)\s+([%\w, ]+?)(?:<\d+>)?;")
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.(\w+)[^,)]*?(\w+(?:\[\d+\])?)\s*(?=[,)\n])")
_ARRAY = re.compile(r"\.(?:global|const)\s.*?\.(b\d+|u\d+) (\w+)\[\d+\] = \{([^}]*)\};", re.DOTALL)
_LOCAL = re.compile(r"\.local .*?\.b8\s+(\w+)\[(\d+)\];")
_SHARED = re.compile(r"\.extern \.shared .*?\.b8 (\w+)\[\];")
_LABEL = re.compile(r"^(\$?\w+):$")
_INNER_LABEL = re.compile(r"^(\w+):\s+(?=\w)")
_GUARD = re.compile(r"^@(!?)(%?\w+)\s+(.*)$", re.DOTALL)
_OPERANDS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s|]+")


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode.parts operands;`"""

    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""
    guard_is_negated: bool = False

    @cached_property
    def name(self) -> str:
        """The opcode with all its parts."""
        return ".".join(self.opcode)

    def __str__(self) -> str:
        return f"{self.name} {', '.join(self.operands)}"


@dataclass
class Program:
    """One entry with all that it declares. `parameters` are (name, type) in order."""

    entry: str = ""
    num_threads: int = 0
    parameters: list[tuple[str, str]] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    local: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)


@lru_cache(maxsize=64)
def parse(text: str) -> Program:
    """Parse PTX with one entry. A parameter that is bytes by value has the type `b8[size]`.

    Nobody may change what this gives: texts that are run several times have one program.
    """
    text = re.sub(r"//[^\n]*", "", text)
    head, _, rest = text.partition(".visible .entry ")
    header, _, body = rest.partition("\n{")
    program = Program(entry=header[: header.index("(")])
    for type_, name in _PARAMETER.findall(header):
        name, bracket, size = name.partition("[")
        program.parameters.append((name, type_ + bracket + size))
    threads = re.search(r"\.reqntid (\d+)", header)
    assert threads is not None, "the entry states its number of threads"
    program.num_threads = int(threads[1])
    for type_, name, values in _ARRAY.findall(head):
        program.arrays[name] = (type_, [int(value, 0) for value in values.split(",")])
    program.shared = tuple(_SHARED.findall(head))
    program.local = {name: int(size) for name, size in _LOCAL.findall(body)}
    # Inline PTX declares registers of its own; equal names there have equal types.
    program.registers = {
        name.strip(): type_
        for type_, names in _REGISTERS.findall(body)
        for name in names.split(",")
    }
    for statement in _statements(body):
        label = _LABEL.match(statement) or _INNER_LABEL.match(statement)
        if label:
            program.labels[label[1]] = len(program.instructions)
            statement = statement[label.end() :]
        if not statement:
            continue
        if statement[0] not in ".}{":
            program.instructions.append(_instruction(statement))
    return program


def _statements(body: str) -> Iterator[str]:
    """Yield labels, braces and statements; one statement may take several lines."""
    begun = ""
    for line in body.splitlines():
        if not begun and (_LABEL.match(line.strip()) or line.strip() in "{}"):
            yield from filter(None, [line.strip()])
            continue
        *ended, begun = f"{begun} {line}".split(";")
        yield from filter(None, (part.strip() for part in ended))
        begun = begun.strip().strip("}")


def _instruction(statement: str) -> Instruction:
    guard, is_negated = "", False
    guarded = _GUARD.match(statement)
    if guarded:
        is_negated, guard, statement = bool(guarded[1]), guarded[2], guarded[3]
    opcode, _, operands = statement.partition(" ") if " " in statement else (statement, "", "")
    opcode, _, tabbed = opcode.partition("\t")
    found = _OPERANDS.findall(f"{tabbed} {operands}")
    return Instruction(tuple(opcode.split(".")), tuple(found), guard, is_negated)


def names_of(operand: str) -> list[str]:
    """Return the registers of a braced list, or the one register."""
    return operand.strip(" {}").replace(" ", "").split(",")
