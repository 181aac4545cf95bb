"""The launches of a matrix product: how operands are walked, which kernel and tile serve them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from tilewright.abi.dtypes import DType, float64, int8, uint8
from tilewright.abi.signature import DIVISOR
from tilewright.abi.tuned import Choice
from tilewright.kernels import matmul as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import fits_fast
from tilewright.tensor.block_launches import (
    PlannedStep,
    block_steps,
    is_even,
    layout_of,
    tuned_block_steps,
    why_not_by_blocks,
)
from tilewright.tensor.configurations import (
    MATMUL_FAST,
    DotConfiguration,
    matmul_configuration,
)
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.launches import Piece, PlannedLaunch, Pointer, batch_pieces
from tilewright.tensor.products import copies_blocks, count_tiles, launch_options
from tilewright.tensor.strides import IndexSpace, Shape, Strides
from tilewright.tensor.tuned import tuned_choice, why_no_binary
from tilewright.tensor.workspaces import Workspace

FAMILY = "matmul"
PLAIN = (float64, int8, uint8)  # summed in their own way, without an epilogue

# The operands by number, as the kernels take them.
A, B, C, BIAS, GATE, RESIDUAL, WORKSPACES = range(7)

_STRIDES = 4  # of an operand: two along the batch, two of the matrix

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Matrices:
    """The operand of that number, an array of `array`, over the batch, rows and columns."""

    operand: int
    array: Geometry
    strides: Strides

    def transposed(self) -> Matrices:
        """Return the same with rows and columns exchanged."""
        *batch, row, column = self.strides
        return Matrices(self.operand, self.array, (*batch, column, row))


@dataclass(frozen=True, slots=True)
class Product:
    """One product `[m, k] @ [k, n]`; `bias` is `[n]`, what the epilogue does not take is None.

    `is_active` says that it takes an activation.
    """

    sizes: tuple[int, int, int]
    a: Matrices
    b: Matrices
    c: Matrices
    bias: Geometry | None
    gate: Matrices | None
    residual: Matrices | None
    precision: str
    is_active: bool

    def transposed(self) -> Product:
        """Return `C^T = B^T @ A^T`; there must be no bias, which would run along rows."""
        m, n, k = self.sizes
        return Product(
            (n, m, k),
            self.b.transposed(),
            self.a.transposed(),
            self.c.transposed(),
            None,
            self.gate and self.gate.transposed(),
            self.residual and self.residual.transposed(),
            self.precision,
            self.is_active,
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """How to read a matrix: along which axis ("any" for neither), its extent, the strides."""

    unit: str
    extent: int
    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class Operands:
    """A product over a batch as kernels take it.

    `units`, `extents` and the first two `strides` (along both axes of the batch, the outer and the
    inner axis) say how A and B are walked; the other strides, and pointers and `aligned`, are of C,
    gate and residual too, with the bias between them.
    """

    sizes: tuple[int, int, int]
    batch: tuple[int, int]
    dtype: DType
    result: DType
    precision: str
    units: tuple[str, str]
    extents: tuple[int, int]
    strides: tuple[tuple[int, int, int, int], ...]
    pointers: tuple[Pointer, ...]
    aligned: tuple[bool, ...]
    is_bare: bool
    is_active: bool

    @property
    def integers(self) -> tuple[int, ...]:
        """The integers of a launch."""
        return (*self.sizes, *self.extents, *chain.from_iterable(self.strides))

    @property
    def plain_integers(self) -> tuple[int, ...]:
        """The integers of a launch that takes neither gate nor residual."""
        return self.integers[: -2 * _STRIDES]

    def along_k(self, side: int) -> tuple[int, int, int, int]:
        """Return the strides of a factor along the batch, M or N, and K."""
        batch0, batch1, outer, inner = self.strides[side]
        is_turned = self.units[side] == "mn"[side] or (side == 1 and self.units[side] == "any")
        return (batch0, batch1, inner, outer) if is_turned else (batch0, batch1, outer, inner)

    def in_one_form(self) -> Operands:
        """Return what `matmul` takes: the bundle has one form for what is read slowly anyway."""
        if "any" not in self.units:
            return self
        _, n, k = self.sizes
        *batch, row, column = self.along_k(1)
        return replace(
            self,
            units=("any", "any"),
            extents=(k, n),
            strides=(self.along_k(0), (batch[0], batch[1], column, row), *self.strides[2:]),
        )

    def with_factor(
        self, side: int, pointer: Pointer, strides: tuple[int, int, int, int]
    ) -> Operands:
        """Return the operands with another factor, which begins on blocks along K."""

        def put(values: tuple[_T, ...], value: _T) -> tuple[_T, ...]:
            return (*values[:side], value, *values[side + 1 :])

        units, extents = put(self.units, "k"), put(self.extents, self.sizes[2])
        return replace(
            self,
            units=(units[0], units[1]),
            extents=(extents[0], extents[1]),
            strides=put(self.strides, strides),
            pointers=put(self.pointers, pointer),
            aligned=put(self.aligned, value=True),
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """What a product takes, in order, and the workspaces: operands behind those of the product."""

    steps: tuple[PlannedStep, ...]
    workspaces: tuple[Workspace, ...]


def plan_steps(batch: Shape, product: Product) -> Steps:
    """Plan the launches for all pieces of the batch."""
    walked = (product.a, product.b, product.c, product.gate, product.residual)
    # What is absent stands where the result does.
    over = [matrices or product.c for matrices in walked]
    steps: list[PlannedStep] = []
    workspaces: list[Workspace] = []
    for piece in batch_pieces(batch, tuple(x.strides[:-2] for x in over), rank=2):
        pointers = [_pointer(x, piece, index, product.sizes) for index, x in enumerate(over)]
        aligned = [
            x.array.is_aligned and start.offset * x.array.dtype.size_bytes % DIVISOR == 0
            for x, start in zip(over, pointers, strict=True)
        ]
        operands = _operands(product, piece.space, pointers, aligned)
        more, needed = _steps(operands, product.a.array.device, WORKSPACES + len(workspaces))
        steps += more
        workspaces += needed
    return Steps(tuple(steps), tuple(workspaces))


def _pointer(matrices: Matrices, piece: Piece, index: int, sizes: tuple[int, int, int]) -> Pointer:
    m, n, k = sizes
    extents = {A: (m, k), B: (k, n)}.get(index, (m, n))
    return Pointer(
        matrices.operand,
        piece.offsets[index],
        (*piece.space.sizes, *extents),
        (*piece.space.strides[index], *matrices.strides[-2:]),
    )


def _operands(
    product: Product, space: IndexSpace, pointers: Sequence[Pointer], aligned: Sequence[bool]
) -> Operands:
    m, n, k = product.sizes
    a, b = _walk("mk", (m, k), product.a.strides[-2:]), _walk("kn", (k, n), product.b.strides[-2:])
    outer = [(walk[0], walk[1]) for walk in space.strides]
    strides = [(*outer[0], a.outer, a.inner), (*outer[1], b.outer, b.inner)]
    for matrices, walk in zip((product.c, product.gate, product.residual), outer[2:], strict=True):
        if matrices is None:
            strides.append((0, 0, 0, 1))
        else:  # along a single column any stride will do
            row, column = matrices.strides[-2:]
            strides.append((*walk, row, 1 if n == 1 else column))
    start_a, start_b, start_c, gate, residual = pointers
    bias = start_c if product.bias is None else Pointer(BIAS, 0, (n,), (1,))
    is_bias_aligned = product.bias is None or product.bias.is_aligned
    return Operands(
        product.sizes,
        (space.sizes[0], space.sizes[1]),
        product.a.array.dtype,
        product.c.array.dtype,
        product.precision,
        (a.unit, b.unit),
        (a.extent, b.extent),
        tuple(strides),
        (start_a, start_b, start_c, bias, gate, residual),
        (*aligned[:3], is_bias_aligned, *aligned[3:]),
        is_bare=product.gate is None and product.residual is None,
        is_active=product.is_active,
    )


def _steps(
    operands: Operands, device: int | None, first_workspace: int
) -> tuple[Sequence[PlannedStep], Sequence[Workspace]]:
    """Plan a product over a batch, by blocks where that is better."""
    m, n, _ = operands.sizes
    batch = operands.batch[0] * operands.batch[1]
    is_plain = operands.dtype in PLAIN
    kernel = kernels.matmul_plain if is_plain else kernels.matmul
    other = operands.in_one_form()
    pointers, integers = other.pointers, other.integers
    if is_plain:
        pointers, integers = pointers[:3], other.plain_integers
    aligned = other.aligned[:3] if is_plain else other.aligned
    fast = all(aligned) and fits_fast(kernel, len(pointers), integers)
    tuned = tuned_choice(
        FAMILY,
        _case(operands, fast=fast),
        (batch, *operands.sizes),
        device=device,
        why_not=partial(_why_not, operands, fast=fast, device=device),
    )
    if copies_blocks(device):
        if tuned is None:
            found = block_steps(operands, fast=fast, first_workspace=first_workspace)
        elif tuned.kernel == kernel.name:
            found = None
        else:
            found = tuned_block_steps(operands, tuned, first_workspace=first_workspace)
        if found is not None:
            return found
    if tuned is not None and tuned.kernel == kernel.name:
        tiles = DotConfiguration(*tuned.tiles)
    else:
        tiles = matmul_configuration(
            m, n, batch, operands.dtype, precision=operands.precision, fast=fast
        )
    grid = (count_tiles(m, n, tiles), operands.batch[1], operands.batch[0])
    return [PlannedLaunch(kernel, grid, pointers, integers, _options(other, tiles))], []


def _options(operands: Operands, tiles: DotConfiguration) -> dict[str, Any]:
    a_unit, b_unit = operands.units
    options = {"A_UNIT": a_unit, "B_UNIT": b_unit, **launch_options(tiles)}
    return options if operands.dtype in PLAIN else {**options, "PRECISION": operands.precision}


def _case(operands: Operands, *, fast: bool) -> str:
    """Return in words what the choice of a kernel depends on besides sizes."""
    words = [str(operands.dtype), str(operands.result), operands.precision, layout_of(operands)]
    words += ["epilogue"] * (not operands.is_bare) + ["active"] * operands.is_active
    words += ["general"] * (not fast) + ["odd"] * (not is_even(operands))
    return " ".join(words)


def _why_not(operands: Operands, choice: Choice, *, fast: bool, device: int | None) -> str:
    """Return why a tuned choice cannot serve a product; empty if it can."""
    is_plain = operands.dtype in PLAIN
    kernel = kernels.matmul_plain if is_plain else kernels.matmul
    if choice.kernel == kernel.name:
        tiles = DotConfiguration(*choice.tiles)
        if not fast:
            return "the general form has one configuration"
        if tiles in MATMUL_FAST[operands.dtype, operands.precision]:
            return ""
        dtypes = {"a": operands.dtype, "c": operands.result}
        return why_no_binary(kernel, dtypes, _options(operands.in_one_form(), tiles))
    if not copies_blocks(device):
        return "products here do not go by blocks"
    return why_not_by_blocks(operands, choice)


def _walk(axes: str, extents: tuple[int, int], strides: Strides) -> _Walk:
    """Return how to read a matrix whose rows and columns are called `axes`."""
    (rows, columns), (row, column) = extents, strides
    if column == 1 or (columns == 1 and row != 1):
        return _Walk(axes[1], columns, row, 1)
    if row == 1 or rows == 1:
        return _Walk(axes[0], rows, column, 1)
    return _Walk("any", columns, row, column)
