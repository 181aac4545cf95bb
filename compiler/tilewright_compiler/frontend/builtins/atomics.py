"""Atomic operations: values and masks come to the pointer's shape and dtype, as for a store."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.memory import mask_of, pointer_of
from tilewright_compiler.frontend.builtins.registry import Implementation, implements
from tilewright_compiler.frontend.infer_types import dtype_name, tile_of
from tilewright_compiler.frontend.operands import NONE, Operand
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.ops.atomics import BITWISE, NARROWEST_BITS, SCOPES, SEMANTICS
from tilewright_compiler.ir.types import ScalarType, element_dtype, shape_of


def _rmw(kind: str) -> Implementation:
    """Return what builds an operation on the old element and one value."""
    what = f"tl.atomic_{kind}"

    def build(
        lowering: Scope,
        pointer: Operand,
        val: Operand,
        mask: Operand,
        sem: Operand,
        scope: Operand,
    ) -> Operand:
        address = _address(pointer, what)
        dtype = element_dtype(address.type)
        if kind in BITWISE and dtype.is_float:
            msg = f"{what} takes integers, got a pointer to {dtype}"
            raise KernelTypeError(msg)
        value = _value(lowering, val, address, f"`val` of {what}")
        return _atomic(lowering, "atomic_rmw", [address, value], what, mask, sem, scope, kind=kind)

    return build


for _stub, _kind in (
    (tl.atomic_add, "add"),
    (tl.atomic_max, "max"),
    (tl.atomic_min, "min"),
    (tl.atomic_and, "and"),
    (tl.atomic_or, "or"),
    (tl.atomic_xor, "xor"),
    (tl.atomic_xchg, "xchg"),
):
    implements(_stub)(_rmw(_kind))


@implements(tl.atomic_cas)
def atomic_cas(
    lowering: Scope,
    pointer: Operand,
    cmp: Operand,
    val: Operand,
    mask: Operand,
    sem: Operand,
    scope: Operand,
) -> Operand:
    """Build an exchange with elements that are what they are compared with."""
    what = "tl.atomic_cas"
    address = _address(pointer, what)
    values = [
        _value(lowering, operand, address, f"`{name}` of {what}")
        for name, operand in (("cmp", cmp), ("val", val))
    ]
    return _atomic(lowering, "atomic_cas", [address, *values], what, mask, sem, scope)


def _atomic(
    lowering: Scope,
    name: str,
    operands: list[Value],
    what: str,
    mask: Operand,
    sem: Operand,
    scope: Operand,
    **attributes: str,
) -> Value:
    shape = shape_of(operands[0].type)
    condition = mask_of(lowering, mask, shape, what)
    return lowering.builder.value(
        name,
        operands if condition is None else [*operands, condition],
        tile_of(shape, ScalarType(element_dtype(operands[0].type))),
        **attributes,
        sem="acq_rel" if sem == NONE else arguments.choice(sem, f"`sem` of {what}", SEMANTICS),
        scope="gpu" if scope == NONE else arguments.choice(scope, f"`scope` of {what}", SCOPES),
    )


def _address(pointer: Operand, what: str) -> Value:
    address = pointer_of(pointer, what)
    dtype = element_dtype(address.type)
    if dtype.bits < NARROWEST_BITS:
        msg = (
            f"{what} works on elements of 16, 32 or 64 bits, got a pointer to {dtype}; keep these "
            f"in a wider type such as {dtype_name(tl.float16 if dtype.is_float else tl.int32)}"
        )
        raise KernelTypeError(msg)
    return address


def _value(lowering: Scope, operand: Operand, address: Value, what: str) -> Value:
    number = convert.as_number(lowering, operand, element_dtype(address.type), what)
    return convert.broadcast(lowering, number, shape_of(address.type), what)
