"""Scans: running sums, products, and by any function."""

from __future__ import annotations

import tilewright.language as tl
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.reduce import accumulated, numbers
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.combine import combine_region, operand_tiles
from tilewright_compiler.frontend.operands import NONE, Operand, TupleOperand
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Block, Value
from tilewright_compiler.ir.types import element_type, shape_of


@implements(tl.cumsum)
def cumsum(scope: Scope, x: Operand, axis: Operand, reverse: Operand, dtype: Operand) -> Operand:
    """Build running sums; dtypes as those of sums."""
    return _accumulation(scope, "add", x, axis, reverse, dtype, "tl.cumsum")


@implements(tl.cumprod)
def cumprod(scope: Scope, x: Operand, axis: Operand, reverse: Operand) -> Operand:
    """Build running products; dtypes as those of sums."""
    return _accumulation(scope, "mul", x, axis, reverse, NONE, "tl.cumprod")


@implements(tl.associative_scan)
def associative_scan(
    scope: Scope, x: Operand, axis: Operand, combine_fn: Operand, reverse: Operand
) -> Operand:
    """Build a scan by a function, of one tile or of several at once."""
    tiles = operand_tiles(x, "`x` of tl.associative_scan")
    elements = [element_type(tile.type) for tile in tiles]
    region = combine_region(scope, combine_fn, elements, "tl.associative_scan")
    results = _scan(scope, tiles, region, axis, reverse, "tl.associative_scan")
    return TupleOperand(results) if isinstance(x, TupleOperand) else results[0]


def _accumulation(
    scope: Scope,
    name: str,
    x: Operand,
    axis: Operand,
    reverse: Operand,
    dtype: Operand,
    what: str,
) -> Value:
    value, result = accumulated(scope, numbers(x, what), dtype, what)
    scalar = element_type(value.type)
    arguments_ = (Value(scalar), Value(scalar))
    region = Block(arguments_)
    with scope.filling(region):
        total = scope.builder.value(name, arguments_, scalar)
        scope.builder.create("yield", (total,))
    (scanned,) = _scan(scope, (value,), region, axis, reverse, what)
    return convert.cast(scope, scanned, result)


def _scan(
    scope: Scope,
    tiles: tuple[Value, ...],
    region: Block,
    axis: Operand,
    reverse: Operand,
    what: str,
) -> tuple[Value, ...]:
    number = arguments.axis(axis, len(shape_of(tiles[0].type)), f"`axis` of {what}")
    is_reversed = arguments.flag(reverse, f"`reverse` of {what}")
    types = [tile.type for tile in tiles]
    operation = scope.builder.create(
        "scan", tiles, types, [region], axis=number, reverse=is_reversed
    )
    return operation.results
