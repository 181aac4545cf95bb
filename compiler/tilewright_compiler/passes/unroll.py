"""Unrolls the loops whose author asked for it: `unroll` iterations become one, and a rest follows.

`for i in lower to upper step s` with a factor k becomes a loop of step k * s, whose body is the old
one k times over, and the old loop from where that ends. No iteration is skipped, added or moved, so
the results are the same bits. The rest has fewer than k iterations and is not pipelined. The step
must be a constant; of a loop whose step is not, the factor is dropped.
"""

from __future__ import annotations

from tilewright.abi.dtypes import ALL, DType, int1
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_operation, copy_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import ScalarType, element_dtype

_UNSIGNED = {dtype.bits: dtype for dtype in ALL if dtype.kind == "uint"}


def unroll(module: Module) -> Module:
    """Return the module without `unroll` attributes: such loops are written out.

    A module without such loops is returned as it is.
    """
    bodies = [function.body for function in module.functions.values()]
    if not any("unroll" in operation.attributes for body in bodies for operation in body.walk()):
        return module
    functions = {
        name: Function(
            name,
            _Unroller().block(function.body),
            function.result_types,
            function.is_kernel,
            function.location,
        )
        for name, function in module.functions.items()
    }
    return Module(functions, module.signature, dict(module.attributes))


class _Unroller:
    """Copies one function, inner loops first."""

    def __init__(self) -> None:
        self._values: ValueMap = {}
        self._constants: dict[Value, int] = {}

    def block(self, block: Block) -> Block:
        copy = Block(tuple(Value(argument.type, argument.name) for argument in block.arguments))
        self._values.update(zip(block.arguments, copy.arguments, strict=True))
        builder = Builder(copy)
        for operation in block.operations:
            regions = tuple(self.block(region) for region in operation.regions)
            builder.location = operation.location
            factor = operation.attributes.get("unroll", 1)
            step = self._constants.get(operation.operands[2]) if factor > 1 else None
            if step is not None and _fits(
                step * factor, element_dtype(regions[0].arguments[0].type)
            ):
                self._write_out(operation, regions[0], step, factor, builder)
                continue
            copied = copy_operation(operation, self._values, builder, regions)
            copied.attributes.pop("unroll", None)
            if operation.name == "constant":
                self._constants[operation.result] = operation.attributes["value"]
        return copy

    def _write_out(
        self, loop: Operation, body: Block, step: int, factor: int, builder: Builder
    ) -> None:
        lower, upper, old_step, *initial = (self._values[value] for value in loop.operands)
        dtype = element_dtype(lower.type)
        end = _end(builder, lower, upper, step * (factor - 1), dtype)
        wide = _constant(builder, step * factor, dtype)
        inner = Block(tuple(Value(argument.type, argument.name) for argument in body.arguments))
        reached = Value(lower.type)
        inner.arguments = (*inner.arguments, reached)
        inside = Builder(inner)
        induction, *carried = inner.arguments[:-1]
        for number in range(factor):
            here = induction
            if number:
                inside.location = loop.location
                distance = _constant(inside, step * number, dtype)
                here = inside.value("add", [induction, distance], lower.type)
            values: ValueMap = dict(zip(body.arguments, (here, *carried), strict=True))
            for operation in body.operations[:-1]:
                clone_operation(operation, values, inside)
            carried = [values.get(value, value) for value in body.terminator.operands]
        inside.location = loop.location
        following = inside.value("add", [induction, wide], lower.type)
        inside.create("yield", [*carried, following])
        attributes = {key: value for key, value in loop.attributes.items() if key != "unroll"}
        types = [value.type for value in (*initial, lower)]
        main = builder.create(
            "for", (lower, end, wide, *initial, lower), types, (inner,), **attributes
        )
        *after, start = main.results
        rest = builder.create(
            "for",
            (start, upper, old_step, *after),
            [value.type for value in initial],
            (body,),
            num_stages=1,
        )
        for old, new in zip(loop.results, rest.results, strict=True):
            new.name = old.name
        self._values.update(zip(loop.results, rest.results, strict=True))


def _end(builder: Builder, lower: Value, upper: Value, ahead: int, dtype: DType) -> Value:
    """Return where the wide loop ends: it has what still has an iteration `ahead` of it."""
    unsigned = ScalarType(_UNSIGNED[dtype.bits])
    runs = builder.value("cmp", [lower, upper], ScalarType(int1), predicate="lt")
    distance = builder.value("sub", [upper, lower], lower.type)
    if dtype.is_signed:
        distance = builder.value("bitcast", [distance], unsigned)
    most = builder.value("constant", [], unsigned, value=ahead)
    is_far = builder.value("cmp", [most, distance], ScalarType(int1), predicate="lt")
    enough = builder.value("and", [runs, is_far], ScalarType(int1))
    last = builder.value("sub", [upper, _constant(builder, ahead, dtype)], lower.type)
    return builder.value("select", [enough, last, lower], lower.type)


def _constant(builder: Builder, value: int, dtype: DType) -> Value:
    return builder.value("constant", [], ScalarType(dtype), value=value)


def _fits(number: int, dtype: DType) -> bool:
    return number < 1 << (dtype.bits - dtype.is_signed)
