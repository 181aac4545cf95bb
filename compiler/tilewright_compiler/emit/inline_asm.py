"""PTX of the kernel's author: `pack` registers of each operand at a time, packed into words.

If a thread holds fewer elements than fill the last group, the last one is repeated and the results
of the repetitions are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tilewright.abi.dtypes import DType
from tilewright_compiler.emit.kernel import Emit, Fragment, KernelEmitter, num_registers
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import dtype_text, memory_dtype
from tilewright_compiler.emit.vectors import extract_elements, insert_elements
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.inline_asm import (
    NAMES,
    arguments_of,
    parse_constraints,
    registers_of,
)
from tilewright_compiler.ir.types import element_dtype

_TYPES = {"h": "i16", "r": "i32", "l": "i64", "f": "f32", "d": "f64"}


def _emit_inline_asm(emitter: KernelEmitter, operation: Operation) -> None:
    pack: int = operation.attributes["pack"]
    count = num_registers(operation.results[0].type)
    fragments = [emitter.fragment(value) for value in arguments_of(operation)]
    results: list[list[str]] = [[] for _ in operation.results]
    computed: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for first in range(0, count, pack):
        places = [min(first + index, count - 1) for index in range(pack)]
        groups = [tuple(fragment[place] for place in places) for fragment in fragments]
        key = tuple(name for group in groups for name in group)
        if key not in computed or operation.name == "inline_asm_effect":
            computed[key] = _apply(emitter.text, operation, groups)
        for names, made in zip(results, computed[key], strict=True):
            names += made[: min(pack, count - first)]
    for result, names in zip(operation.results, results, strict=True):
        emitter.define(result, names)


def _apply(
    text: FunctionText, operation: Operation, groups: Sequence[Fragment]
) -> list[tuple[str, ...]]:
    """Run the PTX on a group of elements of each argument; return those of each result."""
    parts = parse_constraints(operation.attributes["constraints"])
    assert not isinstance(parts, str), "the verifier checks constraints"
    pack: int = operation.attributes["pack"]
    letters = iter(parts.arguments)
    operands = [
        word
        for value, group in zip(arguments_of(operation), groups, strict=True)
        for word in _packed(text, group, element_dtype(value.type), letters)
    ]
    words = iter(_call(text, operation, parts.results, parts.arguments, operands))
    return [
        _unpacked(text, words, element_dtype(result.type), pack) for result in operation.results
    ]


def _call(
    text: FunctionText,
    operation: Operation,
    results: Sequence[str],
    arguments: Sequence[str],
    operands: Sequence[str],
) -> list[tuple[str, str]]:
    """Return the registers that the PTX gives, each with its letter."""
    types = [_TYPES[letter] for letter in results]
    given = ", ".join(_TYPES[letter] for letter in arguments)
    result = types[0] if len(types) == 1 else f"!llvm.struct<({', '.join(types)})>"
    effect = "has_side_effects " if operation.name == "inline_asm_effect" else ""
    constraints = "".join(operation.attributes["constraints"].split())
    listed = "".join(f"{', ' if index else ' '}{name}" for index, name in enumerate(operands))
    value = text.value(
        f'llvm.inline_asm {effect}asm_dialect = att "{_quoted(operation.attributes["asm"])}", '
        f'"{_quoted(constraints)}"{listed} : ({given}) -> {result}'
    )
    if len(types) == 1:
        return [(value, results[0])]
    return [
        (text.value(f"llvm.extractvalue {value}[{index}] : {result}"), letter)
        for index, letter in enumerate(results)
    ]


def _packed(
    text: FunctionText, elements: Fragment, dtype: DType, letters: Iterator[str]
) -> list[str]:
    """Return the registers that hold elements, as their letters say."""
    stored = memory_dtype(dtype)
    if dtype.bits == 1:
        elements = tuple(text.value(f"llvm.zext {name} : i1 to i8") for name in elements)
    type_ = dtype_text(stored)
    if stored.bits >= 32:
        return [_cast(text, name, type_, _TYPES[next(letters)]) for name in elements]
    per_word = 32 // stored.bits
    words = []
    for first in range(0, len(elements), per_word):
        target = _TYPES[next(letters)]
        part = list(elements[first : first + per_word])
        if target == "i16":
            words.append(_cast(text, part[0], type_, target))
            continue
        part += [text.constant(0, stored)] * (per_word - len(part))
        vector, vector_type = insert_elements(text, part, type_)
        words.append(_cast(text, vector, vector_type, target))
    return words


def _unpacked(
    text: FunctionText,
    words: Iterator[tuple[str, str]],
    dtype: DType,
    pack: int,
) -> tuple[str, ...]:
    """Return the elements of a result that its registers hold."""
    stored = memory_dtype(dtype)
    type_ = dtype_text(stored)
    per_word = max(1, 32 // stored.bits)
    elements: list[str] = []
    for _ in range(registers_of(dtype, pack)):
        word, letter = next(words)
        if per_word == 1 or letter == "h":
            elements.append(_cast(text, word, _TYPES[letter], type_))
            continue
        vector = _cast(text, word, "i32", f"vector<{per_word}x{type_}>")
        elements += extract_elements(text, vector, type_, per_word)
    elements = elements[:pack]
    if dtype.bits == 1:
        zero = text.constant(0, stored)
        elements = [text.value(f'llvm.icmp "ne" {name}, {zero} : i8') for name in elements]
    return tuple(elements)


def _cast(text: FunctionText, name: str, source: str, target: str) -> str:
    return name if source == target else text.value(f"llvm.bitcast {name} : {source} to {target}")


def _quoted(asm: str) -> str:
    """Return the text inside an MLIR string literal."""
    return "".join(
        character
        if " " <= character <= "~" and character not in '"\\'
        else f"\\{ord(character):02X}"
        for character in asm
    )


EMITTERS: Mapping[str, Emit] = MappingProxyType(dict.fromkeys(NAMES, _emit_inline_asm))
