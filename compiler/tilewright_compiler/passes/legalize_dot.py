"""Dots -> dots with the instruction that executes each, `atom`, and the warps that share it.

The dtype and precision choose the atom. Where the tile is smaller than the atom in some extent,
threads multiply and add by themselves in the accumulator's dtype: the same products, slower (what
is rounded to tf32 is so there too; tf32x3 becomes f32, which loses nothing). 8-bit floats are cast
to f16, which holds them exactly.

Warps cut the result into parts of at least one atom. Near-square parts read the fewest operands;
where dots feed each other, `analysis.dot_families` says along which axis warps go first. Warps that
are left over do the same work as others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.abi.dtypes import DType, float16, float32, float64
from tilewright_compiler.analysis.dot_families import DotFamily, WarpAxis, dot_families
from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, like, shape_of
from tilewright_compiler.layout.atoms import FMA, MMA_8, MMA_16, MMA_F64, MMA_TF32, Atom

Warps = tuple[int, int]


def legalize_dot(module: Module) -> Module:
    """Set `atom` and `warps` on every dot that has none, and cast 8-bit floats; without calls.

    It changes no value but by the order of a sum and, where noted above, by more precision.
    """
    atoms = {
        operation: _atom(operation)
        for operation in module.kernel.body.walk()
        if operation.name == "dot" and "atom" not in operation.attributes
    }
    warps: dict[Operation, Warps] = {}
    for family in dot_families(module):
        warps |= _family_warps(family, atoms, module.signature.num_warps)
    widened: dict[tuple[Block, Value], Value] = {}

    def widen(value: Value, builder: Builder) -> Value:
        """Return an operand that is no 8-bit float; dots of one block share the cast."""
        dtype = element_dtype(value.type)
        if not dtype.is_float or dtype.bits != 8:
            return value
        key = builder.block, value
        if key not in widened:
            type_ = like(value.type, ScalarType(float16))
            widened[key] = builder.value("cast", (value,), type_)
        return widened[key]

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation not in atoms:
            return None
        a, b, acc = operands
        precision = operation.attributes["precision"]
        if atoms[operation] is FMA and precision != "tf32":
            precision = "ieee"
        new = builder.create(
            "dot",
            (widen(a, builder), widen(b, builder), acc),
            (operation.result.type,),
            precision=precision,
            atom=atoms[operation].name,
            warps=warps[operation],
        )
        new.result.name = operation.result.name
        return new.results

    return rewrite_module(module, rewrite)


def _atom(operation: Operation) -> Atom:
    """Return the instruction for the dot's dtypes that fits into its extents."""
    dtype = element_dtype(operation.operands[0].type)
    (m, k), (_, n) = (shape_of(value.type) for value in operation.operands[:2])
    atom = _fastest(dtype, operation.attributes["precision"])
    return atom if m >= atom.m and n >= atom.n and k >= atom.k else FMA


def _fastest(dtype: DType, precision: str) -> Atom:
    if dtype == float64:
        return MMA_F64
    if dtype == float32:
        return FMA if precision == "ieee" else MMA_TF32
    return MMA_16 if dtype.is_float else MMA_8


def _family_warps(
    family: DotFamily, atoms: dict[Operation, Atom], num_warps: int
) -> Iterable[tuple[Operation, Warps]]:
    """Give all dots of a family the same warps."""
    dots = [dot for dot in family.dots if dot in atoms]
    if not dots:
        return []
    m, n = shape_of(dots[0].result.type)
    rows = m // max(atoms[dot].m for dot in dots)
    columns = n // max(atoms[dot].n for dot in dots)
    chosen = _share(m, n, limits=(rows, columns), num_warps=num_warps, axis=family.axis)
    return [(dot, chosen) for dot in dots]


def _share(m: int, n: int, *, limits: Warps, num_warps: int, axis: WarpAxis) -> Warps:
    """Return how many warps go along M and N: as many as have a part, in the shape wished for.

    Of equally square parts the wide ones: whole rows are stored and reduced by fewer warps.
    """

    def rank(warps: Warps) -> tuple[int, ...]:
        wm, wn = warps
        along = {WarpAxis.ROWS: wm, WarpAxis.COLUMNS: wn, WarpAxis.SQUARE: 0}[axis]
        return wm * wn, along, -(m // wm + n // wn), wm

    return max(_splits(limits, num_warps), key=rank)


def _splits(limits: Warps, num_warps: int) -> Iterator[Warps]:
    along_m, along_n = limits
    wm = 1
    while wm <= min(along_m, num_warps):
        yield wm, min(along_n, num_warps // wm)
        wm *= 2
