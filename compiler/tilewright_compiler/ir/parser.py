"""Text -> tile IR: reads exactly what `ir.printer` writes, comments (`// ...`) skipped.

A recursive descent over a flat list of tokens. It resolves names and rebuilds the objects, and
checks no more than it needs for that: what the operations mean is `ir.verifier`'s, so that a test
can write wrong IR. Names become `Value.name` again, numbers become no name.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tilewright.abi.dtypes import BY_NAME, DType
from tilewright.abi.signature import (
    Constexpr,
    ConstexprValue,
    KernelSignature,
    Parameter,
    Pointer,
    Scalar,
    Specialization,
)
from tilewright.errors import FormatError, SourceLocation
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import (
    DescriptorType,
    ElementType,
    MbarrierType,
    PointerType,
    ScalarType,
    SharedType,
    TileType,
    TokenType,
    Type,
)
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.swizzle import SharedLayout

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<value>%[A-Za-z0-9_]+)
      | (?P<symbol>@[A-Za-z_][A-Za-z0-9_]*)
      | (?P<layout>\#layout<[^>]*>)
      | (?P<shared_layout>\#shared<[^>]*>)
      | (?P<tile>tile<(?:\d+x)*)
      | (?P<shared>shared<(?:\d+\*)?(?:\d+x)*)
      | (?P<descriptor>descriptor<(?:\d+x)*)
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|-inf\b)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>->|[][(){}<>,:=*])""",
    re.VERBOSE,
)

_NOT_FINITE = {"inf": math.inf, "nan": math.nan}
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, **_NOT_FINITE}
# The signature's text is that of `str(KernelSignature)`, which writes values as Python does.
_PYTHON_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None, **_NOT_FINITE}

_T = TypeVar("_T")


def parse_module(text: str) -> Module:
    """Return the module written in `text`; raises FormatError with the place where it is not."""
    return _Parser(text).module()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int
    starts_line: bool = False


class _Parser:
    """A cursor over the tokens, with the values that are visible in the function being read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._index = 0
        self._values: dict[str, Value] = {}

    def module(self) -> Module:
        self._expect("signature")
        signature = self._signature()
        attributes = self._attributes() if self._accept("attributes") else {}
        functions: dict[str, Function] = {}
        while self._peek().kind != "end":
            function = self._function()
            if function.name in functions:
                self._fail(f"function @{function.name} is defined twice")
            functions[function.name] = function
        return Module(functions, signature, attributes)

    def _function(self) -> Function:
        is_kernel = self._one_of("kernel", "func") == "kernel"
        name = self._take("symbol").text[1:]
        self._values = {}
        arguments = self._arguments()
        results = self._list(self._type) if self._accept("->") else ()
        location = self._location()
        body = self._block(arguments)
        return Function(name, body, results, is_kernel, location)

    def _arguments(self) -> tuple[Value, ...]:
        self._expect("(")
        return self._list_until(")", self._argument)

    def _argument(self) -> Value:
        name = self._take("value").text
        self._expect(":")
        return self._define(name, self._type())

    def _block(self, arguments: tuple[Value, ...]) -> Block:
        """Read `{ operations }`; what is defined inside is not visible after it."""
        outer = dict(self._values)
        self._expect("{")
        block = Block(arguments)
        while not self._accept("}"):
            block.operations.append(self._operation())
        self._values = outer
        return block

    def _operation(self) -> Operation:
        names: tuple[str, ...] = ()
        if self._peek().kind == "value":
            names = self._list(lambda: self._take("value").text)
            self._expect("=")
        name = self._take("word").text
        # An operand is on the operation's line; a value on the next line is another's result.
        has_operands = self._peek().kind == "value" and not self._peek().starts_line
        operands = self._list(self._operand) if has_operands else ()
        attributes = self._attributes() if self._at_attributes() else {}
        types = self._list(self._type) if self._accept(":") else ()
        if len(types) != len(names):
            self._fail(f"{len(names)} results and {len(types)} result types")
        location = self._location()
        regions: list[Block] = []
        while self._at_region():
            regions.append(self._region())
        results = tuple(map(self._define, names, types))
        return Operation(name, operands, results, attributes, tuple(regions), location)

    def _at_attributes(self) -> bool:
        """Whether `{` opens attributes: no operation starts with `word =`."""
        texts = [self._peek(ahead).text for ahead in range(3)]
        return texts[0] == "{" and texts[2] == "=" and self._peek(1).kind == "word"

    def _at_region(self) -> bool:
        if self._peek().kind == "word" and self._peek(1).text in ("{", "("):
            return self._peek().text in ("else", "do", "consumer")
        return self._peek().text in ("{", "(")

    def _region(self) -> Block:
        if self._peek().kind == "word":
            self._next()
        outer = dict(self._values)
        block = self._block(self._arguments() if self._peek().text == "(" else ())
        self._values = outer
        return block

    def _operand(self) -> Value:
        name = self._take("value").text
        value = self._values.get(name)
        if value is None:
            self._fail(f"{name} is not defined before this use", back=1)
        return value

    def _define(self, name: str, type_: Type) -> Value:
        if name in self._values:
            self._fail(f"{name} is defined twice", back=1)
        value = Value(type_, "" if name[1].isdigit() else name[1:])
        self._values[name] = value
        return value

    def _type(self) -> Type:
        if self._accept("token"):
            return TokenType()
        if self._accept("mbarrier"):
            return self._mbarrier()
        if self._peek().kind == "shared":
            return self._shared()
        if self._peek().kind == "descriptor":
            return self._descriptor()
        if self._peek().kind != "tile":
            return self._element()
        dims = self._next().text.removeprefix("tile<")
        element = self._element()
        layout = LinearLayout.parse(self._take("layout").text) if self._accept(",") else None
        self._expect(">")
        return TileType(tuple(int(extent) for extent in dims.split("x")[:-1]), element, layout)

    def _mbarrier(self) -> MbarrierType:
        if not self._accept("<"):
            return MbarrierType()
        slots = self._integer()
        self._expect(">")
        return MbarrierType(slots)

    def _descriptor(self) -> DescriptorType:
        dims = self._next().text.removeprefix("descriptor<")
        dtype = self._dtype()
        self._expect(">")
        return DescriptorType(dtype, tuple(int(extent) for extent in dims.split("x")[:-1]))

    def _shared(self) -> SharedType:
        ring, star, dims = self._next().text.removeprefix("shared<").rpartition("*")
        dtype = self._dtype()
        self._expect(",")
        layout = SharedLayout.parse(self._take("shared_layout").text)
        self._expect(">")
        shape = tuple(int(extent) for extent in dims.split("x")[:-1])
        return SharedType(shape, dtype, layout, int(ring) if star else None)

    def _element(self) -> ElementType:
        if not self._accept("ptr"):
            return ScalarType(self._dtype())
        self._expect("<")
        dtype = self._dtype()
        self._expect(">")
        return PointerType(dtype)

    def _dtype(self) -> DType:
        name = self._take("word").text
        if name not in BY_NAME:
            self._fail(f"no dtype is called {name!r}; there are {', '.join(BY_NAME)}", back=1)
        return BY_NAME[name]

    def _attributes(self) -> dict[str, Any]:
        self._expect("{")
        return dict(self._list_until("}", self._attribute))

    def _attribute(self) -> tuple[str, Any]:
        name = self._take("word").text
        self._expect("=")
        return name, self._attribute_value()

    def _attribute_value(self) -> Any:
        token = self._next()
        match token.kind:
            case "number":
                return _number(token.text)
            case "string":
                return ast.literal_eval(token.text)
            case "layout":
                return LinearLayout.parse(token.text)
            case "word" if token.text in _WORDS:
                return _WORDS[token.text]
            case "word" if token.text in BY_NAME:
                return BY_NAME[token.text]
        if token.text == "(":
            return self._list_until(")", self._attribute_value)
        return self._fail(f"{token.text!r} is no attribute value", back=1)

    def _location(self) -> SourceLocation | None:
        if not self._accept("loc"):
            return None
        self._expect("(")
        file = ast.literal_eval(self._take("string").text)
        line = self._integer()
        self._expect(":")
        column = self._integer()
        self._expect(":")
        end_column = self._integer()
        self._expect("in")
        function = ast.literal_eval(self._take("string").text)
        self._expect(")")
        return SourceLocation(file, line, column, end_column, function)

    def _signature(self) -> KernelSignature:
        self._expect("(")
        parameters = self._list_until(")", self._parameter)
        specialization: Specialization = "fast"
        if self._one_of("fast", "general") == "general":
            specialization = "general"
        num_warps = self._launch_option("num_warps")
        num_stages = self._launch_option("num_stages")
        return KernelSignature(parameters, specialization, num_warps, num_stages)

    def _parameter(self) -> tuple[str, Parameter]:
        name = self._take("word").text
        if self._accept("="):
            return name, Constexpr(self._constexpr())
        self._expect(":")
        is_pointer = self._accept("*")
        dtype = self._dtype()
        flags = self._flags() if self._accept(":") else ""
        if is_pointer:
            return name, Pointer(dtype, aligned=flags == "16")
        return name, Scalar(dtype, "16" in flags, "u" in flags, "s" in flags)

    def _flags(self) -> str:
        """Read `16us`: a number and a word without space between them are two tokens."""
        flags = self._next().text if self._peek().kind == "number" else ""
        glued = not flags or self._peek().offset == self._peek(-1).offset + len(flags)
        if self._peek().kind == "word" and glued:
            flags += self._next().text
        return flags

    def _constexpr(self) -> ConstexprValue:
        token = self._next()
        match token.kind:
            case "number":
                return _number(token.text)
            case "string":
                return str(ast.literal_eval(token.text))
            case "word" if token.text in _PYTHON_WORDS:
                value: float | None = _PYTHON_WORDS[token.text]
                return value
            case "word" if token.text == "dtype":
                self._expect("(")
                dtype = self._dtype()
                self._expect(")")
                return dtype
        return self._fail(f"{token.text!r} is no constexpr value", back=1)

    def _launch_option(self, name: str) -> int:
        self._expect(name)
        self._expect("=")
        return self._integer()

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        offset, starts_line = 0, True
        while offset < len(self._text):
            match = _TOKEN.match(self._text, offset)
            if match is None:
                self._fail_at(offset, f"unexpected character {self._text[offset]!r}")
            if match.lastgroup == "skip":
                starts_line = starts_line or "\n" in match.group()
            else:
                tokens.append(_Token(str(match.lastgroup), match.group(), offset, starts_line))
                starts_line = False
            offset = match.end()
        tokens.append(_Token("end", "end of text", offset))
        return tokens

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)]

    def _next(self) -> _Token:
        token = self._peek()
        self._index += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._peek().text != text or self._peek().kind == "string":
            return False
        self._index += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(f"expected {text!r}, found {self._peek().text!r}")

    def _one_of(self, *words: str) -> str:
        if self._peek().text not in words:
            self._fail(f"expected one of {', '.join(words)}, found {self._peek().text!r}")
        return self._next().text

    def _take(self, kind: str) -> _Token:
        if self._peek().kind != kind:
            self._fail(f"expected a {kind}, found {self._peek().text!r}")
        return self._next()

    def _integer(self) -> int:
        token = self._take("number")
        value = _number(token.text)
        if not isinstance(value, int):
            self._fail(f"expected an integer, found {token.text!r}", back=1)
        return value

    def _list(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        items = [item()]
        while self._accept(","):
            items.append(item())
        return tuple(items)

    def _list_until(self, end: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Read items up to `end`; a trailing comma is allowed, as in a tuple of one."""
        items: list[_T] = []
        while not self._accept(end):
            items.append(item())
            if not self._accept(","):
                self._expect(end)
                break
        return tuple(items)

    def _fail(self, message: str, *, back: int = 0) -> NoReturn:
        self._fail_at(self._peek(-back).offset, message)

    def _fail_at(self, offset: int, message: str) -> NoReturn:
        line = self._text.count("\n", 0, offset) + 1
        start = self._text.rfind("\n", 0, offset) + 1
        source = self._text[start:].split("\n", 1)[0]
        caret = " " * (offset - start) + "^"
        msg = f"tile IR, line {line}, column {offset - start + 1}: {message}\n{source}\n{caret}"
        raise FormatError(msg)


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
