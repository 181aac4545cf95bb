"""The launches of a matrix product: how operands are walked, which kernel and tile serve them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.abi.dtypes import float64, int8, uint8
from tilewright.abi.signature import DIVISOR
from tilewright.kernels import matmul as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import fits_fast
from tilewright.tensor.configurations import (
    MATMUL_WIDEST,
    blocks_configuration,
    matmul_configuration,
)
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.launches import Piece, PlannedLaunch, Pointer, batch_pieces
from tilewright.tensor.products import copies_blocks, count_tiles, launch_options
from tilewright.tensor.strides import IndexSpace, Shape, Strides

PLAIN = (float64, int8, uint8)  # summed in their own way, without an epilogue

# The operands by number, as the kernels take them.
A, B, C, BIAS, GATE, RESIDUAL = range(6)


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
    """One product `[m, k] @ [k, n]`; `bias` is `[n]`, what the epilogue does not take is None."""

    sizes: tuple[int, int, int]
    a: Matrices
    b: Matrices
    c: Matrices
    bias: Geometry | None
    gate: Matrices | None
    residual: Matrices | None
    precision: str

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
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """How to read a matrix: along which axis ("any" for neither), its extent, the strides."""

    unit: str
    extent: int
    outer: int
    inner: int


def launches(batch: Shape, product: Product) -> Iterator[PlannedLaunch]:
    """Plan a launch for each piece of the batch."""
    walked = (product.a, product.b, product.c, product.gate, product.residual)
    # What is absent stands where the result does.
    over = [matrices or product.c for matrices in walked]
    for piece in batch_pieces(batch, tuple(x.strides[:-2] for x in over), rank=2):
        pointers = [_pointer(x, piece, index, product.sizes) for index, x in enumerate(over)]
        starts = zip(over, pointers, strict=True)
        is_aligned = all(
            x.array.is_aligned and start.offset * x.array.dtype.size_bytes % DIVISOR == 0
            for x, start in starts
        )
        if product.bias is not None:
            is_aligned = is_aligned and product.bias.is_aligned
        yield _launch(product, piece.space, tuple(pointers), is_aligned=is_aligned)


def _pointer(matrices: Matrices, piece: Piece, index: int, sizes: tuple[int, int, int]) -> Pointer:
    m, n, k = sizes
    extents = {A: (m, k), B: (k, n)}.get(index, (m, n))
    return Pointer(
        matrices.operand,
        piece.offsets[index],
        (*piece.space.sizes, *extents),
        (*piece.space.strides[index], *matrices.strides[-2:]),
    )


def _launch(
    product: Product, space: IndexSpace, pointers: tuple[Pointer, ...], *, is_aligned: bool
) -> PlannedLaunch:
    """Plan a launch over a batch."""
    m, n, k = product.sizes
    dtype = product.a.array.dtype
    a, b = _walks(product.sizes, product.a.strides[-2:], product.b.strides[-2:])
    strides = [*space.strides[0], a.outer, a.inner, *space.strides[1], b.outer, b.inner]
    is_plain = dtype in PLAIN
    kernel = kernels.matmul_plain if is_plain else kernels.matmul
    results = (product.c,) if is_plain else (product.c, product.gate, product.residual)
    for matrices, outer in zip(results, space.strides[2:], strict=False):
        if matrices is None:
            strides += (0, 0, 0, 1)
        else:  # along a single column any stride will do
            row, column = matrices.strides[-2:]
            strides += (*outer, row, 1 if n == 1 else column)
    integers = (m, n, k, a.extent, b.extent, *strides)
    start_a, start_b, start_c, gate, residual = pointers
    if is_plain:
        pointers = (start_a, start_b, start_c)
    else:
        bias = start_c if product.bias is None else Pointer(BIAS, 0, (n,), (1,))
        pointers = (start_a, start_b, start_c, bias, gate, residual)
    fast = is_aligned and fits_fast(kernel, len(pointers), integers)
    tiles = matmul_configuration(m, n, space.size, dtype, precision=product.precision, fast=fast)
    blocks: dict[str, Any] = {}
    if fast and copies_blocks(product.a.array.device):
        full = product.gate is not None or product.residual is not None
        own = blocks_configuration(
            m, n, space.size, dtype, units=(a.unit, b.unit), full_epilogue=full
        )
        if own is not None:
            kernel, tiles = kernels.matmul_blocks, own
            blocks["FULL_EPILOGUE"] = own != MATMUL_WIDEST
    options = {"A_UNIT": a.unit, "B_UNIT": b.unit, **blocks, **launch_options(tiles)}
    if not is_plain:
        options["PRECISION"] = product.precision
    grid = (count_tiles(m, n, tiles), space.sizes[1], space.sizes[0])
    return PlannedLaunch(kernel, grid, pointers, integers, options)


def _walks(sizes: tuple[int, int, int], a: Strides, b: Strides) -> tuple[_Walk, _Walk]:
    """Return how to read both factors."""
    m, n, k = sizes
    left, right = _walk("mk", (m, k), a), _walk("kn", (k, n), b)
    if "any" in (left.unit, right.unit):
        # The bundle has one form for what is read slowly anyway.
        return _Walk("any", k, a[0], a[1]), _Walk("any", n, b[0], b[1])
    return left, right


def _walk(axes: str, extents: tuple[int, int], strides: Strides) -> _Walk:
    """Return how to read a matrix whose rows and columns are called `axes`."""
    (rows, columns), (row, column) = extents, strides
    if column == 1 or (columns == 1 and row != 1):
        return _Walk(axes[1], columns, row, 1)
    if row == 1 or rows == 1:
        return _Walk(axes[0], rows, column, 1)
    return _Walk("any", columns, row, column)
