"""Random kernels over [M, N] tiles: loads, arithmetic, reductions, dots, moves, loops, stores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright.abi.dtypes import DType, float16, float32, int1, int32, int64
from tilewright.abi.signature import KernelSignature, Pointer, Scalar
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType, shape_of

F32 = ScalarType(float32)
I32 = ScalarType(int32)
_KINDS = (
    *("binary", "unary", "reduce", "widen", "turn", "loop", "while", "if"),
    *("gather", "walk", "index", "flatten", "dot", "flip", "pair"),
    *("combine", "look_up"),
)


@dataclass(slots=True)
class TileProgram:
    """Builds one kernel `(x, y, out, flag)`; each store takes its own part of `out`."""

    num_warps: int
    block: Block = field(init=False)
    signature: KernelSignature = field(init=False)
    stored: int = 0

    def __post_init__(self) -> None:
        pointer = Pointer(float32, aligned=True)
        self.signature = KernelSignature(
            (("x", pointer), ("y", pointer), ("out", pointer), ("flag", Scalar(int64))),
            "fast",
            num_warps=self.num_warps,
        )
        types = [PointerType(float32)] * 3 + [ScalarType(int64)]
        self.block = Block(tuple(Value(type_) for type_ in types))

    @property
    def build(self) -> Builder:
        return Builder(self.block)

    def argument(self, index: int) -> Value:
        return self.block.arguments[index]

    def index(self, value: int) -> Value:
        return self.build.value("constant", (), ScalarType(int64), value=value)

    def splat(self, scalar: Value, shape: tuple[int, ...]) -> Value:
        assert isinstance(scalar.type, ScalarType | PointerType)
        return self.build.value("splat", (scalar,), TileType(shape, scalar.type))

    def offsets(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Value:
        """Return the i32 offsets of a strided tile."""
        total: Value | None = None
        for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
            line = self.build.value("arange", (), TileType((extent,), I32), start=0, end=extent)
            scale = self.splat(self.build.value("constant", (), I32, value=stride), (extent,))
            line = self.build.value("mul", (line, scale), line.type)
            for other in range(len(shape)):
                if other != axis:
                    line = self.expand(line, other)
            line = self.broadcast(line, shape)
            total = line if total is None else self.build.value("add", (total, line), line.type)
        assert total is not None
        return total

    def pointers(self, base: Value, shape: tuple[int, ...], *, columns_first: bool) -> Value:
        """Return pointers to a dense tile in row-major or column-major order."""
        strides = [1] * len(shape)
        order = list(range(len(shape)))
        for axis in order[1:] if columns_first else order[-2::-1]:
            inner = axis - 1 if columns_first else axis + 1
            strides[axis] = strides[inner] * shape[inner]
        tile = self.splat(base, shape)
        offsets = self.offsets(shape, tuple(strides))
        return self.build.value("addptr", (tile, offsets), tile.type)

    def load(self, argument: int, shape: tuple[int, ...], *, columns_first: bool) -> Value:
        pointer = self.pointers(self.argument(argument), shape, columns_first=columns_first)
        return self.build.value("load", (pointer,), TileType(shape, F32), cache="", eviction="")

    def store(self, value: Value, *, columns_first: bool) -> None:
        shape = shape_of(value.type)
        start = self.index(self.stored)
        base = self.argument(2)
        moved = self.build.value("addptr", (base, start), base.type)
        pointer = self.pointers(moved, shape, columns_first=columns_first)
        self.build.create("store", (pointer, value), cache="", eviction="")
        self.stored += int(np.prod(shape))

    def binary(self, name: str, left: Value, right: Value) -> Value:
        return self.build.value(name, (left, right), left.type)

    def unary(self, name: str, value: Value) -> Value:
        return self.build.value(name, (value,), value.type)

    def reduce(self, value: Value, axis: int, kind: str) -> Value:
        shape = shape_of(value.type)
        result = TileType(shape[:axis] + shape[axis + 1 :], F32)
        return self.build.value("reduce", (value,), result, axis=axis, kind=kind)

    def combine(self, value: Value, axis: int, name: str, *, reverse: bool | None) -> Value:
        """Return a scan of a tile, or without a direction a reduction by a function of two."""
        region = Block((Value(F32), Value(F32)))
        inner = Builder(region)
        inner.create("yield", [inner.value(name, region.arguments, F32)])
        if reverse is not None:
            return self.build.create(
                "scan", (value,), (value.type,), (region,), axis=axis, reverse=reverse
            ).result
        shape = shape_of(value.type)
        result = TileType(shape[:axis] + shape[axis + 1 :], F32)
        return self.build.create("reduce_with", (value,), (result,), (region,), axis=axis).result

    def look_up(self, source: Value, index: Value, axis: int) -> Value:
        """Return elements of `source` along an axis, at indices made of the other's values."""
        places = self.build.value("cast", (index,), TileType(shape_of(index.type), I32))
        type_ = TileType(shape_of(index.type), F32)
        return self.build.value("gather", (source, places), type_, axis=axis)

    def expand(self, value: Value, axis: int) -> Value:
        assert isinstance(value.type, TileType)
        shape = value.type.shape
        type_ = TileType((*shape[:axis], 1, *shape[axis:]), value.type.element)
        return self.build.value("expand_dims", (value,), type_, axis=axis)

    def broadcast(self, value: Value, shape: tuple[int, ...]) -> Value:
        assert isinstance(value.type, TileType)
        if value.type.shape == shape:
            return value
        return self.build.value("broadcast", (value,), TileType(shape, value.type.element))

    def transpose(self, value: Value) -> Value:
        assert isinstance(value.type, TileType)
        type_ = TileType(value.type.shape[::-1], value.type.element)
        return self.build.value("transpose", (value,), type_, order=(1, 0))

    def flip(self, value: Value, axis: int) -> Value:
        return self.build.value("flip", (value,), value.type, axis=axis)

    def pair(self, left: Value, right: Value) -> Value:
        """Return the two in turn along an axis of their own, summed over it from one side."""
        shape = (*shape_of(left.type), 2)
        rank = len(shape) - 1
        halves = [self.broadcast(self.expand(v, rank), shape) for v in (left, right)]
        place = self.build.value("arange", (), TileType((2,), I32), start=0, end=2)
        for _ in range(rank):
            place = self.expand(place, 0)
        place = self.broadcast(place, shape)
        zero = self.splat(self.build.value("constant", (), I32, value=0), shape)
        is_left = self.build.value(
            "cmp", (place, zero), TileType(shape, ScalarType(int1)), predicate="eq"
        )
        pairs = self.build.value("select", (is_left, *halves), halves[0].type)
        return self.reduce(self.flip(pairs, rank), rank, "max")

    def dot(self, left: Value, right: Value, acc: Value | None, dtype: DType) -> Value:
        """Return `left @ right^T`, of operands cast to `dtype`, added to `acc` or to zero."""
        result = TileType((shape_of(left.type)[0], shape_of(right.type)[0]), F32)
        if acc is None:
            zero = self.build.value("constant", (), F32, value=0.0)
            acc = self.splat(zero, result.shape)
        a, b = (
            self.build.value("cast", (value,), TileType(shape_of(value.type), ScalarType(dtype)))
            for value in (left, self.transpose(right))
        )
        return self.build.value("dot", (a, b, acc), result, precision="ieee")

    def loop(self, initial: Value, step: Value, name: str) -> Value:
        """Return `initial` combined with `step` in a loop of three turns."""
        induction, carried = Value(ScalarType(int64)), Value(initial.type)
        body = Block((induction, carried))
        inner = Builder(body)
        combined = inner.value(name, (carried, step), initial.type)
        inner.create("yield", (combined,))
        bounds = (self.index(0), self.index(3), self.index(1))
        loop = self.build.create("for", (*bounds, initial), (initial.type,), (body,))
        return loop.result

    def repeat(self, initial: Value, step: Value, name: str) -> Value:
        """Return `initial` combined with `step` in a `while` of two turns."""
        types = (ScalarType(int64), initial.type)
        before, after = (Block(tuple(Value(type_) for type_ in types)) for _ in range(2))
        check, turn = Builder(before), Builder(after)
        limit = check.value("constant", (), types[0], value=2)
        goes_on = check.value("cmp", (before.arguments[0], limit), ScalarType(int1), predicate="lt")
        check.create("condition", (goes_on, *before.arguments))
        one = turn.value("constant", (), types[0], value=1)
        count = turn.value("add", (after.arguments[0], one), types[0])
        combined = turn.value(name, (after.arguments[1], step), initial.type)
        turn.create("yield", (count, combined))
        start = (self.index(0), initial)
        return self.build.create("while", start, types, (before, after)).results[1]

    def gather(self, places: Value, mask: Value) -> Value:
        """Load x at indices made of the values, where the other values are positive."""
        shape = shape_of(places.type)
        limit = self.splat(self.build.value("constant", (), I32, value=63), shape)
        index = self.build.value("cast", (places,), TileType(shape, I32))
        index = self.binary("and", index, limit)
        tile = self.splat(self.argument(0), shape)
        pointer = self.build.value("addptr", (tile, index), tile.type)
        zero = self.splat(self.build.value("constant", (), F32, value=0.0), shape)
        inside = self.build.value(
            "cmp", (mask, zero), TileType(shape, ScalarType(int1)), predicate="gt"
        )
        operands = (pointer, inside, places)
        return self.build.value("load", operands, TileType(shape, F32), cache="", eviction="")

    def walk(self, shape: tuple[int, ...], *, columns_first: bool) -> Value:
        """Sum three loads from a pointer that a loop carries on."""
        pointer = self.pointers(self.argument(1), shape, columns_first=columns_first)
        zero = self.splat(self.build.value("constant", (), F32, value=0.0), shape)
        ahead = self.splat(self.build.value("constant", (), I32, value=16), shape)
        induction, at, total = (Value(t) for t in (ScalarType(int64), pointer.type, zero.type))
        body = Block((induction, at, total))
        inner = Builder(body)
        loaded = inner.value("load", (at,), zero.type, cache="", eviction="")
        total = inner.value("add", (total, loaded), zero.type)
        at = inner.value("addptr", (at, ahead), pointer.type)
        inner.create("yield", (at, total))
        bounds = (self.index(0), self.index(3), self.index(1))
        operands = (*bounds, pointer, zero)
        return self.build.create("for", operands, (pointer.type, zero.type), (body,)).results[1]

    def branch(self, first: Value, second: Value) -> Value:
        """Return one of two values, by the run-time flag."""
        regions = []
        for value in (first, second):
            region = Block()
            Builder(region).create("yield", (value,))
            regions.append(region)
        zero = self.index(0)
        condition = self.build.value(
            "cmp", (self.argument(3), zero), ScalarType(int1), predicate="eq"
        )
        return self.build.create("if", (condition,), (first.type,), regions).result

    def finish(self) -> Module:
        self.build.create("return")
        function = Function("program", self.block, is_kernel=True)
        return Module({"program": function}, self.signature)


@st.composite
def programs(draw: st.DrawFn) -> Module:
    """Kernels that store a few values computed in random ways from two loaded arrays."""
    program = TileProgram(draw(st.sampled_from([1, 2, 4])))
    extents = st.sampled_from([1, 2, 4, 8, 32, 64])
    m, n = draw(extents), draw(extents)
    pool: list[Value] = [
        program.load(argument, (m, n), columns_first=draw(st.booleans())) for argument in (0, 1)
    ]

    def pick(*shapes: tuple[int, ...]) -> Value | None:
        fitting = [value for value in pool if shape_of(value.type) in shapes]
        return draw(st.sampled_from(fitting)) if fitting else None

    names = st.sampled_from(["add", "sub", "mul", "max"])
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(_KINDS))
        first = draw(st.sampled_from(pool))
        shape = shape_of(first.type)
        match kind:
            case "binary" | "loop" | "while" | "if" | "gather":
                second = pick(shape)
                assert second is not None
                if kind == "binary":
                    pool.append(program.binary(draw(names), first, second))
                elif kind == "loop":
                    pool.append(program.loop(first, second, draw(names)))
                elif kind == "while":
                    pool.append(program.repeat(first, second, draw(names)))
                elif kind == "gather":
                    pool.append(program.gather(first, second))
                else:
                    pool.append(program.branch(first, second))
            case "walk":
                pool.append(program.walk((m, n), columns_first=draw(st.booleans())))
            case "index":
                place = program.offsets((m, n), (draw(st.integers(0, 3)), 1))
                pool.append(program.build.value("cast", (place,), TileType((m, n), F32)))
            case "combine":
                axis, reverse = draw(st.integers(0, len(shape) - 1)), draw(st.booleans())
                is_scan = len(shape) == 1 or draw(st.booleans())
                name = draw(st.sampled_from(["add", "max"]))
                pool.append(
                    program.combine(first, axis, name, reverse=reverse if is_scan else None)
                )
            case "look_up":
                second = pick(shape)
                assert second is not None
                pool.append(program.look_up(first, second, draw(st.integers(0, len(shape) - 1))))
            case "flip":
                pool.append(program.flip(first, draw(st.integers(0, len(shape) - 1))))
            case "pair":
                second = pick(shape)
                assert second is not None
                pool.append(program.pair(first, second))
            case "flatten" if len(shape) == 2:
                flat = TileType((shape[0] * shape[1],), F32)
                pool.append(program.build.value("reshape", (first,), flat))
            case "dot" if len(shape) == 2:
                second, acc = pick(shape), pick((shape[0], shape[0]))
                assert second is not None
                pool.append(
                    program.dot(first, second, acc, draw(st.sampled_from([float16, float32])))
                )
            case "unary":
                pool.append(program.unary(draw(st.sampled_from(["exp", "neg"])), first))
            case "reduce" if len(shape) == 2:
                axis = draw(st.integers(0, 1))
                pool.append(program.reduce(first, axis, draw(st.sampled_from(["sum", "max"]))))
            case "widen" if shape in ((m,), (n,)):
                axis = 1 if shape == (m,) else 0
                pool.append(program.broadcast(program.expand(first, axis), (m, n)))
            case "turn" if len(shape) == 2:
                pool.append(program.transpose(first))
    for value in pool[-3:]:
        program.store(value, columns_first=draw(st.booleans()))
    return program.finish()


def arrays() -> dict[str, NDArray[np.float32]]:
    """Return inputs large enough for every random kernel; values are small integers in f32."""
    generator = np.random.default_rng(7)
    inputs = {name: generator.integers(-3, 4, 8192).astype(np.float32) for name in ("x", "y")}
    return {**inputs, "out": np.zeros(3 * 4096, np.float32)}
