"""Atomic operations on global memory: each reads, computes and writes an element in one step.

| operation | operands | the element becomes |
|---|---|---|
| atomic_load | pointer, [mask i1] -> old | `old` |
| atomic_rmw | pointer, value, [mask i1] -> old | `kind(old, value)` |
| atomic_cas | pointer, expected, value, [mask i1] -> old | `value`, if it was `expected` |

`kind` is one of `KINDS`, `sem` and `scope` are those of PTX. `old` is what the element was before,
0 where the mask is false; what writes may do without a result, which is cheaper. What is written
has at least 16 bits, and no bitwise kind takes floats. `atomic_cas` compares bits. `max` and `min`
order floats by the total order of IEEE 754, -0 below +0; a NaN that is given counts as the greatest
of all in `max` and as the least in `min`, and stays.
"""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.memory import verify_access
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import element_dtype

ATOMICS = ("atomic_load", "atomic_rmw", "atomic_cas")
KINDS = ("add", "max", "min", "and", "or", "xor", "xchg")
BLOCK_KINDS = tuple(kind for kind in KINDS if kind != "xchg")
"""What is done to blocks of tensors: what a copy engine does, which exchanges nothing."""
BITWISE = ("and", "or", "xor")
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")

NARROWEST_BITS = 16


def mask_index(operation: Operation) -> int:
    """Return where among the operands the mask stands, if there is one."""
    return 1 + ATOMICS.index(operation.name)


def elements_at_once(operation: Operation) -> int:
    """Return how many elements that lie together one instruction takes: two halves are added.

    A schedule may set the attribute `at_once` for a target that takes more.
    """
    if "at_once" in operation.attributes:
        return int(operation.attributes["at_once"])
    dtype = element_dtype(operation.operands[0].type)
    is_sum = operation.name == "atomic_rmw" and operation.attributes["kind"] == "add"
    return 2 if is_sum and dtype.is_float and dtype.bits == NARROWEST_BITS else 1


def acquires(operation: Operation) -> bool:
    """Whether what follows an atomic operation may rely on what others released to it."""
    return operation.attributes["sem"] in ("acquire", "acq_rel")


def releases(operation: Operation) -> bool:
    """Whether what precedes an atomic operation is done for whoever acquires from it."""
    return operation.attributes["sem"] in ("release", "acq_rel")


def _verify(operation: Operation) -> str | None:
    pointer, *values = (value.type for value in operation.operands)
    count = mask_index(operation) - 1
    mask = values[count] if len(values) > count else None
    if len(operation.results) > 1:
        return f"has one result or none, got {len(operation.results)}"
    for value in (*values[:count], *(result.type for result in operation.results)):
        complaint = verify_access(pointer, value, mask)
        if complaint is not None:
            return complaint
    dtype = element_dtype(pointer)
    if dtype.bits < NARROWEST_BITS and operation.name != "atomic_load":
        return f"elements have at least {NARROWEST_BITS} bits, got {dtype}"
    if operation.attributes["sem"] not in SEMANTICS:
        return f"sem is one of {', '.join(SEMANTICS)}"
    if operation.name == "atomic_load" and releases(operation):
        return "what reads only releases nothing"
    if operation.attributes["scope"] not in SCOPES:
        return f"scope is one of {', '.join(SCOPES)}"
    if operation.name == "atomic_rmw":
        kind = operation.attributes["kind"]
        if kind not in KINDS:
            return f"kind is one of {', '.join(KINDS)}"
        if kind in BITWISE and dtype.is_float:
            return f"{kind} takes integers, got {dtype}"
    return None


def _spec(
    name: str, operands: tuple[int, int], *attributes: str, results: int | None = None
) -> OperationSpec:
    return OperationSpec(
        name,
        operands,
        (*attributes, "sem", "scope"),
        Effect.ATOMIC,
        results=results,
        optional_attributes=("shared_offset", "at_once"),
        verify=_verify,
    )


SPECS = (
    _spec("atomic_load", (1, 2), results=1),
    _spec("atomic_rmw", (2, 3), "kind"),
    _spec("atomic_cas", (3, 4)),
)
