"""Random kernels of dots in loops: masked loads, chains of elementwise work, reductions, moves.

Values are small integers and stay so: what is fed to a dot or carried on is clamped. So every sum
is exact, in any order and any float type, and two correct schedules leave equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from numpy.typing import NDArray

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
)
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import KernelSignature, Pointer, Scalar
from tilewright_compiler.interpret.proof import Launch
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.ops.dot import accumulator_dtype
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    TileType,
    element_dtype,
    like,
    shape_of,
)

OPERANDS = (bfloat16, float16, float32, int8, float64, float8e4nv)
# Elements from one row of an input to the next; the loop's end stays well below.
PITCH = 160
MAX_DEPTH = 96
_SIZE = 64 * PITCH
_CLAMP = 3
_OUT = 3 * 64 * 64


@dataclass(frozen=True, slots=True)
class DotProgram:
    """A kernel `(x, y, out, depth)` whose loops run to `depth`, with one that fits its promises."""

    module: Module
    depth: int

    def launch(self) -> Launch:
        """Return a launch of one program on random small integers."""
        random = np.random.default_rng(self.depth)
        arguments: dict[str, NDArray[np.generic] | int] = {"depth": self.depth}
        for name, parameter in self.module.signature.runtime:
            if isinstance(parameter, Pointer):
                values = random.integers(-3, 4, _OUT if name == "out" else _SIZE)
                arguments[name] = values.astype(to_numpy(parameter.dtype))
        return Launch((1, 1, 1), arguments)

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: object) -> None:
        printer.text(f"DotProgram(depth={self.depth}):\n{print_module(self.module)}")


@st.composite
def dot_programs(draw: st.DrawFn, *, dtypes: Sequence[DType] = OPERANDS) -> DotProgram:
    """Draw kernels with one or two loops around one or two dots."""
    dtype = draw(st.sampled_from(dtypes))
    unit = draw(st.sampled_from([1, 8, 16]))
    depth = draw(st.integers(0, MAX_DEPTH // unit)) * unit
    kernel = _Kernel(draw, dtype, depth_divisible=unit == 16)
    results = kernel.loop(depth=draw(st.sampled_from([1, 1, 1, 2])))
    if draw(st.booleans()):
        results += kernel.loop(depth=1)
    for value in results[-3:]:
        kernel.store(value)
    return DotProgram(kernel.finish(), depth)


@dataclass(slots=True)
class _Kernel:
    """Builds one kernel; `builder` stands where operations are appended."""

    draw: st.DrawFn
    dtype: DType
    depth_divisible: bool
    signature: KernelSignature = field(init=False)
    body: Block = field(init=False)
    builder: Builder = field(init=False)
    stored: int = 0

    def __post_init__(self) -> None:
        sum_dtype = accumulator_dtype(self.dtype, self.dtype)
        assert sum_dtype is not None
        aligned = self.draw(st.integers(0, 3)) > 0
        pointers = {"x": self.dtype, "y": self.dtype, "out": sum_dtype}
        self.signature = KernelSignature(
            (
                *((name, Pointer(dtype, aligned=aligned)) for name, dtype in pointers.items()),
                ("depth", Scalar(int64, divisible=self.depth_divisible)),
            ),
            "fast",
            num_warps=self.draw(st.sampled_from([1, 2, 4, 8])),
            num_stages=self.draw(st.sampled_from([1, 2, 3, 4])),
        )
        arguments = [Value(PointerType(dtype), name) for name, dtype in pointers.items()]
        self.body = Block((*arguments, Value(ScalarType(int64), "depth")))
        self.builder = Builder(self.body)

    def pick(self, *choices: object) -> object:
        return self.draw(st.sampled_from(choices))

    # Values

    def scalar(self, value: float, dtype: DType = int64) -> Value:
        typed = float(value) if dtype.is_float else value
        return self.builder.value("constant", (), ScalarType(dtype), value=typed)

    def full(self, value: float, like_: Value | TileType) -> Value:
        type_ = like_.type if isinstance(like_, Value) else like_
        assert isinstance(type_, TileType)
        return self.builder.value("splat", (self.scalar(value, element_dtype(type_)),), type_)

    def binary(self, name: str, left: Value, right: Value) -> Value:
        return self.builder.value(name, (left, right), left.type)

    def clamp(self, value: Value) -> Value:
        value = self.binary("min", value, self.full(_CLAMP, value))
        return self.binary("max", value, self.full(-_CLAMP, value))

    def cast(self, value: Value, dtype: DType) -> Value:
        if element_dtype(value.type) == dtype:
            return value
        return self.builder.value("cast", (value,), like(value.type, ScalarType(dtype)))

    def transpose(self, value: Value) -> Value:
        assert isinstance(value.type, TileType)
        type_ = TileType(value.type.shape[::-1], value.type.element)
        return self.builder.value("transpose", (value,), type_, order=(1, 0))

    def widen(self, line: Value, shape: tuple[int, int], axis: int) -> Value:
        """Repeat a line along `axis`."""
        assert isinstance(line.type, TileType)
        extent, element = line.type.shape[0], line.type.element
        expanded = TileType((1, extent) if axis == 0 else (extent, 1), element)
        line = self.builder.value("expand_dims", (line,), expanded, axis=axis)
        if expanded.shape == shape:
            return line
        return self.builder.value("broadcast", (line,), TileType(shape, element))

    def lanes(self, shape: tuple[int, int], axis: int, first: Value | None = None) -> Value:
        """Return the index along an axis, counted from a scalar, at each element."""
        extent = shape[axis]
        line_type = TileType((extent,), ScalarType(int32))
        line = self.builder.value("arange", (), line_type, start=0, end=extent)
        if first is not None:
            line = self.cast(line, int64)
            line = self.binary("add", line, self.builder.value("splat", (first,), line.type))
        return self.widen(line, shape, 1 - axis)

    def reduce(self, value: Value, axis: int, kind: str) -> Value:
        extent = shape_of(value.type)[1 - axis]
        type_ = TileType((extent,), ScalarType(element_dtype(value.type)))
        return self.builder.value("reduce", (value,), type_, axis=axis, kind=kind)

    # Memory

    def operand(self, name: str, shape: tuple[int, int], *, k_axis: int, start: Value) -> Value:
        """Load a tile of which one axis runs with the loop, in a random form."""
        flips = bool(self.pick(False, False, True))
        if flips:
            shape, k_axis = shape[::-1], 1 - k_axis
        fastest = self.draw(st.integers(0, 1))
        inner = self.lanes(shape, k_axis, start)
        outer = self.cast(self.lanes(shape, 1 - k_axis), int64)
        slow, fast = (outer, inner) if fastest == k_axis else (inner, outer)
        pitch = self.full(PITCH if fastest == k_axis else 64, slow)
        offset = self.binary("add", self.binary("mul", slow, pitch), fast)
        index = 0 if name == "x" else 1
        element = PointerType(self.dtype)
        base = self.builder.value("splat", (self.body.arguments[index],), TileType(shape, element))
        pointer = self.builder.value("addptr", (base, offset), base.type)
        value = self.load(pointer, self.mask(inner, outer))
        value = self.elementwise(value)
        return self.transpose(value) if flips else value

    def mask(self, inner: Value, outer: Value) -> Value | None:
        masks = []
        if self.pick(True, True, False):
            end = self.builder.value("splat", (self.body.arguments[3],), inner.type)
            masks.append(self.less(inner, end))
        if self.pick(True, False, False):
            masks.append(self.less(outer, self.full(self.draw(st.integers(0, 20)), outer)))
        if len(masks) == 2:
            return self.binary("and", *masks)
        return masks[0] if masks else None

    def less(self, left: Value, right: Value) -> Value:
        type_ = like(left.type, ScalarType(int1))
        return self.builder.value("cmp", (left, right), type_, predicate="lt")

    def load(self, pointer: Value, mask: Value | None) -> Value:
        assert isinstance(pointer.type, TileType)
        type_ = TileType(pointer.type.shape, ScalarType(self.dtype))
        operands = [pointer]
        if mask is not None:
            operands.append(mask)
            other = self.pick(None, 0, 0, 1)
            if other is not None:
                assert isinstance(other, int)
                operands.append(self.full(other, type_))
        return self.builder.value("load", operands, type_, cache="", eviction="")

    def elementwise(self, value: Value) -> Value:
        """Change a loaded tile by exact arithmetic; the result has the operands' dtype."""
        if self.pick(True, True, False):
            return value
        wide = float32 if self.dtype.is_float and self.dtype.bits < 64 else self.dtype
        value = self.cast(value, wide)
        value = self.binary(str(self.pick("add", "sub", "max")), value, self.full(1, value))
        return self.cast(self.clamp(value), self.dtype)

    def store(self, value: Value) -> None:
        assert isinstance(value.type, TileType)
        shape = value.type.shape
        extents = shape if len(shape) == 2 else (1, shape[0])
        if len(shape) == 1:
            value = self.widen(value, (1, shape[0]), 0)
        rows = self.binary(
            "mul", self.lanes(extents, 0), self.full(extents[1], self.lanes(extents, 0))
        )
        offset = self.binary("add", rows, self.lanes(extents, 1))
        offset = self.binary("add", offset, self.full(self.stored, offset))
        out = self.body.arguments[2]
        pointers = TileType(extents, PointerType(element_dtype(out.type)))
        base = self.builder.value("splat", (out,), pointers)
        pointer = self.builder.value("addptr", (base, offset), base.type)
        self.builder.create("store", (pointer, value), cache="", eviction="")
        self.stored += extents[0] * extents[1]

    # Loops

    def loop(self, *, depth: int) -> list[Value]:
        """Append a loop of dots, with `depth` 2 inside another; return what it carries out."""
        extents = [8, 16, 16, 32, 32, 64] if self.draw(st.integers(0, 4)) else [1, 2, 4, 16]
        m, n, k, d = (self.draw(st.sampled_from(extents)) for _ in range(4))
        sums = self.signature.parameters[2][1]
        assert isinstance(sums, Pointer)
        acc = ScalarType(sums.dtype)
        is_chained = bool(self.pick(True, False))
        initial = [self.full(0, TileType((m, d if is_chained else n), acc))]
        if self.pick(True, False):
            initial.append(self.full(0, TileType((m,), acc)))
        attributes = {}
        if self.pick(True, False, False):
            attributes["num_stages"] = self.draw(st.integers(1, 4))

        def body(start: Value, carried: Sequence[Value]) -> list[Value]:
            a = self.operand("x", (m, k), k_axis=1, start=start)
            b = self.operand("y", (k, n), k_axis=0, start=start)
            total = carried[0]
            bias = None
            if self.pick(True, False, False):  # a load that reaches no dot
                bias = self.cast(self.operand("y", (m, n), k_axis=1, start=start), acc.dtype)
            if not is_chained and self.pick(True, True, False):
                total = product = self.dot(a, b, total)
            else:
                zero = self.full(0, TileType((m, n), acc))
                product = self.dot(a, b, zero)
                if bias is not None:
                    product = self.binary("add", product, bias)
                product = self.clamp(product)
                if is_chained:
                    c = self.operand("y", (n, d), k_axis=0, start=start)
                    total = self.dot(self.cast(product, self.dtype), c, total)
                else:
                    total = self.binary("add", total, product)
            results = [total]
            for line in carried[1:]:
                kind = str(self.pick("max", "sum"))
                rows = product if bias is None else self.binary("max", product, bias)
                found = self.reduce(self.clamp(rows), 1, kind)
                line = self.clamp(self.binary("max", line, found))
                results.append(line)
                if self.pick(True, False):
                    shape = shape_of(total.type)
                    assert len(shape) == 2
                    sign = self.binary("min", self.full(1, line), line)
                    results[0] = self.binary("mul", self.clamp(total), self.widen(sign, shape, 1))
            return results

        upper = self.body.arguments[3]
        if depth == 1:
            return self.for_loop(upper, k, initial, body, attributes)

        def outer(_start: Value, carried: Sequence[Value]) -> list[Value]:
            return self.for_loop(upper, k, carried, body, attributes)

        return self.for_loop(self.scalar(2), 1, initial, outer, {})

    def dot(self, a: Value, b: Value, acc: Value) -> Value:
        precision = "ieee"
        if self.dtype == float32:
            precision = str(self.pick("ieee", "tf32", "tf32x3"))
        return self.builder.value("dot", (a, b, acc), acc.type, precision=precision)

    def for_loop(
        self,
        upper: Value,
        step: int,
        initial: Sequence[Value],
        body: Callable[[Value, Sequence[Value]], list[Value]],
        attributes: dict[str, int],
    ) -> list[Value]:
        outside = self.builder
        block = Block(tuple(Value(type_) for type_ in (upper.type, *(v.type for v in initial))))
        operands = (self.scalar(0), upper, self.scalar(step), *initial)
        self.builder = Builder(block)
        results = body(block.arguments[0], block.arguments[1:])
        self.builder.create("yield", results)
        self.builder = outside
        types = [value.type for value in initial]
        return list(outside.create("for", operands, types, (block,), **attributes).results)

    def finish(self) -> Module:
        self.builder.create("return")
        function = Function("program", self.body, is_kernel=True)
        return Module({"program": function}, self.signature)
