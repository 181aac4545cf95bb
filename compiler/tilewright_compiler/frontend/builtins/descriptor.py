"""Tensor descriptors: one operation where they are made, one at each load, store and
atomic operation.

Sizes, strides and offsets are 64-bit run-time scalars, widened where they were given narrower, so
that what the launch gives stays recognisable: the host makes tensor maps of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import tilewright.language as tl
from tilewright.abi.dtypes import int1, int64
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import Implementation, implements
from tilewright_compiler.frontend.infer_types import common_dtype, shape_of_operand, tile_of
from tilewright_compiler.frontend.operands import (
    Constant,
    MethodReference,
    Operand,
    TensorDescriptor,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.ops.atomics import BITWISE, NARROWEST_BITS
from tilewright_compiler.ir.types import DescriptorType, ScalarType, element_dtype

METHODS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "load": tl.load_tensor_descriptor,
        "store": tl.store_tensor_descriptor,
        "atomic_add": tl.atomic_add_tensor_descriptor,
        "atomic_max": tl.atomic_max_tensor_descriptor,
        "atomic_min": tl.atomic_min_tensor_descriptor,
        "atomic_and": tl.atomic_and_tensor_descriptor,
        "atomic_or": tl.atomic_or_tensor_descriptor,
        "atomic_xor": tl.atomic_xor_tensor_descriptor,
    }
)
_ATTRIBUTES = ("dtype", "block_shape", "shape", "strides", *METHODS)
_MOST_AXES = 5  # of a tensor map (CUDA driver API, cuTensorMapEncodeTiled)


@implements(tl.make_tensor_descriptor)
def make_tensor_descriptor(
    scope: Scope,
    base: Operand,
    shape: Operand,
    strides: Operand,
    block_shape: Operand,
    padding_option: Operand,
) -> Operand:
    """Make the descriptor."""
    what = "tl.make_tensor_descriptor"
    if not isinstance(base, Value) or not is_pointer(base) or shape_of_operand(base):
        msg = f"`base` of {what} is a pointer, got {describe(base)}"
        raise KernelTypeError(msg)
    block = arguments.shape(block_shape, f"`block_shape` of {what}")
    if len(block) > _MOST_AXES:
        msg = f"`block_shape` of {what} has {len(block)} axes; a descriptor has up to {_MOST_AXES}"
        raise KernelValueError(msg)
    tile_of(block, ScalarType(element_dtype(base.type)))
    arguments.choice(padding_option, f"`padding_option` of {what}", ("zero",))
    sizes = _scalars(scope, shape, len(block), f"`shape` of {what}")
    steps = _strides(scope, strides, len(block), f"`strides` of {what}")
    return _made(scope, TensorDescriptor((base, *sizes, *steps), block))


@implements(tl.load_tensor_descriptor)
def load_tensor_descriptor(scope: Scope, desc: Operand, offsets: Operand) -> Operand:
    """Build the load of a block."""
    what = "tl.load_tensor_descriptor"
    made, descriptor = _descriptor(scope, desc, what)
    places = _scalars(scope, offsets, len(descriptor.block), f"`offsets` of {what}")
    type_ = tile_of(descriptor.block, ScalarType(descriptor.dtype))
    return scope.builder.value("descriptor_load", (made, *places), type_)


@implements(tl.store_tensor_descriptor)
def store_tensor_descriptor(scope: Scope, desc: Operand, offsets: Operand, value: Operand) -> None:
    """Build the store of a block."""
    operands = _written(scope, desc, offsets, value, "tl.store_tensor_descriptor")
    scope.builder.create("descriptor_store", operands)


def _rmw(kind: str) -> Implementation:
    """Return what builds an atomic operation on a block."""
    what = f"tl.atomic_{kind}_tensor_descriptor"

    def build(scope: Scope, desc: Operand, offsets: Operand, value: Operand) -> None:
        operands = _written(scope, desc, offsets, value, what)
        dtype = element_dtype(operands[1].type)
        if dtype.bits < NARROWEST_BITS:
            msg = f"{what} works on elements of 16, 32 or 64 bits, got a descriptor of {dtype}"
            raise KernelTypeError(msg)
        if kind in BITWISE and dtype.is_float:
            msg = f"{what} takes integers, got a descriptor of {dtype}"
            raise KernelTypeError(msg)
        scope.builder.create("descriptor_rmw", operands, kind=kind)

    return build


for _stub, _kind in (
    (tl.atomic_add_tensor_descriptor, "add"),
    (tl.atomic_max_tensor_descriptor, "max"),
    (tl.atomic_min_tensor_descriptor, "min"),
    (tl.atomic_and_tensor_descriptor, "and"),
    (tl.atomic_or_tensor_descriptor, "or"),
    (tl.atomic_xor_tensor_descriptor, "xor"),
):
    implements(_stub)(_rmw(_kind))


def attribute(scope: Scope, operand: TensorDescriptor, name: str) -> Operand:
    """Build `operand.name`."""
    rank = len(operand.block)
    match name:
        case "dtype":
            (base, *_) = operand.items
            assert isinstance(base, Value), "a base is a pointer"
            return Constant(element_dtype(base.type))
        case "block_shape":
            return TupleOperand(tuple(map(Constant, operand.block)))
        case "shape":
            return TupleOperand(operand.items[1 : 1 + rank])
        case "strides":
            unit = convert.constant(scope, 1, int64)
            return TupleOperand((*operand.items[1 + rank :], unit))
        case _ if name in METHODS:
            return MethodReference(name, operand)
    msg = f"{describe(operand)} has no attribute `{name}`; it has {', '.join(_ATTRIBUTES)}"
    raise KernelTypeError(msg)


def _written(
    scope: Scope, desc: Operand, offsets: Operand, value: Operand, what: str
) -> tuple[Value, ...]:
    """Return the operands of an operation that writes a block: descriptor, tile, coordinates."""
    made, descriptor = _descriptor(scope, desc, what)
    places = _scalars(scope, offsets, len(descriptor.block), f"`offsets` of {what}")
    number = convert.as_number(scope, value, descriptor.dtype, f"`value` of {what}")
    tile = convert.broadcast(scope, number, descriptor.block, f"`value` of {what}")
    return made, tile, *places


def _descriptor(scope: Scope, operand: Operand, what: str) -> tuple[Value, DescriptorType]:
    if not isinstance(operand, TensorDescriptor):
        msg = (
            f"`desc` of {what} is a tensor descriptor, got {describe(operand)}; "
            "tl.make_tensor_descriptor makes one"
        )
        raise KernelTypeError(msg)
    made = operand.made or _made(scope, operand).made
    assert made is not None, "it was just made"
    assert isinstance(made.type, DescriptorType)
    return made, made.type


def _made(scope: Scope, operand: TensorDescriptor) -> TensorDescriptor:
    values = [item for item in operand.items if isinstance(item, Value)]
    assert len(values) == len(operand.items), "the items are run-time values"
    type_ = DescriptorType(element_dtype(values[0].type), operand.block)
    made = scope.builder.value("make_descriptor", values, type_)
    return TensorDescriptor(operand.items, operand.block, made)


def _strides(scope: Scope, operand: Operand, rank: int, what: str) -> list[Value]:
    """Return the strides but the last, which must be known to be 1."""
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    _check_count(operand, rank, what)
    last = items[-1]
    if isinstance(last, Value) or last != Constant(1):
        msg = (
            f"{what} ends with the number 1, got {describe(last)}: a descriptor is of an array "
            "that is contiguous along its last axis; permute the axes, or use pointers"
        )
        raise KernelValueError(msg)
    return _scalars(scope, TupleOperand(items[:-1]), rank - 1, what)


def _scalars(scope: Scope, operand: Operand, rank: int, what: str) -> list[Value]:
    """Return `rank` integers in 64 bits."""
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    _check_count(operand, rank, what)
    for item in items:
        dtype = common_dtype((item,), what)
        if shape_of_operand(item) or dtype.is_float or dtype == int1:
            msg = f"{what} has one integer for each axis, got {describe(item)}"
            raise KernelTypeError(msg)
    return [convert.as_number(scope, item, int64, what) for item in items]


def _check_count(operand: Operand, rank: int, what: str) -> None:
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    if len(items) != rank:
        msg = f"{what} has one integer for each of the {rank} axes, got {describe(operand)}"
        raise KernelTypeError(msg)
