"""Tile IR -> text: deterministic, and read back exactly by `ir.parser`.

    signature (x:*f32:16, n:i64:16s, BLOCK=128) fast num_warps=4 num_stages=3

    kernel @scale(%x: ptr<f32>, %n: i64) {
      %pid = program_id {axis = 0} : i64
      %0 = for %pid, %n, %pid, %pid : i64 (%i: i64, %sum: i64) {
        %1 = add %sum, %i : i64
        yield %1
      }
      return
    }

Only result and argument types are printed: an operand's type is that of its definition, which
always precedes it because control flow is structured. A value keeps its name where that is free in
the function, gets a suffix where it is not, and a number where it has none, so that equal modules
print equal text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.abi.dtypes import DType
from tilewright.errors import SourceLocation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value

_INDENT = "  "
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# The word before each further region; the parser takes any word there.
_REGION_WORDS = {"if": ("", "else "), "while": ("", "do "), "roles": ("", "consumer ")}


def print_module(
    module: Module, *, locations: bool = False, notes: Mapping[Operation, str] | None = None
) -> str:
    """Return the module's text. `notes` puts a comment with that message under an operation."""
    lines = [f"signature {module.signature}"]
    if module.attributes:
        lines.append(f"attributes {_attributes(module.attributes)}")
    for function in module.functions.values():
        printer = _FunctionPrinter(locations=locations, notes=notes or {})
        lines.extend(["", *printer.function_lines(function)])
    return "\n".join(lines) + "\n"


def format_attribute(value: Any) -> str:
    """Return an attribute value's text; what the parser cannot read gives `<unprintable ...>`."""
    # bool before int: True is an int, and the text must keep the kind.
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "none"
        case int():
            return str(int(value))
        case float():
            return repr(float(value))
        case str():
            return json.dumps(value, ensure_ascii=False)
        case DType():
            return value.name
        case tuple():
            inner = ", ".join(format_attribute(item) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case _:
            text = str(value)
            return text if text.startswith("#") else f"<unprintable {text}>"


def _attributes(attributes: Mapping[str, Any]) -> str:
    items = (f"{name} = {format_attribute(value)}" for name, value in attributes.items())
    return "{" + ", ".join(items) + "}"


def _location(location: SourceLocation) -> str:
    file, function = (format_attribute(text) for text in (location.file, location.function))
    span = f"{location.line}:{location.column}:{location.end_column}"
    return f" loc({file} {span} in {function})"


class _FunctionPrinter:
    """Prints one function; names are unique within it."""

    def __init__(self, *, locations: bool, notes: Mapping[Operation, str]) -> None:
        self._locations = locations
        self._notes = notes
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._next_number = 0

    def function_lines(self, function: Function) -> list[str]:
        word = "kernel" if function.is_kernel else "func"
        results = ", ".join(str(type_) for type_ in function.result_types)
        head = f"{word} @{function.name}({self._arguments(function.body)})"
        head += f" -> {results}" if results else ""
        lines = [head + self._location(function.location) + " {"]
        lines.extend(self._block_lines(function.body, 1))
        lines.append("}")
        return lines

    def _block_lines(self, block: Block, depth: int) -> Iterable[str]:
        for operation in block.operations:
            yield from self._operation_lines(operation, depth)

    def _operation_lines(self, operation: Operation, depth: int) -> Iterable[str]:
        indent = _INDENT * depth
        head = operation.name
        if operation.operands:
            head += " " + ", ".join(self._use(value) for value in operation.operands)
        if operation.attributes:
            head += " " + _attributes(operation.attributes)
        # Results are named after the operands were looked up: an operation cannot use its own.
        if operation.results:
            names = ", ".join(self._define(value) for value in operation.results)
            types = ", ".join(str(value.type) for value in operation.results)
            head = f"{names} = {head} : {types}"
        head += self._location(operation.location)
        words = _REGION_WORDS.get(operation.name, ())
        text = indent + head
        for index, region in enumerate(operation.regions):
            arguments = f"({self._arguments(region)}) " if region.arguments else ""
            yield f"{text} {words[index] if index < len(words) else ''}{arguments}{{"
            yield from self._block_lines(region, depth + 1)
            text = indent + "}"
        yield text
        if operation in self._notes:
            yield f"{indent}// ^ {self._notes[operation]}"

    def _arguments(self, block: Block) -> str:
        return ", ".join(f"{self._define(value)}: {value.type}" for value in block.arguments)

    def _define(self, value: Value) -> str:
        name = value.name if _NAME.match(value.name) else ""
        if not name:
            name = str(self._next_number)
            self._next_number += 1
        elif name in self._taken:
            suffix = 1
            while f"{name}_{suffix}" in self._taken:
                suffix += 1
            name = f"{name}_{suffix}"
        self._taken.add(name)
        self._names[value] = f"%{name}"
        return self._names[value]

    def _use(self, value: Value) -> str:
        # A use before its definition is the verifier's to report; printing must not fail on it.
        return self._names.get(value, f"%<undefined {value.name}: {value.type}>")

    def _location(self, location: SourceLocation | None) -> str:
        return _location(location) if self._locations and location is not None else ""
