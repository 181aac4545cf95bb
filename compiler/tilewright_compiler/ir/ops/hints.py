"""Promises of the kernel's author. Each returns its operand; axis analysis reads what it says.
`resident` is a wish, which has an effect only so that it stays.

| operation | operands | meaning |
|---|---|---|
| multiple_of | integer or pointer -> the same | along `axis`, the first element of each run is a \
multiple of `divisor`; pointers count in bytes. A run grows by 1, or by an element's bytes |
| max_contiguous | tile of these -> the same | along `axis`, every `run` elements are a run |
| max_constancy | tile of these -> the same | along `axis`, every `run` elements are equal |
| assume | i1 scalar | it is true; in the body of the kernel itself, `analysis.blocks` looks too |
| resident | none | `programs` of this kernel shall fit a multiprocessor at once |

`axis` of a scalar is 0. Divisors and runs are powers of two, and runs divide the extent.
"""

from __future__ import annotations

from tilewright.abi.dtypes import int1
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import PointerType, ScalarType, element_type, shape_of

# Programs that a multiprocessor of any GPU can hold.
MOST_RESIDENT = 32


def _verify_promise(operation: Operation) -> str | None:
    (source,) = operation.operands
    if operation.result.type != source.type:
        return "operand and result have one type"
    element = element_type(source.type)
    if not isinstance(element, PointerType) and not element.dtype.is_integer:
        return f"takes integers or pointers, got {source.type}"
    extents = shape_of(source.type) or (1,)
    if not 0 <= operation.attributes["axis"] < len(extents):
        return f"axis is 0..{len(extents) - 1}"
    number: int = operation.attributes.get("run", operation.attributes.get("divisor", 0))
    if number < 1 or number & (number - 1):
        return f"promises a power of two, got {number}"
    extent = extents[operation.attributes["axis"]]
    return f"run is at most {extent}" if operation.attributes.get("run", 1) > extent else None


def _verify_assume(operation: Operation) -> str | None:
    type_ = operation.operands[0].type
    return None if type_ == ScalarType(int1) else f"takes an i1 scalar, got {type_}"


def _verify_resident(operation: Operation) -> str | None:
    programs = operation.attributes["programs"]
    return None if 1 <= programs <= MOST_RESIDENT else f"of 1 to {MOST_RESIDENT}, got {programs}"


SPECS = (
    OperationSpec("multiple_of", (1, 1), ("divisor", "axis"), verify=_verify_promise),
    OperationSpec("max_contiguous", (1, 1), ("run", "axis"), verify=_verify_promise),
    OperationSpec("max_constancy", (1, 1), ("run", "axis"), verify=_verify_promise),
    OperationSpec("assume", (1, 1), results=0, verify=_verify_assume),
    OperationSpec(
        "resident", (0, 0), ("programs",), Effect.WRITE, results=0, verify=_verify_resident
    ),
)
