"""Loads of pointers that products read -> loads through tensor descriptors, where they move blocks.

What is a block, and of which tensor, `analysis.blocks` tells. Descriptors are made first of all, of
the launch's arguments, as `tl.make_tensor_descriptor` would be; a load then says where its block
begins, and a store of what the products give likewise. What was computed for the pointers is dead.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.abi.dtypes import int64
from tilewright_compiler.analysis.alias import WRITING, pointer_roots
from tilewright_compiler.analysis.blocks import BlockAccess, block_accesses, read_by_products
from tilewright_compiler.analysis.polynomials import Polynomial
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import (
    DescriptorType,
    ScalarType,
    TileType,
    element_dtype,
    shape_of,
)
from tilewright_compiler.passes.cse import cse
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.licm import licm

_I64 = ScalarType(int64)
_TURN = (1, 0)


def raise_accesses(module: Module, *, stores: bool) -> Module:
    """Return the module with blocks in place of what it reads for products; calls are inlined.

    With `stores`, what it writes as well. Unchanged if no load is a block, or if one in a loop is
    none: the threads that multiply would wait for it in every iteration, where copies that they
    start themselves run ahead.
    """
    operations = list(module.kernel.body.walk())
    read = read_by_products(operations)
    written = _written_once(module) if stores else set[Operation]()
    wanted = [o for o in operations if o in read or o in written]
    found, _ = block_accesses(module, wanted)
    if not any(o in found for o in read) or any(o not in found for o in read & _in_loops(module)):
        return module
    return dce(licm(cse(_Raising(module, found).module())))


def why_not_raised(module: Module) -> tuple[str, Operation] | None:
    """Return why a load that a product reads is no block, and which; None if there is no such."""
    operations = list(module.kernel.body.walk())
    read = read_by_products(operations)
    _, reasons = block_accesses(module, [o for o in operations if o in read])
    return next(((reason, load) for load, reason in reasons.items()), None)


def _in_loops(module: Module) -> set[Operation]:
    loops = [o for o in module.kernel.body.walk() if o.name in ("for", "while")]
    return {inner for loop in loops for region in loop.regions for inner in region.walk()}


def _written_once(module: Module) -> set[Operation]:
    """Return the stores that a program does once, to what it writes by nothing else.

    Blocks are on their way by themselves: of two for one place either may come last.
    """
    roots, nowhere = pointer_roots(module), frozenset[str]()
    writes = [o for o in module.kernel.body.walk() if o.name in WRITING]
    return {
        store
        for store in module.kernel.body.operations
        if store.name == "store"
        and not any(
            roots.get(store.operands[0], nowhere) & roots.get(other.operands[0], nowhere)
            for other in writes
            if other is not store
        )
    }


class _Raising:
    """One rebuild of a module."""

    def __init__(self, module: Module, accesses: Mapping[Operation, BlockAccess]) -> None:
        self._module = module
        self._accesses = accesses
        self._values: ValueMap = {}
        self._descriptors: dict[Operation, Value] = {}
        arguments = module.kernel.body.arguments
        blocks = [module.kernel.body, *(b for o in module.kernel.body.walk() for b in o.regions)]
        defined = [v for b in blocks for v in b.arguments]
        defined += [r for o in module.kernel.body.walk() for r in o.results]
        # Atoms of a product stand in the order of the program, whatever a set makes of them.
        self._places = {value: place for place, value in enumerate(dict.fromkeys(defined))}
        self._arguments = set(arguments)

    def module(self) -> Module:
        """Return the rebuilt module."""
        kernel = self._module.kernel
        body = Block(tuple(Value(v.type, v.name) for v in kernel.body.arguments))
        self._values.update(zip(kernel.body.arguments, body.arguments, strict=True))
        builder = Builder(body, kernel.location)
        # Sizes and strides may be made of the grid's extents.
        leading = [o for o in kernel.body.operations if o.name == "num_programs"]
        for operation in leading:
            clone_operation(operation, self._values, builder)
        for operation, access in self._accesses.items():
            builder.location = operation.location
            self._descriptors[operation] = self._descriptor(operation, access, builder)
        for operation in kernel.body.operations:
            if operation not in leading:
                clone_operation(operation, self._values, builder, self._rewrite)
        function = Function(kernel.name, body, (), is_kernel=True, location=kernel.location)
        attributes = dict(self._module.attributes)
        return Module({kernel.name: function}, self._module.signature, attributes)

    def _descriptor(self, operation: Operation, access: BlockAccess, builder: Builder) -> Value:
        tile = operation.result if operation.name == "load" else operation.operands[1]
        extents = shape_of(tile.type)
        own = extents[::-1] if access.is_turned else extents
        block = (*(1,) * (len(access.axes) - len(own)), *own)
        base = self._values[access.base]
        sizes = [self._built(axis.size, builder) for axis in access.axes]
        strides = [self._built(axis.stride, builder) for axis in access.axes[:-1]]
        type_ = DescriptorType(element_dtype(tile.type), block)
        return builder.value("make_descriptor", [base, *sizes, *strides], type_)

    def _rewrite(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        access = self._accesses.get(operation)
        if access is None:
            return None
        descriptor = self._descriptors[operation]
        coordinates = [self._built(axis.place, builder) for axis in access.axes]
        if operation.name == "store":
            value = operands[1]
            if access.is_turned:
                value = builder.value("transpose", [value], _turned(value), order=_TURN)
            builder.create("descriptor_store", [descriptor, value, *coordinates])
            return ()
        tile = operation.result
        own = _turned(tile) if access.is_turned else tile.type
        loaded = builder.value("descriptor_load", [descriptor, *coordinates], own)
        loaded.name = tile.name
        if not access.is_turned:
            return (loaded,)
        return (builder.value("transpose", [loaded], tile.type, order=_TURN),)

    def _built(self, value: Polynomial, builder: Builder) -> Value:
        """Build a polynomial, in 64 bits."""
        products = []
        for monomial, coefficient in value.terms.items():
            atoms = sorted(
                ((a, power) for a, power in monomial if isinstance(a, Value)),
                key=lambda factor: self._places[factor[0]],
            )
            products.append(([a for a, power in atoms for _ in range(power)], coefficient))
        products.sort(key=lambda found: [self._places[a] for a in found[0]])
        total: Value | None = None
        for atoms_, coefficient in products:
            term: Value | None = None
            for found in atoms_:
                factor = self._wide(self._values.get(found, found), builder)
                term = factor if term is None else builder.value("mul", [term, factor], _I64)
            if term is None or coefficient != 1:
                count = builder.value("constant", [], _I64, value=coefficient)
                term = count if term is None else builder.value("mul", [term, count], _I64)
            total = term if total is None else builder.value("add", [total, term], _I64)
        return builder.value("constant", [], _I64, value=0) if total is None else total

    def _wide(self, value: Value, builder: Builder) -> Value:
        return value if value.type == _I64 else builder.value("cast", [value], _I64)


def _turned(value: Value) -> TileType:
    type_ = value.type
    assert isinstance(type_, TileType), "accesses move tiles"
    return TileType(type_.shape[::-1], type_.element)
