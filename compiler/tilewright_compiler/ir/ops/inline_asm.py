"""PTX given by the kernel's author, applied element by element.

`inline_asm {asm, constraints, pack, arguments}` takes `arguments` operands, and behind them none or
as many *references* as it has results: what it gives where PTX cannot run. All have one shape. It
is pure; `inline_asm_effect` is the same but stays, in order. Neither touches memory.

Registers hold `pack` elements of each operand: those of less than 32 bits in 32-bit words (a single
one of 16 bits may have a register of its width), others one by one.
"""

from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import PointerType, element_dtype, element_type, shape_of

NAMES = ("inline_asm", "inline_asm_effect")
MAX_PACK = 32
WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
"""The letters of registers and their bits."""

_MANY = 1 << 10


@dataclass(frozen=True, slots=True)
class Constraints:
    """The parts of a constraint string: letters of the results and of the arguments.

    A tied argument has the letter of its result, and its number in `tied` (None where there is
    none).
    """

    results: tuple[str, ...]
    arguments: tuple[str, ...]
    tied: tuple[int | None, ...]


def parse_constraints(text: str) -> Constraints | str:
    """Return the parts of a constraint string, or a complaint."""
    results: list[str] = []
    arguments: list[str] = []
    tied: list[int | None] = []
    for part in (part.strip() for part in text.split(",")):
        letter = part.removeprefix("=").removeprefix("&")
        if part.startswith("~{") and part.endswith("}"):
            continue
        if part.startswith("="):
            if letter not in WIDTHS or arguments:
                return f"`{part}` is no register of a result, or stands behind an argument's"
            results.append(letter)
        elif part.isdecimal() and int(part) in tied:
            return f"`{part}` ties two arguments to one result"
        elif part.isdecimal() and int(part) < len(results):
            arguments.append(results[int(part)])
            tied.append(int(part))
        elif part in WIDTHS:
            arguments.append(part)
            tied.append(None)
        else:
            return (
                f"`{part}` is not one of {', '.join(WIDTHS)}, `=` before them, a number, `~{{...}}`"
            )
    return Constraints(tuple(results), tuple(arguments), tuple(tied))


def registers_of(dtype: DType, pack: int) -> int:
    """Return how many registers hold `pack` elements."""
    bits = max(dtype.bits, 8)
    return pack if bits >= 32 else -(-pack * bits // 32)


def letters_complaint(values: tuple[DType, ...], pack: int, letters: tuple[str, ...]) -> str | None:
    """Return what is wrong with the letters of registers that hold elements of these dtypes."""
    wanted = [dtype for dtype in values for _ in range(registers_of(dtype, pack))]
    if len(wanted) != len(letters):
        return f"{len(wanted)} registers hold them, constraints name {len(letters)}"
    for dtype, letter in zip(wanted, letters, strict=True):
        bits = max(dtype.bits, 32)
        fits = WIDTHS[letter] == bits or (letter == "h" and dtype.bits == 16 and pack == 1)
        if not fits:
            return f"`{letter}` has {WIDTHS[letter]} bits, a register of {dtype} has {bits}"
    return None


def arguments_of(operation: Operation) -> tuple[Value, ...]:
    """Return the operands that the PTX takes."""
    return operation.operands[: operation.attributes["arguments"]]


def references_of(operation: Operation) -> tuple[Value, ...]:
    """Return what the operation gives where PTX cannot run; empty if that is not known."""
    return operation.operands[operation.attributes["arguments"] :]


def _verify(operation: Operation) -> str | None:
    values = (*operation.operands, *operation.results)
    if not operation.results:
        return "has at least one result"
    if any(isinstance(element_type(value.type), PointerType) for value in values):
        return "takes and gives numbers"
    if len({shape_of(value.type) for value in values}) > 1:
        return "operands and results have one shape"
    references = references_of(operation)
    if references and [v.type for v in references] != [v.type for v in operation.results]:
        return "references have the types of the results"
    pack = operation.attributes["pack"]
    if not 1 <= pack <= MAX_PACK:
        return f"pack is 1..{MAX_PACK}"
    parts = parse_constraints(operation.attributes["constraints"])
    if isinstance(parts, str):
        return parts
    results = tuple(element_dtype(value.type) for value in operation.results)
    arguments = tuple(element_dtype(value.type) for value in arguments_of(operation))
    return letters_complaint(results, pack, parts.results) or letters_complaint(
        arguments, pack, parts.arguments
    )


SPECS = tuple(
    OperationSpec(
        name,
        (0, _MANY),
        ("asm", "constraints", "pack", "arguments"),
        effect,
        results=None,
        verify=_verify,
    )
    for name, effect in zip(NAMES, (Effect.PURE, Effect.WRITE), strict=True)
)
