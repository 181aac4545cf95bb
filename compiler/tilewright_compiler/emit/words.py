"""Moving a vector of elements between registers and global memory as words, predicated or not.

A vector travels as 32- or 64-bit words, or as one narrower integer. Plain accesses are LLVM's, so
that it can fold addresses; predicates and cache operators need inline PTX, which costs no branch.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.abi.dtypes import DType
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import POINTER, dtype_text, memory_dtype
from tilewright_compiler.emit.vectors import extract_elements, insert_elements

_CONSTRAINTS = {16: "h", 32: "r", 64: "l"}


@dataclass(frozen=True, slots=True)
class Words:
    """How `elements` elements of a dtype travel: `count` words of `bits` bits."""

    dtype: DType
    elements: int
    bits: int
    count: int

    @staticmethod
    def of(dtype: DType, elements: int) -> Words:
        """Choose the words: 64-bit elements as they are, others in words of up to 32 bits."""
        stored = memory_dtype(dtype).bits
        total = stored * elements
        bits = max(stored, min(total, 32))
        return Words(dtype, elements, bits, total // bits)

    @property
    def type(self) -> str:
        """MLIR type of a word."""
        return f"i{self.bits}"

    @property
    def vector_type(self) -> str:
        """MLIR type of all words together."""
        return self.type if self.count == 1 else f"vector<{self.count}x{self.type}>"

    @property
    def size_bytes(self) -> int:
        """Bytes of all words; the address is aligned to it."""
        return self.count * self.bits // 8

    @property
    def register_type(self) -> str:
        """MLIR type of the PTX register of a word: there are none of 8 bits."""
        return f"i{max(16, self.bits)}"

    @property
    def constraint(self) -> str:
        """The letter of that register in inline assembly."""
        return _CONSTRAINTS[max(16, self.bits)]

    @property
    def ptx_type(self) -> str:
        """The end of a PTX ld or st."""
        vector = f".v{self.count}" if self.count > 1 else ""
        return f"{vector}.{'u' if self.bits == 8 else 'b'}{self.bits}"

    def zeros(self, text: FunctionText) -> tuple[str, ...]:
        """Return words of zeros."""
        return (text.raw_constant(f"0 : {self.type}", self.type),) * self.count


def pack(text: FunctionText, words: Words, elements: Sequence[str]) -> tuple[str, ...]:
    """Return the words that hold the elements."""
    type_ = dtype_text(words.dtype)
    if words.dtype.bits == 1:
        type_ = "i8"
        elements = [text.value(f"llvm.zext {name} : i1 to i8") for name in elements]
    per_word = words.elements // words.count
    result = []
    for first in range(0, words.elements, per_word):
        word, word_type = insert_elements(text, elements[first : first + per_word], type_)
        if word_type != words.type:
            word = text.value(f"llvm.bitcast {word} : {word_type} to {words.type}")
        result.append(word)
    return tuple(result)


def unpack(text: FunctionText, words: Words, names: Sequence[str]) -> tuple[str, ...]:
    """Return the elements that the words hold."""
    type_ = dtype_text(memory_dtype(words.dtype))
    per_word = words.elements // words.count
    word_type = type_ if per_word == 1 else f"vector<{per_word}x{type_}>"
    elements: list[str] = []
    for name in names:
        word = name
        if word_type != words.type:
            word = text.value(f"llvm.bitcast {name} : {words.type} to {word_type}")
        halves = extract_elements(text, word, type_, per_word)
        if per_word == 2:
            text.halves.update({half: (name, bool(place)) for place, half in enumerate(halves)})
        elements += halves
    if words.dtype.bits == 1:
        zero = text.raw_constant("0 : i8", "i8")
        return tuple(text.value(f'llvm.icmp "ne" {name}, {zero} : i8') for name in elements)
    return tuple(elements)


def load(
    text: FunctionText,
    words: Words,
    address: str,
    *,
    predicate: str | None = None,
    initial: Sequence[str] = (),
    cache: str = "",
) -> tuple[str, ...]:
    """Read the words at `address`; where `predicate` is false, give `initial` unread."""
    if predicate is None and not cache:
        vector = text.value(
            f"llvm.load {address} {{alignment = {words.size_bytes} : i64}} : "
            f"{POINTER} -> {words.vector_type}"
        )
        return extract_elements(text, vector, words.type, words.count)
    count = words.count
    outputs = [f"={words.constraint}"] * count
    guard, operands, types = "", [address], [POINTER]
    constraints = [*outputs, "l"]
    if predicate is not None:
        guard = f"@${count + 1} "
        operands += [predicate, *(_widen(text, words, name) for name in initial)]
        types += ["i1", *[words.register_type] * count]
        constraints += ["b", *(str(index) for index in range(count))]
    instruction = f"{guard}ld.global{_dot(cache)}{words.ptx_type} {_list(0, count)}, [${count}];"
    results = inline_ptx(
        text, instruction, constraints, operands, types, [words.register_type] * count
    )
    return tuple(_narrow(text, words, name) for name in results)


def store(
    text: FunctionText,
    words: Words,
    address: str,
    values: Sequence[str],
    *,
    predicate: str | None = None,
    cache: str = "",
) -> None:
    """Write the words at `address`, where `predicate` is true."""
    count = words.count
    if predicate is None and not cache:
        vector, type_ = insert_elements(text, values, words.type)
        text.line(
            f"llvm.store {vector}, {address} {{alignment = {words.size_bytes} : i64}} : "
            f"{type_}, {POINTER}"
        )
        return
    operands = [address, *(_widen(text, words, name) for name in values)]
    types = [POINTER, *[words.register_type] * count]
    constraints = ["l", *[words.constraint] * count]
    guard = ""
    if predicate is not None:
        guard = f"@${count + 1} "
        operands.append(predicate)
        types.append("i1")
        constraints.append("b")
    instruction = f"{guard}st.global{_dot(cache)}{words.ptx_type} [$0], {_list(1, count)};"
    inline_ptx(text, instruction, constraints, operands, types, [])


def inline_ptx(
    text: FunctionText,
    instruction: str,
    constraints: Sequence[str],
    operands: Sequence[str],
    types: Sequence[str],
    results: Sequence[str],
) -> tuple[str, ...]:
    """Emit a PTX instruction; return its results, of the types that `results` lists."""
    # The memory clobber and the side effect keep it in order with every other access.
    if not results:
        result_type = "()"
    elif len(results) == 1:
        result_type = results[0]
    else:
        result_type = f"!llvm.struct<({', '.join(results)})>"
    operation = (
        f'llvm.inline_asm has_side_effects asm_dialect = att "{instruction}", '
        f'"{",".join([*constraints, "~{memory}"])}" {", ".join(operands)} : '
        f"({', '.join(types)}) -> {result_type}"
    )
    if not results:
        text.line(operation)
        return ()
    value = text.value(operation)
    if len(results) == 1:
        return (value,)
    return tuple(
        text.value(f"llvm.extractvalue {value}[{index}] : {result_type}")
        for index in range(len(results))
    )


def _list(first: int, count: int) -> str:
    names = ", ".join(f"${index}" for index in range(first, first + count))
    return f"{{{names}}}" if count > 1 else names


def _dot(cache: str) -> str:
    return f".{cache}" if cache else ""


def _widen(text: FunctionText, words: Words, name: str) -> str:
    return text.value(f"llvm.zext {name} : i8 to i16") if words.bits == 8 else name


def _narrow(text: FunctionText, words: Words, name: str) -> str:
    return text.value(f"llvm.trunc {name} : i16 to i8") if words.bits == 8 else name
