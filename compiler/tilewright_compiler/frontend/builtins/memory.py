"""Loads and stores: masks, fill values and stored values come to the pointer's shape and dtype."""

from __future__ import annotations

import math

import tilewright.language as tl
from tilewright.abi.dtypes import int1
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments, block_pointers
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import tile_of
from tilewright_compiler.frontend.operands import (
    NONE,
    BlockPointer,
    Constant,
    Operand,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, Type, element_dtype, shape_of

_LOAD_CACHE = ("", ".ca", ".cg", ".cv")
_COPY_CACHE = ("", ".ca", ".cg")
_STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")
_PADDING = ("", "zero", "nan")
_EVICTION = ("", "evict_first", "evict_last")


@implements(tl.load)
def load(
    scope: Scope,
    pointer: Operand,
    mask: Operand,
    other: Operand,
    boundary_check: Operand,
    padding_option: Operand,
    cache_modifier: Operand,
    eviction_policy: Operand,
    volatile: Operand,
) -> Operand:
    """Build a load; without `other` masked lanes are 0."""
    padding = arguments.choice(padding_option, "`padding_option` of tl.load", _PADDING)
    if isinstance(pointer, BlockPointer):
        _refuse_mask(mask, other, "tl.load")
        pointer, mask = block_pointers.addresses(scope, pointer, boundary_check, "tl.load")
        if padding == "nan" and mask != NONE:
            other = _nan(pointer)
    else:
        _refuse_check(boundary_check, "tl.load")
    operands, type_ = _loaded(scope, pointer, mask, other, "tl.load")
    cache = arguments.choice(cache_modifier, "`cache_modifier` of tl.load", _LOAD_CACHE)
    eviction = arguments.choice(eviction_policy, "`eviction_policy` of tl.load", _EVICTION)
    if arguments.flag(volatile, "`volatile` of tl.load"):
        return _volatile(scope, operands, type_)
    return scope.builder.value("load", operands, type_, cache=cache.lstrip("."), eviction=eviction)


@implements(tl.async_copy)
def async_copy(
    scope: Scope,
    pointer: Operand,
    mask: Operand,
    other: Operand,
    cache_modifier: Operand,
    eviction_policy: Operand,
) -> Operand:
    """Build a load that must run ahead in its loop; the schedule sees that it does."""
    what = "tl.async_copy"
    operands, type_ = _loaded(scope, pointer, mask, other, what)
    if not shape_of(type_):
        msg = f"`pointer` of {what} is a tile of pointers, got {describe(pointer)}; use tl.load"
        raise KernelTypeError(msg)
    cache = arguments.choice(cache_modifier, f"`cache_modifier` of {what}", _COPY_CACHE)
    eviction = arguments.choice(eviction_policy, f"`eviction_policy` of {what}", _EVICTION)
    return scope.builder.value(
        "load", operands, type_, cache=cache.lstrip("."), eviction=eviction, ahead=True
    )


def _loaded(
    scope: Scope, pointer: Operand, mask: Operand, other: Operand, what: str
) -> tuple[list[Value], Type]:
    """Return the operands of a load in the pointer's shape, and the type of its result."""
    address = pointer_of(pointer, what)
    dtype, shape = element_dtype(address.type), shape_of(address.type)
    operands = [address]
    condition = mask_of(scope, mask, shape, what)
    if condition is not None:
        operands.append(condition)
    if other != NONE:
        if mask == NONE:
            msg = f"`other` of {what} is the value of masked lanes, but there is no mask"
            raise KernelTypeError(msg)
        number = convert.as_number(scope, other, dtype, f"`other` of {what}")
        fill = convert.broadcast(scope, number, shape, f"`other` of {what}")
        if condition is not None:
            operands.append(fill)
    return operands, tile_of(shape, ScalarType(dtype))


@implements(tl.store)
def store(
    scope: Scope,
    pointer: Operand,
    value: Operand,
    mask: Operand,
    boundary_check: Operand,
    cache_modifier: Operand,
    eviction_policy: Operand,
) -> None:
    """Build a store of the value cast to the pointer's element type."""
    if isinstance(pointer, BlockPointer):
        _refuse_mask(mask, NONE, "tl.store")
        pointer, mask = block_pointers.addresses(scope, pointer, boundary_check, "tl.store")
    else:
        _refuse_check(boundary_check, "tl.store")
    address = pointer_of(pointer, "tl.store")
    shape = shape_of(address.type)
    number = convert.as_number(scope, value, element_dtype(address.type), "`value` of tl.store")
    operands = [address, convert.broadcast(scope, number, shape, "`value` of tl.store")]
    condition = mask_of(scope, mask, shape, "tl.store")
    if condition is not None:
        operands.append(condition)
    scope.builder.create(
        "store",
        operands,
        cache=arguments.choice(cache_modifier, "`cache_modifier` of tl.store", _STORE_CACHE).lstrip(
            "."
        ),
        eviction=arguments.choice(eviction_policy, "`eviction_policy` of tl.store", _EVICTION),
    )


def _volatile(scope: Scope, operands: list[Value], type_: Type) -> Value:
    """Build a load that happens each time; its hints mean nothing."""
    how = {"sem": "relaxed", "scope": "sys"}
    loaded = scope.builder.value("atomic_load", operands[:2], type_, **how)
    if len(operands) < 3:
        return loaded
    return scope.builder.value("select", (operands[1], loaded, operands[2]), type_)


def _nan(pointer: Value) -> Constant:
    if not element_dtype(pointer.type).is_float:
        msg = f"`padding_option` 'nan' of tl.load is for floats, got {describe(pointer)}"
        raise KernelTypeError(msg)
    return Constant(math.nan)


def _refuse_mask(mask: Operand, other: Operand, what: str) -> None:
    if mask != NONE or other != NONE:
        msg = (
            f"{what} of a block pointer takes no `mask` and no `other`: it masks itself along the "
            "axes in `boundary_check`"
        )
        raise KernelTypeError(msg)


def _refuse_check(boundary_check: Operand, what: str) -> None:
    if boundary_check != TupleOperand(()):
        msg = f"`boundary_check` of {what} is for block pointers; give a `mask`"
        raise KernelTypeError(msg)


def pointer_of(operand: Operand, what: str) -> Value:
    """Return a pointer or a tile of pointers."""
    if isinstance(operand, Value) and is_pointer(operand):
        return operand
    msg = f"`pointer` of {what} is a pointer or a tile of pointers, got {describe(operand)}"
    raise KernelTypeError(msg)


def mask_of(scope: Scope, operand: Operand, shape: tuple[int, ...], what: str) -> Value | None:
    """Return the mask in the pointer's shape; None for no mask and for True."""
    if isinstance(operand, Constant) and (operand.value is None or operand.value is True):
        return None
    is_bool = (
        isinstance(operand, Value)
        and element_dtype(operand.type) == int1
        and not is_pointer(operand)
    ) or (isinstance(operand, Constant) and isinstance(operand.value, bool))
    if not is_bool:
        msg = (
            f"`mask` of {what} is a bool or a tile of bools, got {describe(operand)}; compare with"
            " != 0"
        )
        raise KernelTypeError(msg)
    condition = convert.as_number(scope, operand, int1, f"`mask` of {what}")
    return convert.broadcast(scope, condition, shape, f"`mask` of {what}")
