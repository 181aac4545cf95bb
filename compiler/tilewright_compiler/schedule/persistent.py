"""A kernel of one program -> a kernel whose CTAs walk over the programs of the logical grid.

    for turn = 0, 1, .. :
        number = turn * num_ctas + (cta_index in even turns, its mirror image in odd ones)
        program ids of `number`, axis 0 fastest
        the program

So programs run in the order in which a grid would start them, whatever order a kernel makes of
their ids for the sake of the cache. Turns go to and fro so that a kernel whose programs get
shorter, as those of causal attention do from the last queries to the first, gives every CTA long
ones and short ones. What depends on arguments only stands before the loop: tensor
descriptors have to, since the host makes their maps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.abi.dtypes import int1, int32, int64
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.effects import is_pure
from tilewright_compiler.ir.types import ScalarType, SharedType, TileType
from tilewright_compiler.schedule.unsuited import Unsuited

_I64 = ScalarType(int64)


def persistent(module: Module) -> Module:
    """Let each CTA run programs one after the other; the kernel has no calls.

    Raises Unsuited if a tensor descriptor depends on more than the kernel's arguments.
    """
    kernel = module.kernel
    before = _before_programs(kernel.body)
    values: ValueMap = {}
    body = Block(tuple(Value(argument.type, argument.name) for argument in kernel.body.arguments))
    values.update(zip(kernel.body.arguments, body.arguments, strict=True))
    builder = Builder(body, kernel.location)
    extents = [builder.value("grid_extent", [], _I64, axis=axis) for axis in range(3)]
    for operation in before:
        clone_operation(operation, values, builder, lambda o, _v, _b: _extent(o, extents))
    builder.location = kernel.location
    turns = _Turns(builder, extents)
    turn = Value(_I64, "turn")
    loop_body = Block((turn,))
    inner = Builder(loop_body, kernel.location)
    ids = _program_ids(inner, turns.program(inner, turn), extents)

    def rewrite(
        operation: Operation, _operands: tuple[Value, ...], _builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation.name == "program_id":
            return (ids[operation.attributes["axis"]],)
        return _extent(operation, extents)

    for operation in kernel.body.operations[:-1]:
        if operation not in before:
            clone_operation(operation, values, inner, rewrite)
    inner.location = kernel.location
    inner.create("yield")
    zero, one = (builder.value("constant", [], _I64, value=value) for value in (0, 1))
    builder.create("for", [zero, turns.count, one], (), [loop_body])
    builder.create("return")
    function = Function(kernel.name, body, (), is_kernel=True, location=kernel.location)
    return Module({kernel.name: function}, module.signature, dict(module.attributes))


class _Turns:
    """The programs of a CTA: `count` of them, one a turn."""

    def __init__(self, builder: Builder, extents: Sequence[Value]) -> None:
        """Build what all turns share; `extents` are those of the grid."""
        cta, self._ctas = (
            builder.value("cast", [builder.value(name, [], ScalarType(int32))], _I64)
            for name in ("cta_index", "num_ctas")
        )
        self._one = builder.value("constant", [], _I64, value=1)
        last = builder.value("sub", [self._ctas, self._one], _I64)
        self._places = (builder.value("sub", [last, cta], _I64), cta)
        plane = builder.value("mul", [extents[0], extents[1]], _I64)
        total = builder.value("mul", [plane, extents[2]], _I64)
        full = builder.value("div", [total, self._ctas], _I64)
        rest = builder.value("rem", [total, self._ctas], _I64)
        place = self._place(builder, full)
        has_more = builder.value("cmp", [place, rest], ScalarType(int1), predicate="lt")
        more = builder.value("add", [full, self._one], _I64)
        self.count = builder.value("select", [has_more, more, full], _I64)

    def program(self, builder: Builder, turn: Value) -> Value:
        """Return the program of a turn."""
        begin = builder.value("mul", [turn, self._ctas], _I64)
        number = builder.value("add", [begin, self._place(builder, turn)], _I64)
        number.name = "program"
        return number

    def _place(self, builder: Builder, turn: Value) -> Value:
        odd = builder.value("and", [turn, self._one], _I64)
        zero = builder.value("constant", [], _I64, value=0)
        is_odd = builder.value("cmp", [odd, zero], ScalarType(int1), predicate="ne")
        return builder.value("select", [is_odd, *self._places], _I64)


def _extent(operation: Operation, extents: Sequence[Value]) -> tuple[Value] | None:
    is_extent = operation.name == "num_programs"
    return (extents[operation.attributes["axis"]],) if is_extent else None


def _program_ids(builder: Builder, number: Value, extents: Sequence[Value]) -> list[Value]:
    """Return the ids along the three axes; those that nothing uses are dead code."""
    rest = builder.value("div", [number, extents[0]], _I64)
    return [
        builder.value("rem", [number, extents[0]], _I64),
        builder.value("rem", [rest, extents[1]], _I64),
        builder.value("div", [rest, extents[1]], _I64),
    ]


def _before_programs(body: Block) -> Collection[Operation]:
    """Return the operations, in order, of scalars and descriptors that the launch alone gives."""
    known = set(body.arguments)
    found: dict[Operation, None] = {}
    for operation in body.operations:
        is_known = is_pure(operation) and known.issuperset(operation.operands)
        is_of_programs = operation.name == "program_id"
        has_tiles = any(isinstance(r.type, TileType | SharedType) for r in operation.results)
        if operation.name == "alloc_shared":
            has_tiles = False
        if is_known and not is_of_programs and not has_tiles:
            found[operation] = None
            known.update(operation.results)
    for operation in body.walk():
        if operation.name == "make_descriptor" and operation not in found:
            msg = "a tensor descriptor depends on more than the kernel's arguments and grid"
            raise Unsuited(msg, operation)
    return found
