"""Writes the text of one MLIR function: numbered values, constants once at the top, nested
regions.

Names are numbers in order of writing, so equal IR gives equal text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.abi.dtypes import DType, int1, int32, int64
from tilewright_compiler.emit.types import dtype_text, literal

INDENT = "  "


# Name, type and constraint of an operand of inline PTX.
AssemblyOperand = tuple[str, str, str]
_REGISTER_CONSTRAINTS = {"i32": "r", "f32": "f"}


class FunctionText:
    """The text of a function in the making.

    `value(...)` and `line(...)` append; constants and declarations are collected apart.
    """

    def __init__(self) -> None:
        """Start with an empty body."""
        self._lines: list[str] = []
        self._top: list[str] = []
        self._depth = 2
        self._count = 0
        self._constants: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self.halves: dict[str, tuple[str, bool]] = {}
        """Of 16-bit values taken out of an i32: its name, and whether they are the upper half.

        A conversion that knows need not take the half out first.
        """
        self._strings: dict[bytes, str] = {}

    def fresh(self) -> str:
        """Return a new value name."""
        self._count += 1
        return f"%{self._count - 1}"

    def line(self, text: str) -> None:
        """Append an operation without results."""
        self._lines.append(INDENT * self._depth + text)

    def value(self, operation: str) -> str:
        """Append an operation with one result and return its name."""
        name = self.fresh()
        self.line(f"{name} = {operation}")
        return name

    def reserve(self, *, count: int) -> tuple[str, tuple[str, ...]]:
        """Return the left side and the result names of an operation that is still to be written."""
        if count == 0:
            return "", ()
        pack = self.fresh()
        if count == 1:
            return f"{pack} = ", (pack,)
        return f"{pack}:{count} = ", tuple(f"{pack}#{index}" for index in range(count))

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Indent what is written inside one step more."""
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at_top(self) -> Iterator[None]:
        """Write what is written inside before the body, where it dominates every use."""
        lines, depth = self._lines, self._depth
        self._lines, self._depth = self._top, 2
        yield
        self._lines, self._depth = lines, depth

    def constant(self, value: int | float | bool, dtype: DType) -> str:
        """Return the name of a constant, written once at the top of the function."""
        return self.raw_constant(literal(value, dtype), dtype_text(dtype))

    def raw_constant(self, text: str, type_: str) -> str:
        """Return the name of a constant given as an MLIR literal and type."""
        key = f"llvm.mlir.constant({text}) : {type_}"
        return self._constants.setdefault(key, f"%c{len(self._constants)}")

    def is_constant(self, name: str) -> bool:
        """Whether a name is that of a constant."""
        return name in self._constants.values()

    def declare(self, name: str, arguments: Sequence[str], result: str) -> None:
        """Declare an external function; again is no error."""
        self._declarations[name] = f"llvm.func @{name}({', '.join(arguments)}) -> {result}"

    def call(self, name: str, arguments: Sequence[str], types: Sequence[str], result: str) -> str:
        """Declare and call an external function."""
        self.declare(name, types, result)
        return self.value(
            f"llvm.call @{name}({', '.join(arguments)}) : ({', '.join(types)}) -> {result}"
        )

    def call_nothing(self, name: str, arguments: Sequence[str], types: Sequence[str]) -> None:
        """Declare and call an external function without a result."""
        self._declarations[name] = f"llvm.func @{name}({', '.join(types)})"
        self.line(f"llvm.call @{name}({', '.join(arguments)}) : ({', '.join(types)}) -> ()")

    def string(self, value: str) -> str:
        """Return the name of a pointer to a string that ends in 0, kept once in the module."""
        data = value.encode() + b"\0"
        symbol = self._strings.setdefault(data, f"text_{len(self._strings)}")
        content = "".join(f"\\{byte:02X}" for byte in data)
        self._declarations[symbol] = (
            f'llvm.mlir.global internal constant @{symbol}("{content}") {{addr_space = 1 : i32}}'
        )
        pointer = self.value(f"llvm.mlir.addressof @{symbol} : !llvm.ptr<1>")
        return self.value(f"llvm.addrspacecast {pointer} : !llvm.ptr<1> to !llvm.ptr")

    def intrinsic(
        self, name: str, arguments: Sequence[str], types: Sequence[str], result: str
    ) -> str:
        """Call an LLVM intrinsic by its name."""
        return self.value(
            f'llvm.call_intrinsic "{name}"({", ".join(arguments)}) : '
            f"({', '.join(types)}) -> {result}"
        )

    def assembly(
        self,
        template: str,
        operands: Sequence[AssemblyOperand] = (),
        *,
        results: Sequence[str] = (),
        tied: Sequence[str] = (),
        guard: str | None = None,
    ) -> tuple[str, ...]:
        """Append inline PTX that touches memory; return its results, of the types given.

        With `tied`, each result starts out as one of these values and replaces it. In the template
        `$0` is the first result; operands count on from the results, and from those tied. Threads
        in which the i1 `guard` is false skip the instruction, which is one then.
        """
        if guard is not None:
            template = f"@${len(results) + len(tied) + len(operands)} {template}"
            operands = [*operands, (guard, "i1", "b")]
        prefix = "=" if tied else "=&"
        constraints = [
            *(prefix + _REGISTER_CONSTRAINTS[type_] for type_ in results),
            *(str(index) for index in range(len(tied))),
            *(constraint for _, _, constraint in operands),
            "~{memory}",
        ]
        names = [*tied, *(name for name, _, _ in operands)]
        types = [*results[: len(tied)], *(type_ for _, type_, _ in operands)]
        call = (
            f'llvm.inline_asm has_side_effects asm_dialect = att "{template}", '
            f'"{",".join(constraints)}" {", ".join(names)} : ({", ".join(types)}) -> '
        )
        if not results:
            self.line(f"{call}!llvm.void")
            return ()
        if len(results) == 1:
            return (self.value(call + results[0]),)
        struct = f"!llvm.struct<({', '.join(results)})>"
        packed = self.value(call + struct)
        return tuple(
            self.value(f"llvm.extractvalue {packed}[{index}] : {struct}")
            for index in range(len(results))
        )

    def i1(self, value: bool) -> str:  # the value itself, not a switch
        """Return a bool constant."""
        return self.constant(value, int1)

    def i32(self, value: int) -> str:
        """Return a 32-bit constant."""
        return self.constant(value, int32)

    def i64(self, value: int) -> str:
        """Return a 64-bit constant."""
        return self.constant(value, int64)

    def declarations(self) -> list[str]:
        """Return the declarations of external functions and strings, sorted."""
        return [self._declarations[name] for name in sorted(self._declarations)]

    def body(self) -> list[str]:
        """Return the lines of the function's body, constants first."""
        constants = [f"{INDENT * 2}{name} = {key}" for key, name in self._constants.items()]
        return [*constants, *self._top, *self._lines]
