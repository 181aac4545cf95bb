"""Kernels of one dot in scheduled IR: operands in registers or in shared memory, in either order.

`dot_module` is what the schedule makes of the simplest matrix product, without a loop: an operand
is loaded in the layout that the dot takes, or brought to shared memory and read by the dot there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from helpers.emitted import run_scheduled
from helpers.ptx_interpreter import Order
from helpers.tile_operation import HINTS, Array
from tilewright.abi.dtypes import DType, int32
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    SharedType,
    TileType,
    TokenType,
    like,
)
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.layout.atoms import Atom, dot_layouts
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.swizzle import swizzled

Place = Literal["registers", "stored", "copied", "transposed"]


@dataclass(frozen=True)
class Dot:
    """A dot over the warps of a program; its operands stand in memory row by row.

    `places` says where they are: in registers; in shared memory, stored from registers or copied
    asynchronously; "transposed" is copied from memory that holds the transpose. With `cast`, those
    in registers are converted first.
    """

    atom: Atom
    warps: tuple[int, int]
    precision: str = "ieee"
    places: tuple[Place, Place] = ("registers", "registers")
    num_warps: int = 4
    cast: DType | None = None


def run_dot(dot: Dot, a: Array, b: Array, acc: Array, *, order: Order = "lockstep") -> Array:
    """Return `acc + a @ b` as the emitted kernel computes it."""
    module = dot_module(dot, a, b, acc)
    out = np.zeros_like(acc)
    memory = [
        np.ascontiguousarray(array.T) if place == "transposed" else array
        for array, place in zip((a, b), dot.places, strict=True)
    ]
    run_scheduled(module, [*memory, acc, out], order=order)
    return out


def dot_module(dot: Dot, a: Array, b: Array, acc: Array) -> Module:
    """Return the scheduled kernel of a dot for operands like these."""
    dtypes = [from_numpy(array.dtype) for array in (a, b, acc, acc)]
    names = ("a", "b", "acc", "out")
    arguments = tuple(
        Value(PointerType(dtype), name) for dtype, name in zip(dtypes, names, strict=True)
    )
    builder = Builder(Block(arguments))
    (m, k), n = a.shape, b.shape[1]
    layouts = dot_layouts(dot.atom, shape=(m, n, k), warps=dot.warps, num_warps=dot.num_warps)
    shared_bytes = 0
    operands = []
    for argument, array, layout, place in zip(
        arguments, (a, b), (layouts.a, layouts.b), dot.places, strict=False
    ):
        if place == "registers":
            loaded = _load(builder, argument, layout)
            if dot.cast is not None:
                loaded = builder.value("cast", [loaded], like(loaded.type, ScalarType(dot.cast)))
            operands.append(loaded)
            continue
        operands.append(_shared(builder, argument, layout.shape, place, shared_bytes, dot))
        shared_bytes += array.nbytes
    if shared_bytes:
        builder.create("barrier")
    operands.append(_load(builder, arguments[2], layouts.acc))
    result = builder.value(
        "dot",
        operands,
        operands[-1].type,
        precision=dot.precision,
        atom=dot.atom.name,
        warps=dot.warps,
    )
    builder.create("store", [_pointers(builder, arguments[3], layouts.acc), result], **HINTS)
    builder.create("return")
    pairs = zip(names, dtypes, strict=True)
    signature = KernelSignature(
        tuple((name, Pointer(dtype, aligned=True)) for name, dtype in pairs),
        num_warps=dot.num_warps,
    )
    function = Function("one_dot", builder.block, is_kernel=True)
    module = Module({"one_dot": function}, signature, {"shared_bytes": shared_bytes})
    verify(module)
    return module


def random_operand(rng: np.random.Generator, shape: tuple[int, int], dtype: DType) -> Array:
    """Return numbers of a dtype; floats have all their bits and are not large."""
    if dtype.is_integer:
        info = np.iinfo(to_numpy(dtype))
        return rng.integers(info.min, info.max, shape, to_numpy(dtype), endpoint=True)
    return rng.standard_normal(shape).astype(to_numpy(dtype))


def _shared(
    builder: Builder,
    argument: Value,
    shape: tuple[int, ...],
    place: Place,
    offset: int,
    dot: Dot,
) -> Value:
    """Bring an operand to shared memory; return the tile that the dot reads."""
    dtype = _dtype(argument)
    if place == "transposed":
        shape = shape[::-1]
    layout = swizzled(shape, (1, 0), size_bytes=dtype.size_bytes)
    type_ = SharedType(shape, dtype, layout)
    tile = builder.value("alloc_shared", [], type_, shared_offset=offset)
    vector = min(16 // dtype.size_bytes, shape[1])
    source = blocked(shape, (1, 0), vector=vector, num_warps=dot.num_warps)
    if place == "stored":
        builder.create("shared_store", [_load(builder, argument, source), tile])
        return tile
    pointers = _pointers(builder, argument, source)
    builder.create("async_copy", [pointers, tile], **HINTS)
    token = builder.value("async_commit", [], TokenType())
    builder.create("async_wait", [token], pending=0)
    if place == "copied":
        return tile
    moved = layout.transpose((1, 0))
    return builder.value(
        "shared_transpose", [tile], SharedType(moved.shape, dtype, moved), order=(1, 0)
    )


def _load(builder: Builder, argument: Value, layout: LinearLayout) -> Value:
    type_ = TileType(layout.shape, ScalarType(_dtype(argument)), layout)
    return builder.value("load", [_pointers(builder, argument, layout)], type_, **HINTS)


def _pointers(builder: Builder, argument: Value, layout: LinearLayout) -> Value:
    """Return pointers to a tile that lies in memory row by row."""
    flat = TileType((layout.size,), ScalarType(int32), layout.reshape((layout.size,)))
    index = builder.value("arange", [], flat, start=0, end=layout.size)
    tile = builder.value("reshape", [index], TileType(layout.shape, ScalarType(int32), layout))
    base = builder.value("splat", [argument], like(tile.type, PointerType(_dtype(argument))))
    return builder.value("addptr", [base, tile], base.type)


def _dtype(pointer: Value) -> DType:
    assert isinstance(pointer.type, PointerType)
    return pointer.type.dtype
