"""Changes of shape that move nothing: what layout one gives for that of its operand, and back.

They rename registers, so a chain of them costs nothing if both of its ends have matching layouts.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import TileType
from tilewright_compiler.layout.linear import LinearLayout

MOVES = ("expand_dims", "broadcast", "reshape", "transpose")


def operand_layout(operation: Operation, layout: LinearLayout) -> LinearLayout:
    """Return the layout that an operation wants of its operands to give `layout`."""
    if operation.name not in MOVES:
        return layout
    source = operation.operands[0].type
    assert isinstance(source, TileType)
    if operation.name == "broadcast":
        return layout.project(source.shape)
    if operation.name == "transpose":
        order = operation.attributes["order"]
        return layout.transpose([order.index(axis) for axis in range(len(order))])
    return layout.reshape(source.shape)


def result_layout(operation: Operation, layout: LinearLayout) -> LinearLayout:
    """Return a layout that a move gives for free if its operand has `layout`."""
    target = operation.result.type
    assert isinstance(target, TileType)
    if operation.name == "broadcast":
        return layout.broadcast(target.shape)
    if operation.name == "transpose":
        return layout.transpose(operation.attributes["order"])
    return layout.reshape(target.shape)


def backward(chain: Iterable[Operation], layout: LinearLayout) -> LinearLayout:
    """Return the layout wanted at the start of a chain of moves for `layout` at its end."""
    for operation in reversed(tuple(chain)):
        layout = operand_layout(operation, layout)
    return layout


def forward(chain: Iterable[Operation], layout: LinearLayout) -> LinearLayout:
    """Return a layout that comes for free at the end of a chain of moves."""
    for operation in chain:
        layout = result_layout(operation, layout)
    return layout
