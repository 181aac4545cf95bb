"""Run one operation of the tile IR in the interpreter: inputs are loaded, the result is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, int32
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType, Type, like
from tilewright_compiler.ir.verifier import verify

Array = np.ndarray[Any, np.dtype[Any]]
HINTS: dict[str, Any] = {"cache": "", "eviction": ""}


def apply(
    name: str,
    inputs: Sequence[Array],
    *,
    dtype: DType | None = None,
    shape: tuple[int, ...] | None = None,
    **attributes: Any,
) -> Array:
    """Return what the operation gives on tiles `inputs`; by default of the first one's type.

    A tile of shape () is a scalar. Extents must be powers of two.
    """
    module, arrays = operation_module(name, inputs, dtype=dtype, shape=shape, **attributes)
    run(module, grid=(1, 1, 1), arguments=arrays)
    return arrays["out"]


def operation_module(
    name: str,
    inputs: Sequence[Array],
    *,
    dtype: DType | None = None,
    shape: tuple[int, ...] | None = None,
    num_warps: int = 4,
    **attributes: Any,
) -> tuple[Module, dict[str, Array]]:
    """Return a kernel that loads `inputs`, applies the operation and stores; and its arguments."""
    shape = inputs[0].shape if shape is None else shape
    dtype = from_numpy(inputs[0].dtype) if dtype is None else dtype
    result = np.zeros(shape, to_numpy(dtype))
    arrays = {f"x{index}": array for index, array in enumerate(inputs)} | {"out": result}
    arguments = tuple(
        Value(PointerType(from_numpy(array.dtype)), name) for name, array in arrays.items()
    )
    builder = Builder(Block(arguments))
    operands = []
    for pointer, array in zip(arguments, inputs, strict=False):
        element = ScalarType(from_numpy(array.dtype))
        type_ = TileType(array.shape, element) if array.ndim else element
        pointers = _pointers(builder, pointer, array.shape)
        operands.append(builder.value("load", [pointers], type_, **HINTS))
    element = ScalarType(dtype)
    type_ = TileType(shape, element) if shape else element
    value = builder.value(name, operands, type_, **attributes)
    builder.create("store", [_pointers(builder, arguments[-1], shape), value], **HINTS)
    builder.create("return")
    signature = KernelSignature(
        tuple((key, Pointer(from_numpy(array.dtype))) for key, array in arrays.items()),
        num_warps=num_warps,
    )
    module = Module({"one": Function("one", builder.block, is_kernel=True)}, signature)
    verify(module)
    return module, arrays


def _pointers(builder: Builder, pointer: Value, shape: tuple[int, ...]) -> Value:
    """Return the pointers to a row-major tile."""
    if not shape:
        return pointer
    size = int(np.prod(shape))
    flat: Type = TileType((size,), ScalarType(int32))
    offsets = builder.value("arange", [], flat, start=0, end=size)
    offsets = builder.value("reshape", [offsets], TileType(shape, ScalarType(int32)))
    base = builder.value("splat", [pointer], like(offsets.type, PointerType(_dtype(pointer))))
    return builder.value("addptr", [base, offsets], base.type)


def _dtype(pointer: Value) -> DType:
    assert isinstance(pointer.type, PointerType)
    return pointer.type.dtype
