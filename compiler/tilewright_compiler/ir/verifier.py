"""Tile IR -> nothing, or an InternalCompilerError with the printed IR and the guilty operation.

Only passes and the frontend make IR, so whatever fails here is our fault, never the user's. The
first violation is reported: what follows it in broken IR is mostly its echo.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.abi.dtypes import DType
from tilewright.abi.signature import Pointer
from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.ops import SPECS, combine
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType, Type
from tilewright_compiler.layout.linear import LinearLayout

# How each region of an operation ends; a function's body ends in `return`.
_REGION_ENDS = {
    "for": ("yield",),
    "while": ("condition", "yield"),
    "if": ("yield", "yield"),
    "roles": ("yield", "yield"),
    **dict.fromkeys(combine.NAMES, ("yield",)),
}


def verify(module: Module) -> None:
    """Check the whole module; raises InternalCompilerError at the first violation.

    Checked are counts, attributes, types by each operation's rule, dominance, terminators, regions,
    calls, the kernel's arguments against the signature, and that extents are powers of two.
    """
    for complaint in _complaints(module):
        where = ""
        notes: dict[Operation, str] = {}
        if complaint.operation is not None:
            where = f"{complaint.operation.name}: "
            notes = {complaint.operation: complaint.message}
            if complaint.operation.location is not None:
                where += f"at {complaint.operation.location.render()}: "
        msg = f"invalid tile IR in {complaint.place}: {where}{complaint.message}"
        error = InternalCompilerError(msg)
        error.add_note(print_module(module, notes=notes))
        raise error


@dataclass(frozen=True, slots=True)
class _Complaint:
    place: str
    message: str
    operation: Operation | None = None


def _complaints(module: Module) -> Iterator[_Complaint]:
    kernels = [function for function in module.functions.values() if function.is_kernel]
    if len(kernels) != 1:
        yield _Complaint("the module", f"there is exactly one kernel, found {len(kernels)}")
        return
    yield from _kernel_complaints(kernels[0], module)
    for name, function in module.functions.items():
        if name != function.name:
            yield _Complaint(f"@{name}", f"the function calls itself @{function.name}")
        yield from _FunctionCheck(function, module).complaints()
    yield from _recursion_complaints(module)


def _kernel_complaints(kernel: Function, module: Module) -> Iterator[_Complaint]:
    place = f"@{kernel.name}"
    expected: list[Type] = [
        PointerType(p.dtype) if isinstance(p, Pointer) else ScalarType(p.dtype)
        for _, p in module.signature.runtime
    ]
    found = [argument.type for argument in kernel.body.arguments]
    if found != expected:
        yield _Complaint(
            place, f"arguments {_list(found)} are not the signature's {_list(expected)}"
        )
    if kernel.result_types:
        yield _Complaint(place, "a kernel returns nothing")


def _recursion_complaints(module: Module) -> Iterator[_Complaint]:
    finished: set[str] = set()

    def visit(name: str, chain: tuple[str, ...]) -> Iterator[_Complaint]:
        if name in chain:
            yield _Complaint(f"@{name}", f"calls are recursive: {' -> '.join((*chain, name))}")
            return
        if name in finished:
            return
        for operation in module.functions[name].body.walk():
            if operation.name == "call":
                yield from visit(operation.attributes["callee"], (*chain, name))
        finished.add(name)

    for name in module.functions:
        yield from visit(name, ())


class _FunctionCheck:
    """Checks one function, tracking which values are visible."""

    def __init__(self, function: Function, module: Module) -> None:
        self._function = function
        self._module = module
        self._place = f"@{function.name}"
        self._visible: set[Value] = set()
        self._defined: set[Value] = set()
        self._seen: set[Operation] = set()

    def complaints(self) -> Iterator[_Complaint]:
        yield from self._block(self._function.body, "return", None)

    def _block(self, block: Block, end: str, owner: Operation | None) -> Iterator[_Complaint]:
        outer = set(self._visible)
        for argument in block.arguments:
            yield from self._define(argument, owner)
        if not block.operations:
            yield _Complaint(self._place, f"a block is empty, it ends in {end}", owner)
            return
        for operation in block.operations:
            is_last = operation is block.operations[-1]
            yield from self._operation(operation)
            if SPECS[operation.name].terminator != is_last:
                message = (
                    f"a block ends in {end}" if is_last else "only the last operation ends a block"
                )
                yield _Complaint(self._place, message, operation)
            elif is_last and operation.name != end:
                yield _Complaint(self._place, f"this block ends in {end}", operation)
        self._visible = outer

    def _operation(self, operation: Operation) -> Iterator[_Complaint]:
        message = self._shape_message(operation)
        if message is not None:
            yield _Complaint(self._place, message, operation)
        for index, operand in enumerate(operation.operands):
            if operand not in self._visible:
                yield _Complaint(self._place, f"operand {index} is not visible here", operation)
        for region, end in zip(
            operation.regions, _REGION_ENDS.get(operation.name, ()), strict=True
        ):
            yield from self._block(region, end, operation)
        for result in operation.results:
            yield from self._define(result, operation)
        message = SPECS[operation.name].verify(operation) or self._context_message(operation)
        if message is not None:
            yield _Complaint(self._place, message, operation)

    def _shape_message(self, operation: Operation) -> str | None:
        """Complain about counts and attributes: what must hold before a type rule may look."""
        if operation in self._seen:
            return "the operation stands in the module twice"
        self._seen.add(operation)
        spec = SPECS.get(operation.name)
        if spec is None:
            return "no operation has this name"
        lowest, highest = spec.operands
        if not lowest <= len(operation.operands) <= highest:
            return f"takes {lowest} to {highest} operands, got {len(operation.operands)}"
        if spec.results is not None and len(operation.results) != spec.results:
            return f"has {spec.results} results, got {len(operation.results)}"
        if len(operation.regions) != spec.regions:
            return f"has {spec.regions} regions, got {len(operation.regions)}"
        missing = [name for name in spec.attributes if name not in operation.attributes]
        if missing:
            return f"lacks the attribute {', '.join(missing)}"
        for name, value in operation.attributes.items():
            if name not in spec.attributes and name not in spec.optional_attributes:
                return f"has no attribute {name}"
            if not _is_plain(value):
                return f"attribute {name} is a {type(value).__name__}, which has no text form"
        return None

    def _context_message(self, operation: Operation) -> str | None:
        """Complain about what an operation's own rule cannot see: the function and the callee."""
        types = [value.type for value in operation.operands]
        if operation.name == "return" and types != list(self._function.result_types):
            return f"returns {_list(types)}, the function {_list(self._function.result_types)}"
        if operation.name != "call":
            return None
        callee = self._module.functions.get(operation.attributes["callee"])
        if callee is None or callee.is_kernel:
            return f"no function @{operation.attributes['callee']} to call"
        expected = [argument.type for argument in callee.body.arguments]
        if types != expected:
            return f"passes {_list(types)} to @{callee.name}, which takes {_list(expected)}"
        results = [value.type for value in operation.results]
        if results != list(callee.result_types):
            returned = _list(callee.result_types)
            return f"expects {_list(results)} of @{callee.name}, which returns {returned}"
        return None

    def _define(self, value: Value, operation: Operation | None) -> Iterator[_Complaint]:
        if value in self._defined:
            yield _Complaint(
                self._place, f"value {value.name or value.type} is defined twice", operation
            )
        self._defined.add(value)
        self._visible.add(value)
        message = _type_message(value.type)
        if message is not None:
            yield _Complaint(self._place, message, operation)


def _type_message(type_: Type) -> str | None:
    if not isinstance(type_, TileType):
        return None
    if any(extent < 1 or extent & (extent - 1) for extent in type_.shape):
        return f"extents are powers of two, got {type_}"
    if not type_.shape:
        return "a tile has at least one axis"
    if type_.layout is not None and type_.layout.shape != type_.shape:
        return f"the layout is of shape {type_.layout.shape}, the tile of {type_.shape}"
    return None


def _is_plain(value: Any) -> bool:
    """Whether printer and parser keep this attribute value exactly; a subclass would be lost."""
    if type(value) is tuple:
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str, DType, LinearLayout)


def _list(types: list[Type] | tuple[Type, ...]) -> str:
    return "(" + ", ".join(str(type_) for type_ in types) + ")"
