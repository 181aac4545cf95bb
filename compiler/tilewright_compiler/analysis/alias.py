"""Which arguments pointers and descriptors may derive from, and which a kernel reads and writes.

Facts flow forward from the kernel's arguments through every operation that gives a pointer, into
regions and called functions, until nothing changes. Control flow joins all pointers that it
carries: coarse, but a kernel seldom carries pointers of several arguments through one loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops.atomics import ATOMICS
from tilewright_compiler.ir.types import (
    DescriptorType,
    MbarrierType,
    PointerType,
    TokenType,
    element_type,
)

Roots = frozenset[str]
_NONE: Roots = frozenset()


def pointer_roots(module: Module) -> dict[Value, Roots]:
    """Return the names of the arguments that each pointer of a module may point into."""
    kernel = module.kernel
    roots: dict[Value, Roots] = {}
    for value, (name, _) in zip(kernel.body.arguments, module.signature.runtime, strict=True):
        if _is_pointer(value):
            roots[value] = frozenset({name})
    changed = True
    while changed:
        changed = False
        for function in module.functions.values():
            for operation in function.body.walk():
                changed |= _transfer(operation, module, roots)
    return roots


READING = frozenset({"load", "descriptor_load", "descriptor_rmw", *ATOMICS})
WRITING = frozenset(
    {"store", "descriptor_store", "descriptor_rmw", "tma_store", "atomic_rmw", "atomic_cas"}
)


def arguments_of(
    module: Module, block: Block, names: Collection[str], roots: dict[Value, Roots]
) -> Roots:
    """Return the arguments that operations of these names in a block may access.

    `READING` and `WRITING` are such names. Functions that the block calls are included.
    """
    found = _NONE
    pending, seen = [block], {block}
    while pending:
        for operation in pending.pop().walk():
            if operation.name in names:
                found |= roots.get(operation.operands[0], _NONE)
            elif operation.name == "call":
                body = module.functions[operation.attributes["callee"]].body
                if body not in seen:
                    seen.add(body)
                    pending.append(body)
    return found


def written_arguments(module: Module) -> tuple[str, ...]:
    """Return the arguments that the kernel may write to, in the order of the signature."""
    written = arguments_of(module, module.kernel.body, WRITING, pointer_roots(module))
    return tuple(name for name, _ in module.signature.runtime if name in written)


def _transfer(operation: Operation, module: Module, roots: dict[Value, Roots]) -> bool:
    """Add what one operation implies; return whether something was new."""
    sources = list(operation.operands)
    targets = list(operation.results)
    changed = False
    if operation.name == "call":
        body = module.functions[operation.attributes["callee"]].body
        for argument, operand in zip(body.arguments, operation.operands, strict=True):
            changed |= _add([argument], roots.get(operand, _NONE), roots)
        sources = list(body.terminator.operands)
    for region in operation.regions:
        sources += region.terminator.operands
        targets += region.arguments
    reached = _NONE.union(*(roots.get(value, _NONE) for value in sources))
    return _add(targets, reached, roots) or changed


def _add(values: Iterable[Value], reached: Roots, roots: dict[Value, Roots]) -> bool:
    changed = False
    for value in values:
        known = roots.get(value, _NONE)
        if _is_pointer(value) and not reached <= known:
            roots[value] = known | reached
            changed = True
    return changed


def _is_pointer(value: Value) -> bool:
    if isinstance(value.type, TokenType | MbarrierType):
        return False
    if isinstance(value.type, DescriptorType):
        return True
    return isinstance(element_type(value.type), PointerType)
