"""Tile IR -> tile IR whose descriptor loads are tiles in shared memory, and whose dots are `wgmma`
where their operands lie there.

A load through a descriptor becomes a `tma_tile`: a block that a bulk copy will write, in panels
with the widest swizzle. What a dot reads of it, transposed perhaps, it reads there; anything else
reads it into registers. A dot takes the warpgroup's instruction if it has rows for four warps, B
lies in shared memory as the instruction can read it, and A lies there too or is in registers.

Of 64 columns or fewer the instruction reads no more bytes of B than of A, both together as fast as
shared memory gives them. So an A of such dots that a loop reads all along is held in registers,
where there is room.

Of products of 8-bit floats the hardware keeps fewer bits of a sum than f32 has (some 14). So each
dot adds up its block alone, and the sum is added to the accumulator in f32, unless that is zero:
the error does not grow with the loop.

The warpgroup's instruction takes the upper bits of f32. So a block that only products in tf32 read
is rounded on its way, and no other block of f32 is an operand.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod

from tilewright.abi.dtypes import bfloat16, float16, float32
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.builder import Builder, copy_operation, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import (
    ScalarType,
    SharedType,
    TileType,
    element_bytes,
    element_dtype,
    shape_of,
)
from tilewright_compiler.layout.atoms import wgmma
from tilewright_compiler.layout.linear import NUM_LANES, log2
from tilewright_compiler.layout.panels import panelled
from tilewright_compiler.layout.swizzle import SharedLayout
from tilewright_compiler.layout.wgmma_operand import plan_wgmma_operand
from tilewright_compiler.schedule.mapped_descriptors import MappedDescriptors
from tilewright_compiler.schedule.role_registers import check_accumulators
from tilewright_compiler.schedule.unsuited import Unsuited

GROUP_WARPS = 4
_GROUP_ROWS = 64
_MOST_COLUMNS = 256
_LEAST_COLUMNS = 8
_FEW_COLUMNS = 64
_REGISTER_BYTES = 4
_SWIZZLE_ROWS = 8
_LONGEST_APART = 128
_TF32 = "tf32"


def bulk_loads(module: Module) -> Module:
    """Move descriptor loads to shared memory and give dots that read them there their atoms.

    The module has neither layouts nor calls. Raises Unsuited if no dot can read a descriptor's
    blocks by `wgmma`, or a block cannot be copied in bulk.
    """
    operations = list(module.kernel.body.walk())
    descriptors = MappedDescriptors(module)
    tiles = {
        operation.result: _shared_type(operation)
        for operation in operations
        if operation.name == "descriptor_load"
    }
    for operation in operations:
        if operation.name == "descriptor_load":
            layout = tiles[operation.result].layout
            descriptors.check(operation.operands[0], layout, user=operation)
    sources = dict(tiles)
    rounded = _rounded(tiles, operations)
    for operation in operations:
        if operation.name == "transpose" and operation.operands[0] in sources:
            sources[operation.result] = _transposed(sources[operation.operands[0]], operation)
            if operation.operands[0] in rounded:
                rounded.add(operation.result)
    atoms: dict[Operation, _Atom] = {}
    reason = Unsuited("no product reads blocks of a tensor descriptor")
    for operation in operations:
        if operation.name == "dot" and any(value in sources for value in operation.operands):
            try:
                _check_instruction(operation, sources, rounded)
                atoms[operation] = _atom(operation, sources, module.signature.num_warps)
            except Unsuited as error:
                reason = error
    if not atoms:
        raise reason
    left = check_accumulators(
        module, {dot: 2 if atom.is_apart else 1 for dot, atom in atoms.items()}
    )
    for dot in _held(module, tiles, atoms, left):
        atoms[dot] = replace(atoms[dot], reads_a=False)
    read = _read_by_others(module, atoms)
    rewrite = _Rewrite(tiles, sources, atoms, read, rounded, _zeros(operations))
    return rewrite_module(module, rewrite)


@dataclass(frozen=True, slots=True)
class _Atom:
    """The instruction of a dot, the warps along M and N, whether A is in shared memory, and whether
    blocks are added up apart.
    """

    name: str
    warps: tuple[int, int]
    reads_a: bool
    is_apart: bool


def _shared_type(load: Operation) -> SharedType:
    """Return the tile that a bulk copy of a block writes: contiguous along the last axis."""
    type_ = load.result.type
    assert isinstance(type_, TileType), "the verifier checks types"
    dtype, axis = element_dtype(type_), len(type_.shape) - 1
    if prod(type_.shape[:-1]) < _SWIZZLE_ROWS:  # panels would begin where no swizzle does
        units = tuple(1 << bit for bit in range(log2(prod(type_.shape))))
        return SharedType(type_.shape, dtype, SharedLayout(type_.shape, units))
    layout = panelled(type_.shape, axis, size_bytes=dtype.size_bytes)
    if layout is None:
        msg = f"a row of a block {type_} has less than 32 bytes"
        raise Unsuited(msg, load)
    return SharedType(type_.shape, dtype, layout)


def _transposed(source: SharedType, transpose: Operation) -> SharedType:
    layout = source.layout.transpose(transpose.attributes["order"])
    return SharedType(layout.shape, source.dtype, layout)


def _atom(dot: Operation, sources: Mapping[Value, SharedType], num_warps: int) -> _Atom:
    """Return how a dot is executed by warpgroups; raises Unsuited."""
    a, b, _ = dot.operands
    dtype = element_dtype(a.type)
    if b not in sources:
        msg = "the second operand of a product is no block of a tensor descriptor"
        raise Unsuited(msg, dot)
    size_bytes = dtype.size_bytes
    for value, k_axis in ((a, 1), (b, 0)):
        if value not in sources:
            continue
        layout = sources[value].layout
        if plan_wgmma_operand(layout, k_axis=k_axis, size_bytes=size_bytes) is None:
            msg = f"wgmma cannot read {value.type}, contiguous along the axis that is not reduced"
            raise Unsuited(msg, dot)
    (m, k), (_, n) = shape_of(a.type), shape_of(b.type)
    groups = num_warps // GROUP_WARPS
    along_m = min(groups, m // _GROUP_ROWS)
    if num_warps % GROUP_WARPS or not along_m:
        msg = f"{num_warps} warps do not share {m} rows by four with 64 rows each"
        raise Unsuited(msg, dot)
    along_n = groups // along_m
    columns = min(n // along_n, _MOST_COLUMNS)
    atom = wgmma(max(columns, _LEAST_COLUMNS), operand_bits=dtype.bits)
    if columns < _LEAST_COLUMNS or k < atom.k:
        msg = f"a product of {m} x {k} by {k} x {n} is too small for {groups} warpgroups"
        raise Unsuited(msg, dot)
    is_apart = dtype.is_float and dtype.bits == 8
    if is_apart and k > _LONGEST_APART:
        msg = f"of 8-bit floats no more than {_LONGEST_APART} products are added up apart, not {k}"
        raise Unsuited(msg, dot)
    return _Atom(atom.name, (along_m * GROUP_WARPS, along_n), a in sources, is_apart)


def _held(
    module: Module, tiles: Container[Value], atoms: Mapping[Operation, _Atom], left: int
) -> Iterator[Operation]:
    """Yield the dots whose A is held in registers, of which so many are left."""
    blocks = {o: block for block in _blocks(module.kernel.body) for o in block.operations}
    defined = {result: block for o, block in blocks.items() for result in o.results}
    dots: dict[Value, list[Operation]] = {}
    for dot in atoms:
        a = dot.operands[0]
        if a in tiles and defined[a] is not blocks[dot]:
            dots.setdefault(a, []).append(dot)
    for a, readers in dots.items():
        along_m = {atoms[dot].warps[0] for dot in readers}
        columns = {shape_of(dot.result.type)[1] // atoms[dot].warps[1] for dot in readers}
        m, k = shape_of(a.type)
        size = m * k * element_bytes(a.type) // (_REGISTER_BYTES * NUM_LANES * min(along_m))
        if max(columns) <= _FEW_COLUMNS and len(along_m) == 1 and size <= left:
            left -= size
            yield from readers


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for operation in block.operations:
        for region in operation.regions:
            yield from _blocks(region)


def _check_instruction(
    dot: Operation, sources: Mapping[Value, SharedType], rounded: Set[Value]
) -> None:
    """Demand that `wgmma` computes what the dot says, and no less. Raises Unsuited."""
    a, b = (element_dtype(value.type) for value in dot.operands[:2])
    if a.bits == 8:
        is_known = b.bits == 8 and a.is_float == b.is_float
    elif a == float32:
        is_known = b == float32 and dot.attributes["precision"] == _TF32
        if is_known and not rounded >= sources.keys() & dot.operands[:2]:
            msg = f"a block of {a} is read as it is, too, not only rounded to tf32"
            raise Unsuited(msg, dot)
    else:
        is_known = a == b and a in (float16, bfloat16)
    if not is_known:
        msg = f"wgmma does not multiply {a} by {b} as this product asks"
        raise Unsuited(msg, dot)


def _rounded(tiles: Iterable[Value], operations: Sequence[Operation]) -> set[Value]:
    """Return the blocks of f32 that only products in tf32 read, transposed perhaps."""
    users: dict[Value, list[Operation]] = {}
    for operation in operations:
        for operand in operation.operands:
            users.setdefault(operand, []).append(operation)

    def is_rounded(value: Value) -> bool:
        def rounds(user: Operation) -> bool:
            if user.name == "transpose":
                return is_rounded(user.result)
            return user.name == "dot" and user.attributes["precision"] == _TF32

        return all(map(rounds, users.get(value, ())))

    return {tile for tile in tiles if element_dtype(tile.type) == float32 and is_rounded(tile)}


def _zeros(operations: Iterable[Operation]) -> frozenset[Value]:
    """Return the constants 0 and the tiles of them, which stand behind them."""
    zeros: set[Value] = set()
    for operation in operations:
        is_zero = operation.name == "constant" and operation.attributes["value"] == 0
        if is_zero or (operation.name == "splat" and operation.operands[0] in zeros):
            zeros.add(operation.result)
    return frozenset(zeros)


def _read_by_others(module: Module, atoms: Mapping[Operation, _Atom]) -> frozenset[Value]:
    """Return the values that something but a transpose, or a dot that reads memory, uses."""

    def read(operation: Operation) -> Iterator[Value]:
        if operation in atoms:
            yield from operation.operands[2:]
            if not atoms[operation].reads_a:
                yield operation.operands[0]
        elif operation.name != "transpose":
            yield from operation.operands

    return frozenset(value for o in module.kernel.body.walk() for value in read(o))


class _Rewrite:
    """Rewrites one module; `_shared` holds the shared tile of each value that lies there."""

    def __init__(
        self,
        tiles: Mapping[Value, SharedType],
        sources: Mapping[Value, SharedType],
        atoms: Mapping[Operation, _Atom],
        read: frozenset[Value],
        rounded: Set[Value],
        zeros: Set[Value],
    ) -> None:
        self._tiles = tiles
        self._sources = sources
        self._atoms = atoms
        self._read = read
        self._rounded = rounded
        self._zeros = zeros
        self._shared: dict[Value, Value] = {}

    def __call__(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation.name == "descriptor_load":
            rounding = {"rounding": _TF32} if operation.result in self._rounded else {}
            type_ = self._tiles[operation.result]
            tile = builder.value("tma_tile", operands, type_, **rounding)
            return self._place(operation, tile, builder)
        if operation.name == "transpose" and operation.result in self._sources:
            source = self._shared[operation.operands[0]]
            order: tuple[int, ...] = operation.attributes["order"]
            view = builder.value(
                "shared_transpose", [source], self._sources[operation.result], order=order
            )
            return self._place(operation, view, builder)
        if operation in self._atoms:
            return self._dot(operation, operands, builder)
        return None

    def _place(self, operation: Operation, shared: Value, builder: Builder) -> tuple[Value]:
        """Remember where a value lies; give it in registers if anything reads it there."""
        shared.name = operation.result.name
        self._shared[operation.result] = shared
        if operation.result not in self._read:
            return (shared,)
        loaded = builder.value("shared_load", [shared], operation.result.type)
        loaded.name = operation.result.name
        return (loaded,)

    def _dot(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        atom = self._atoms[operation]
        a, b, _ = operation.operands
        places = (self._shared[a] if atom.reads_a else operands[0], self._shared[b], operands[2])
        acc, type_ = operands[2], operation.result.type
        if atom.is_apart:
            zero = builder.value("constant", [], ScalarType(float32), value=0.0)
            places = (*places[:2], builder.value("splat", [zero], type_))
        values = dict(zip(operation.operands, places, strict=True))
        copy = copy_operation(operation, values, builder)
        copy.attributes.update(atom=atom.name, warps=atom.warps)
        if not atom.is_apart or operation.operands[2] in self._zeros:
            return copy.results
        total = builder.value("add", [acc, copy.result], type_)
        total.name = operation.result.name
        return (total,)
