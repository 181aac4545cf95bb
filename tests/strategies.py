"""Hypothesis strategies shared by the whole suite: random tile IR that verifies and may be run.

`programs()` draws a kernel over the arguments `x_*` (read), `out_*` (written), `n` and `m`. Every
access stays in its array of REGION elements (one region a program), loops are short and end, and
the last values computed are stored, so that a wrong pass shows in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    int1,
    int8,
    int32,
    int64,
    uint32,
)
from tilewright.abi.signature import KernelSignature, Pointer, Scalar
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.evaluate import integer_limits
from tilewright_compiler.ir.ops.arithmetic import PREDICATES
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    TileType,
    Type,
    element_dtype,
    element_type,
    like,
    shape_of,
)

REGION = 128
PROGRAMS = 3

INTEGERS = (int1, int8, int32, int64, uint32)
FLOATS = (float32, float16, bfloat16)
_STORED = (int32, int64, float32)
_SHAPES = ((4,), (8,), (16,), (1,), (2, 4), (4, 1), (1, 8), (8, 2), (4, 4))
_INTEGER_BINARY = (
    "add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr",
)  # fmt: skip
_FLOAT_BINARY = ("add", "sub", "mul", "div", "min", "max")


@dataclass(frozen=True, slots=True)
class Program:
    """A module with what the signature promises of its run-time arguments."""

    module: Module
    n: int
    m: int

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: object) -> None:
        """Let hypothesis show what a person can read when a test fails."""
        printer.text(f"Program(n={self.n}, m={self.m}):\n{print_module(self.module)}")


def programs(
    *, dtypes: Sequence[DType] = INTEGERS + FLOATS, accesses: bool = True, size: int = 12
) -> st.SearchStrategy[Program]:
    """Draw runnable kernels of about `size` random operations on values of `dtypes`."""
    return st.composite(_program)(tuple(dtypes), accesses, size)


def values_of(dtype: DType) -> st.SearchStrategy[int | float | bool]:
    """Draw constants of a dtype, the awkward ones often."""
    if dtype.bits == 1:
        return st.booleans()
    if dtype.is_float:
        awkward = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 65504.0, 1e-8, -2.5, 0.1])
        return awkward | st.floats(width=16, allow_nan=False)
    low, high = integer_limits(dtype)
    near = st.sampled_from([0, 1, 2, 3, 4, 8, 16, 5, 12, high, low, high - 1])
    return near | st.sampled_from([-1, -4, -16]).map(lambda v: max(v, low)) | st.integers(low, high)


@dataclass(slots=True)
class _Generator:
    """Appends random operations; `pool` is what they may use here."""

    draw: st.DrawFn
    dtypes: tuple[DType, ...]
    accesses: bool
    pointers: dict[DType, Value]
    regions: dict[DType, Value]
    pool: list[Value] = field(default_factory=list)
    accessed: list[tuple[Value, Value]] = field(default_factory=list)

    def operations(self, block: Block, count: int, depth: int) -> None:
        builder = Builder(block)
        steps = ["constant", "source", "splat", "shape", "binary", "binary", "binary"]
        steps += ["unary", "compare", "select", "cast", "cast", "reduce", "pointer"]
        steps += ["combine", "look_up"]
        if self.accesses:
            steps += ["load", "load", "store", "store"]
        if depth:
            steps += ["if", "for", "while"]
        for _ in range(count):
            name = self.draw(st.sampled_from(steps))
            getattr(self, f"_{name}")(
                builder, *((depth,) if name in ("if", "for", "while") else ())
            )

    def inner(self, block: Block, depth: int, yields: Sequence[Value], end: str = "yield") -> None:
        """Fill a region; it yields values of the types of `yields`, which are visible in it."""
        outer, accessed = list(self.pool), list(self.accessed)
        self.pool += block.arguments
        self.operations(block, self.draw(st.integers(0, 3)), depth - 1)
        Builder(block).create(end, [self.pick_of(value.type, value) for value in yields])
        self.pool, self.accessed = outer, accessed

    def pick_of(self, type_: Type, default: Value) -> Value:
        matching = [value for value in self.pool if value.type == type_]
        return self.draw(st.sampled_from(matching)) if matching else default

    def pick(self, *, scalars: bool = True, tiles: bool = True) -> Value | None:
        fitting = [
            value
            for value in self.pool
            if not isinstance(element_type(value.type), PointerType)
            and (tiles if isinstance(value.type, TileType) else scalars)
        ]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def add(self, value: Value) -> None:
        self.pool.append(value)

    def constant(self, builder: Builder, dtype: DType, value: int | float | bool) -> Value:
        return builder.value("constant", (), ScalarType(dtype), value=value)

    def _constant(self, builder: Builder) -> None:
        dtype = self.draw(st.sampled_from(self.dtypes))
        self.add(self.constant(builder, dtype, self.draw(values_of(dtype))))

    def _source(self, builder: Builder) -> None:
        if self.draw(st.booleans()):
            name = self.draw(st.sampled_from(["program_id", "num_programs"]))
            self.add(builder.value(name, (), ScalarType(int64), axis=self.draw(st.integers(0, 2))))
            return
        start, extent = (
            self.draw(st.sampled_from([0, 0, 4, 3, -8])),
            self.draw(st.sampled_from([1, 4, 8, 16])),
        )
        type_ = TileType((extent,), ScalarType(int32))
        self.add(builder.value("arange", (), type_, start=start, end=start + extent))

    def _splat(self, builder: Builder) -> None:
        scalar = self.pick(tiles=False)
        if scalar is None or not isinstance(scalar.type, ScalarType | PointerType):
            return
        shape = self.draw(st.sampled_from(_SHAPES))
        self.add(builder.value("splat", (scalar,), TileType(shape, scalar.type)))

    def _shape(self, builder: Builder) -> None:
        value = self.pick(scalars=False)
        if value is None or not isinstance(value.type, TileType):
            return
        shape, element = value.type.shape, value.type.element
        choice = self.draw(st.sampled_from(["expand_dims", "broadcast", "reshape", "transpose"]))
        match choice:
            case "expand_dims":
                if len(shape) > 1:
                    return
                axis = self.draw(st.integers(0, len(shape)))
                type_ = TileType((*shape[:axis], 1, *shape[axis:]), element)
                self.add(builder.value("expand_dims", (value,), type_, axis=axis))
            case "broadcast":
                extents = tuple(self.draw(st.sampled_from([1, 4])) if e == 1 else e for e in shape)
                self.add(builder.value("broadcast", (value,), TileType(extents, element)))
            case "reshape":
                size = value.type.size
                first = self.draw(st.sampled_from([e for e in (1, 2, 4, size) if size % e == 0]))
                target = self.draw(st.sampled_from([(size,), (first, size // first)]))
                self.add(builder.value("reshape", (value,), TileType(target, element)))
            case _:
                order = tuple(self.draw(st.permutations(range(len(shape)))))
                type_ = TileType(tuple(shape[axis] for axis in order), element)
                self.add(builder.value("transpose", (value,), type_, order=order))

    def _binary(self, builder: Builder) -> None:
        left = self.pick()
        if left is None:
            return
        dtype = element_dtype(left.type)
        names: tuple[str, ...] = _FLOAT_BINARY if dtype.is_float else _INTEGER_BINARY
        if dtype.bits == 1:
            names = ("and", "or", "xor")
        right = self.pick_of(left.type, left)
        if self.draw(st.booleans()):  # a constant operand meets most rules of the passes
            right = self.constant(builder, dtype, self.draw(values_of(dtype)))
            if isinstance(left.type, TileType):
                right = builder.value("splat", (right,), left.type)
        if self.draw(st.booleans()):
            left, right = right, left
        self.add(builder.value(self.draw(st.sampled_from(names)), (left, right), left.type))

    def _unary(self, builder: Builder) -> None:
        value = self.pick()
        if value is None or element_dtype(value.type).bits == 1:
            return
        names = ["neg", "abs"]
        if element_dtype(value.type).is_float:
            names += ["floor", "ceil", "sqrt", "exp"]
        self.add(builder.value(self.draw(st.sampled_from(names)), (value,), value.type))

    def _compare(self, builder: Builder) -> None:
        left = self.pick()
        if left is None:
            return
        right, predicate = self.pick_of(left.type, left), self.draw(st.sampled_from(PREDICATES))
        type_ = like(left.type, ScalarType(int1))
        self.add(builder.value("cmp", (left, right), type_, predicate=predicate))

    def _select(self, builder: Builder) -> None:
        left = self.pick()
        if left is None:
            return
        right = self.pick_of(left.type, left)
        self.add(builder.value("select", (self.mask(builder, left), left, right), left.type))

    def mask(self, builder: Builder, of: Value) -> Value:
        """Return an i1 of that shape: one that exists, or one that compares the value to itself."""
        type_ = like(of.type, ScalarType(int1))
        default = builder.value("cmp", (of, of), type_, predicate="eq")
        return self.pick_of(type_, default)

    def _cast(self, builder: Builder) -> None:
        value = self.pick()
        if value is None:
            return
        target = self.draw(st.sampled_from(self.dtypes))
        self.add(builder.value("cast", (value,), like(value.type, ScalarType(target))))

    def _reduce(self, builder: Builder) -> None:
        value = self.pick(scalars=False)
        if value is None or element_dtype(value.type).bits == 1:
            return
        shape = shape_of(value.type)
        axis = self.draw(st.integers(0, len(shape) - 1))
        rest = shape[:axis] + shape[axis + 1 :]
        element = element_type(value.type)
        kind = self.draw(st.sampled_from(["sum", "max", "min"]))
        type_ = TileType(rest, element) if rest else element
        self.add(builder.value("reduce", (value,), type_, axis=axis, kind=kind))

    def _combine(self, builder: Builder) -> None:
        """Add a scan or a reduction by a function whose order of application does not show."""
        value = self.pick(scalars=False)
        if value is None or element_dtype(value.type).bits == 1:
            return
        element, shape = element_type(value.type), shape_of(value.type)
        axis = self.draw(st.integers(0, len(shape) - 1))
        region = Block((Value(element), Value(element)))
        names = ["max", "min"] if element.dtype.is_float else ["max", "add", "mul", "xor"]
        name = self.draw(st.sampled_from(names))
        inner = Builder(region)
        inner.create("yield", [inner.value(name, region.arguments, element)])
        if self.draw(st.booleans()):
            reverse = self.draw(st.booleans())
            created = builder.create(
                "scan", (value,), (value.type,), (region,), axis=axis, reverse=reverse
            )
        else:
            rest = shape[:axis] + shape[axis + 1 :]
            type_ = TileType(rest, element) if rest else element
            created = builder.create("reduce_with", (value,), (type_,), (region,), axis=axis)
        self.add(created.result)

    def _look_up(self, builder: Builder) -> None:
        """Add a gather of a tile's elements at indices along its only axis."""
        source, index = self.pick(scalars=False), self.pick(scalars=False)
        if source is None or index is None or element_dtype(index.type).kind not in ("int", "uint"):
            return
        if len(shape_of(source.type)) == len(shape_of(index.type)) == 1:
            type_ = TileType(shape_of(index.type), element_type(source.type))
            self.add(builder.value("gather", (source, index), type_, axis=0))

    def address(self, builder: Builder, base: Value, *, bounded: bool) -> Value:
        """Return a pointer, or a tile of them, that stays in its region if `bounded`.

        Half of the bounded ones were accessed before: only then do two accesses meet.
        """
        known = [pointer for start, pointer in self.accessed if start is base]
        is_reused: bool = self.draw(st.booleans())
        if bounded and known and is_reused:
            return self.draw(st.sampled_from(known))
        index = self.pick()
        if index is None or element_dtype(index.type) not in (int8, int32, int64, uint32):
            index = builder.value("arange", (), TileType((8,), ScalarType(int32)), start=0, end=8)
        if bounded:
            dtype = element_dtype(index.type)
            limit = self.constant(builder, dtype, REGION - 1)
            if isinstance(index.type, TileType):
                limit = builder.value("splat", (limit,), index.type)
            index = builder.value("and", (index, limit), index.type)
        pointer = base
        if isinstance(index.type, TileType):
            pointer = builder.value("splat", (base,), like(index.type, element_type(base.type)))
        address = builder.value("addptr", (pointer, index), pointer.type)
        if bounded:
            self.accessed.append((base, address))
        return address

    def _pointer(self, builder: Builder) -> None:
        base = self.draw(st.sampled_from(list(self.pointers.values())))
        self.add(self.address(builder, base, bounded=False))

    def _load(self, builder: Builder) -> None:
        dtype = self.draw(st.sampled_from(list(self.pointers)))
        source = self.draw(st.sampled_from([self.pointers, self.regions]))[dtype]
        pointer = self.address(builder, source, bounded=True)
        operands = [pointer]
        type_ = like(pointer.type, ScalarType(dtype))
        if self.draw(st.booleans()):
            operands.append(self.mask(builder, pointer))
            if self.draw(st.booleans()):
                zero = self.constant(builder, dtype, 0.0 if dtype.is_float else 0)
                if isinstance(type_, TileType):
                    zero = builder.value("splat", (zero,), type_)
                operands.append(self.pick_of(type_, zero))
        self.add(builder.value("load", operands, type_, cache="", eviction=""))

    def _store(self, builder: Builder) -> None:
        dtype = self.draw(st.sampled_from(list(self.regions)))
        pointer = self.address(builder, self.regions[dtype], bounded=True)
        type_ = like(pointer.type, ScalarType(dtype))
        default = self.constant(builder, dtype, self.draw(values_of(dtype)))
        if isinstance(type_, TileType):
            default = builder.value("splat", (default,), type_)
        operands = [pointer, self.pick_of(type_, default)]
        if self.draw(st.booleans()):
            operands.append(self.mask(builder, pointer))
        builder.create("store", operands, cache="", eviction="")

    def place(self, builder: Builder, value: Value, base: Value, offset: int) -> Value:
        """Return where `value` goes: its elements in order, from `offset` of the region."""
        start = self.constant(builder, int32, offset)
        if not isinstance(value.type, TileType):
            return builder.value("addptr", (base, start), base.type)
        size = value.type.size
        flat = TileType((size,), ScalarType(int32))
        index = builder.value("arange", (), flat, start=offset, end=offset + size)
        tile = like(value.type, ScalarType(int32))
        if tile != flat:
            index = builder.value("reshape", (index,), tile)
        pointers = builder.value("splat", (base,), like(value.type, element_type(base.type)))
        return builder.value("addptr", (pointers, index), pointers.type)

    def condition(self, builder: Builder) -> Value:
        existing = [value for value in self.pool if value.type == ScalarType(int1)]
        is_reused: bool = self.draw(st.booleans())
        if existing and is_reused:
            return self.draw(st.sampled_from(existing))
        if self.draw(st.booleans()):
            return self.constant(builder, int1, self.draw(st.booleans()))
        axis = builder.value("program_id", (), ScalarType(int64), axis=0)
        one = self.constant(builder, int64, 1)
        return builder.value("cmp", (axis, one), ScalarType(int1), predicate="lt")

    def carried(self) -> list[Value]:
        count: int = self.draw(st.integers(0, 3))
        return [self.draw(st.sampled_from(self.pool)) for _ in range(count)]

    def _if(self, builder: Builder, depth: int) -> None:
        condition, results = self.condition(builder), self.carried()
        regions = (Block(), Block())
        for region in regions:
            self.inner(region, depth, results)
        types = [value.type for value in results]
        self.pool += builder.create("if", (condition,), types, regions).results

    def bound(self, builder: Builder) -> Value:
        """Return an i32 of at most 3: a constant, or what the compiler cannot know."""
        if self.draw(st.booleans()):
            return self.constant(builder, int32, self.draw(st.integers(0, 3)))
        axis = builder.value("program_id", (), ScalarType(int64), axis=0)
        program = builder.value("cast", (axis,), ScalarType(int32))
        return builder.value("and", (program, self.constant(builder, int32, 3)), program.type)

    def _for(self, builder: Builder, depth: int) -> None:
        lower, upper = self.bound(builder), self.bound(builder)
        step = self.constant(builder, int32, self.draw(st.sampled_from([1, 2, 4])))
        initial = self.carried()
        types = [value.type for value in initial]
        body = Block((Value(ScalarType(int32), "i"), *map(Value, types)))
        self.inner(body, depth, body.arguments[1:])
        operands = (lower, upper, step, *initial)
        unroll = self.draw(st.sampled_from([1, 1, 2, 3]))
        asked = {"unroll": unroll} if unroll > 1 else {}
        self.pool += builder.create("for", operands, types, (body,), **asked).results

    def _while(self, builder: Builder, depth: int) -> None:
        """Count down from a small number, carrying other values along."""
        count, initial = self.bound(builder), self.carried()
        types = [count.type, *(value.type for value in initial)]
        before, after = Block(tuple(map(Value, types))), Block(tuple(map(Value, types)))
        test = Builder(before)
        zero = self.constant(test, int32, 0)
        going = test.value("cmp", (before.arguments[0], zero), ScalarType(int1), predicate="gt")
        self.inner(before, depth, before.arguments[1:], end="condition")
        passed = before.operations[-1].operands
        before.operations[-1].operands = (going, before.arguments[0], *passed)
        step = Builder(after)
        left = step.value(
            "sub", (after.arguments[0], self.constant(step, int32, 1)), ScalarType(int32)
        )
        self.inner(after, depth, after.arguments[1:])
        after.operations[-1].operands = (left, *after.operations[-1].operands)
        loop = builder.create("while", (count, *initial), types, (before, after))
        self.pool += loop.results


def _program(draw: st.DrawFn, dtypes: tuple[DType, ...], accesses: bool, size: int) -> Program:
    stored = [dtype for dtype in _STORED if dtype in dtypes]
    n, m = Scalar(int64, divisible=draw(st.booleans())), Scalar(int32, unit=draw(st.booleans()))
    aligned = draw(st.booleans())
    parameters = {f"x_{dtype}": Pointer(dtype, aligned) for dtype in stored}
    parameters |= {f"out_{dtype}": Pointer(dtype, aligned) for dtype in stored}
    signature = KernelSignature((*parameters.items(), ("n", n), ("m", m)))
    arguments = {
        name: Value(PointerType(p.dtype) if isinstance(p, Pointer) else ScalarType(p.dtype), name)
        for name, p in signature.parameters
        if isinstance(p, Pointer | Scalar)
    }
    body = Block(tuple(arguments.values()))
    builder = Builder(body)
    program = builder.value("program_id", (), ScalarType(int64), axis=0)
    length = builder.value("constant", (), ScalarType(int64), value=REGION)
    start = builder.value("mul", (program, length), ScalarType(int64))
    regions = {
        dtype: builder.value("addptr", (arguments[f"out_{dtype}"], start), PointerType(dtype))
        for dtype in stored
    }
    generator = _Generator(
        draw, dtypes, accesses, {dtype: arguments[f"x_{dtype}"] for dtype in stored}, regions
    )
    generator.pool += [arguments["n"], arguments["m"]]
    generator.operations(body, draw(st.integers(1, size)), depth=2)
    if accesses:
        _store_last(generator, builder)
    builder.create("return")
    return Program(
        Module({"kernel": Function("kernel", body, (), is_kernel=True)}, signature),
        n=draw(st.sampled_from([0, 16, 48, -32] if n.divisible else [0, 1, 7, -3, 48])),
        m=1 if m.unit else draw(st.sampled_from([0, 1, 2, 5, -4])),
    )


def _store_last(generator: _Generator, builder: Builder) -> None:
    """Store the last few values, each converted to a dtype that has an array."""
    for offset, value in enumerate(reversed(generator.pool[-4:])):
        dtype = element_dtype(value.type)
        if isinstance(element_type(value.type), PointerType):
            continue
        target = dtype if dtype in generator.regions else int64 if dtype.is_integer else float32
        if target not in generator.regions:
            continue
        if target != dtype:
            value = builder.value("cast", (value,), like(value.type, ScalarType(target)))
        place = generator.place(builder, value, generator.regions[target], offset * 16)
        builder.create("store", (place, value), cache="", eviction="")
