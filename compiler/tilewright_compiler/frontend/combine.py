"""The function of a reduction or scan -> the region of the operation.

The function is called once, on scalars of the tiles' elements: the first half of its arguments are
what earlier elements gave. What it may do is checked here, in the user's words: it computes, and
touches no memory and no tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments, registry
from tilewright_compiler.frontend.infer_types import dtype_name
from tilewright_compiler.frontend.kernel_calls import call_kernel
from tilewright_compiler.frontend.operands import (
    FunctionReference,
    KernelReference,
    Operand,
    TupleOperand,
    describe,
    is_number,
)
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.ops import SPECS, Effect
from tilewright_compiler.ir.types import ElementType, ScalarType, TileType, shape_of


def operand_tiles(operand: Operand, what: str) -> tuple[Value, ...]:
    """Return the tiles that are combined: one, or those of a tuple, of one shape."""
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    tiles = tuple(arguments.tile(item, what) for item in items)
    if not tiles:
        msg = f"{what} is a tile or a tuple of tiles, got an empty tuple"
        raise KernelTypeError(msg)
    for tile in tiles:
        if is_pointer(tile):
            msg = f"{what} are tiles of numbers, got {describe(tile)}"
            raise KernelTypeError(msg)
        if shape_of(tile.type) != shape_of(tiles[0].type):
            msg = (
                f"{what} are tiles of one shape, got {describe(tiles[0])} and {describe(tile)}; "
                "use tl.broadcast_to"
            )
            raise KernelTypeError(msg)
    return tiles


def combine_region(
    scope: Scope, function: Operand, elements: Sequence[ElementType], what: str
) -> Block:
    """Build the region that applies a function to two lists of scalars of these types."""
    values = tuple(Value(element) for element in (*elements, *elements))
    with scope.nested(what, values, is_loop=False) as branch:
        name, result = _call(scope, function, values, what)
        items = result.items if isinstance(result, TupleOperand) else (result,)
        if len(items) != len(elements):
            msg = (
                f"{name} combines {len(elements)} tiles in {what} and returns as many values, got "
                f"{describe(result)}"
            )
            raise KernelTypeError(msg)
        pairs = zip(items, elements, strict=True)
        scope.builder.create(
            "yield", [_returned(scope, item, element, name, what) for item, element in pairs]
        )
    _check(scope, branch.block, name, what)
    return branch.block


def _call(
    scope: Scope, function: Operand, values: tuple[Value, ...], what: str
) -> tuple[str, Operand]:
    match function:
        case KernelReference(kernel=kernel):
            return f"`{kernel.name}`", call_kernel(scope, kernel, values, {})
        case FunctionReference(function=stub, name=name) if registry.is_implemented(stub):
            return f"`{name}`", registry.call(scope, stub, name, values, {})
    msg = (
        f"`combine_fn` of {what} is a function decorated with @tl.kernel, or one of the language "
        f"such as tl.maximum, got {describe(function)}"
    )
    raise KernelTypeError(msg)


def _returned(scope: Scope, item: Operand, element: ElementType, name: str, what: str) -> Value:
    assert isinstance(element, ScalarType), "pointers are not combined"
    if is_number(item):
        return convert.as_number(scope, item, element.dtype, name)
    if isinstance(item, Value) and item.type == element:
        return item
    msg = (
        f"{name} returns {describe(item)} in {what} of a tile of {element.dtype}; what is combined "
        f"keeps its type, return a {dtype_name(element.dtype)} scalar"
    )
    raise KernelTypeError(msg)


def _check(scope: Scope, block: Block, name: str, what: str) -> None:
    """Refuse memory and tiles in a region or in the functions that it calls."""
    for operation in _operations(scope, block):
        values = (*operation.operands, *operation.results)
        has_tiles = any(isinstance(value.type, TileType) for value in values)
        if has_tiles or SPECS[operation.name].effect in (Effect.READ, Effect.WRITE):
            does = "has a tile" if has_tiles else "uses memory"
            where = () if operation.location is None else (operation.location,)
            msg = f"{name} {does}, but the function of {what} only computes with scalars"
            raise KernelTypeError(msg, where)


def _operations(scope: Scope, block: Block) -> Iterator[Operation]:
    for operation in block.walk():
        if operation.name == "call":
            callee: str = operation.attributes["callee"]
            yield from _operations(scope, scope.program.functions[callee].body)
        else:
            yield operation
