"""Tile IR without layouts -> the same IR with a layout on every tile and `convert_layout` where
they meet.

Which layouts is decided by `analysis.layout_choice`. This pass writes the decision down in two
walks: the first collects in which layouts each value is wanted, the second rebuilds. A cheap or
moved value is computed once for each layout that is wanted of it, where it stood; an anchored value
is computed once and converted right behind its definition, so that a conversion never moves into a
loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.errors import InternalCompilerError, KernelValueError
from tilewright_compiler.analysis.axis_info import analyze
from tilewright_compiler.analysis.layout_choice import LayoutChoice, choose_layouts
from tilewright_compiler.analysis.moves import operand_layout
from tilewright_compiler.ir.builder import Builder, clone_block
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.ops import combine
from tilewright_compiler.ir.types import TileType, Type
from tilewright_compiler.layout.linear import LinearLayout

Layouts = Sequence[LinearLayout | None]

MAX_ELEMENTS = 1024
"""Elements of a tile that a thread may hold."""


def assign_layouts(module: Module) -> Module:
    """Give every tile of the kernel a layout. The module has no calls left and no layouts yet."""
    kernel = module.kernel
    if len(module.functions) > 1:
        msg = f"assign_layouts needs an inlined kernel, found {', '.join(module.functions)}"
        raise InternalCompilerError(msg)
    choice = choose_layouts(module, analyze(module))
    _require_room(choice, module.signature.num_warps)
    rebuild = _Rebuild(choice)
    rebuild.collect(kernel.body)
    body = rebuild.block(kernel.body, ())
    function = Function(kernel.name, body, kernel.result_types, kernel.is_kernel, kernel.location)
    return Module({kernel.name: function}, module.signature, dict(module.attributes))


def _require_room(choice: LayoutChoice, num_warps: int) -> None:
    """Raise KernelValueError where a thread would hold more of a tile than can be compiled.

    A thread has 255 registers: what is more goes through memory, and takes ptxas minutes.
    """
    for operation, layout in choice.operations.items():
        if layout.num_registers > MAX_ELEMENTS:
            msg = (
                f"a tile {list(layout.shape)} gives each thread {layout.num_registers} elements "
                f"here, more than {MAX_ELEMENTS}: make it smaller, loop over its parts, or launch "
                f"with more warps than {num_warps}"
            )
            raise KernelValueError(msg, () if operation.location is None else (operation.location,))


class _Rebuild:
    """Both walks. `_wanted` maps a value to its layouts, in order of first wish."""

    def __init__(self, choice: LayoutChoice) -> None:
        self._choice = choice
        self._groups = choice.groups
        self._wanted: dict[Value, dict[LinearLayout, None]] = {}
        self._tiles: dict[tuple[Value, LinearLayout], Value] = {}
        self._scalars: dict[Value, Value] = {}

    # First walk: which layouts are wanted

    def collect(self, block: Block) -> None:
        """Collect what the operations of a block want, regions included."""
        for operation in block.operations:
            for region in operation.regions:
                self.collect(region)
            self._collect_operation(operation)

    def _collect_operation(self, operation: Operation) -> None:
        match operation.name:
            case "for":
                self._want(operation.operands[3:], self._homes(operation.results))
                self._want(operation.regions[0].terminator.operands, self._homes(operation.results))
            case "while":
                before, after = operation.regions
                carried = self._homes(before.arguments)
                self._want(operation.operands, carried)
                self._want(after.terminator.operands, carried)
                self._want(before.terminator.operands[1:], self._homes(operation.results))
            case "if":
                for region in operation.regions:
                    self._want(region.terminator.operands, self._homes(operation.results))
            case _ if self._is_anchored_or_effect(operation):
                self._want(operation.operands, self._working_layouts(operation)[0])

    def _is_anchored_or_effect(self, operation: Operation) -> bool:
        """Whether the operation has one layout of its own, as opposed to those wanted of it."""
        if operation in self._choice.operations:
            return True
        return any(result in self._choice.homes for result in operation.results)

    def _want(self, values: Iterable[Value], layouts: Layouts) -> None:
        pending = list(zip(values, layouts, strict=True))
        while pending:
            value, layout = pending.pop()
            if not isinstance(value.type, TileType) or layout is None:
                continue
            wanted = self._wanted.setdefault(value, {})
            if layout in wanted:
                continue
            wanted[layout] = None
            if value not in self._choice.homes:
                operation = self._groups.definitions[value]
                inner = operand_layout(operation, layout)
                pending += [(operand, inner) for operand in operation.operands]

    # Second walk: rebuild

    def block(self, block: Block, layouts: Layouts) -> Block:
        """Rebuild a block whose terminator's operands are wanted in `layouts`."""
        arguments = tuple(
            Value(_typed(argument.type, self._choice.homes.get(argument)), argument.name)
            for argument in block.arguments
        )
        copy = Block(arguments)
        builder = Builder(copy)
        for argument, new in zip(block.arguments, arguments, strict=True):
            self._define(argument, new, builder)
        for operation in block.operations[:-1]:
            builder.location = operation.location
            self._operation(operation, builder)
        end = block.terminator
        skipped = len(end.operands) - len(layouts)
        builder.location = end.location
        builder.create(
            end.name,
            self._values(end.operands, [*[None] * skipped, *layouts]),
            **end.attributes,
        )
        return copy

    def _operation(self, operation: Operation, builder: Builder) -> None:
        if operation.regions and operation.name not in combine.NAMES:
            self._control(operation, builder)
            return
        tile_results = [r for r in operation.results if isinstance(r.type, TileType)]
        if not tile_results or self._is_anchored_or_effect(operation):
            self._emit(operation, builder)
            return
        for layout in self._wanted.get(operation.result, ()):
            inner = operand_layout(operation, layout)
            operands = self._values(operation.operands, [inner] * len(operation.operands))
            new = builder.create(
                operation.name,
                operands,
                (_typed(operation.result.type, layout),),
                **operation.attributes,
            )
            new.result.name = operation.result.name
            self._tiles[operation.result, layout] = new.result

    def _emit(self, operation: Operation, builder: Builder) -> None:
        """Rebuild an operation with layouts of its own, and convert its results as wanted."""
        layouts, given = self._working_layouts(operation)
        new = builder.create(
            operation.name,
            self._values(operation.operands, layouts),
            [_typed(result.type, given) for result in operation.results],
            [clone_block(region, dict(self._scalars)) for region in operation.regions],
            **operation.attributes,
        )
        for result, new_result in zip(operation.results, new.results, strict=True):
            new_result.name = result.name
            self._define(result, new_result, builder)

    def _control(self, operation: Operation, builder: Builder) -> None:
        results = self._homes(operation.results)
        match operation.name:
            case "for":
                operand_layouts = [None, None, None, *results]
                region_layouts = [results]
            case "while":
                operand_layouts = self._homes(operation.regions[0].arguments)
                region_layouts = [results, operand_layouts]
            case _:
                operand_layouts = [None]
                region_layouts = [results, results]
        regions = [
            self.block(region, layouts)
            for region, layouts in zip(operation.regions, region_layouts, strict=True)
        ]
        builder.location = operation.location
        new = builder.create(
            operation.name,
            self._values(operation.operands, operand_layouts),
            [_typed(r.type, layout) for r, layout in zip(operation.results, results, strict=True)],
            regions,
            **operation.attributes,
        )
        for result, new_result in zip(operation.results, new.results, strict=True):
            new_result.name = result.name
            self._define(result, new_result, builder)

    def _define(self, value: Value, new: Value, builder: Builder) -> None:
        """Record the new value, and convert it to every other layout wanted of it."""
        if not isinstance(new.type, TileType):
            self._scalars[value] = new
            return
        assert new.type.layout is not None
        self._tiles[value, new.type.layout] = new
        for layout in self._wanted.get(value, ()):
            if layout != new.type.layout:
                self._tiles[value, layout] = builder.value(
                    "convert_layout", (new,), new.type.with_layout(layout)
                )

    def _values(self, values: Sequence[Value], layouts: Layouts) -> list[Value]:
        return [
            self._tiles[value, layout]
            if isinstance(value.type, TileType) and layout is not None
            else self._scalars[value]
            for value, layout in zip(values, layouts, strict=True)
        ]

    def _homes(self, values: Iterable[Value]) -> list[LinearLayout | None]:
        return [self._choice.homes.get(value) for value in values]

    def _working_layouts(self, operation: Operation) -> tuple[Layouts, LinearLayout | None]:
        """Return the layouts of an operation's operands, and of its results."""
        if operation in self._groups.dots:
            dot = self._groups.dots[operation]
            return (dot.a, dot.b, dot.acc), dot.acc
        layout = self._choice.operations.get(operation)
        if layout is None and operation.results:
            layout = self._choice.homes.get(operation.results[0])
        given = layout
        if operation.name in ("reduce", "reduce_with") and layout is not None:
            given = layout.slice(operation.attributes["axis"])
        if operation.name == "gather":
            given = self._choice.homes[operation.result]
            return (layout, given), given
        if operation.name == "histogram":
            given = self._choice.homes[operation.result]
        return [layout] * len(operation.operands), given


def _typed(type_: Type, layout: LinearLayout | None) -> Type:
    return type_.with_layout(layout) if isinstance(type_, TileType) else type_
