"""Matrix products of arrays of any shape and strides: orient, cut the batch, choose, launch.

Which axis of an operand is contiguous decides how its tiles are read, so transposed arrays are
multiplied as they lie. A result that is contiguous along its rows is computed as the transposed
product of the transposed operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
)
from tilewright.errors import ArgumentError
from tilewright.kernels import matmul as kernels
from tilewright.language.kernel import Kernel
from tilewright.tensor.arrays import (
    Array,
    Operand,
    are_aligned,
    as_array,
    as_number,
    batched,
    check_same_dtype,
    check_same_side,
    dtype_of,
    fits_fast,
    output,
    strides_of,
)
from tilewright.tensor.configurations import (
    MATMUL_WIDEST,
    blocks_configuration,
    matmul_configuration,
)
from tilewright.tensor.products import (
    check_choice,
    copies_blocks,
    count_tiles,
    launch_options,
    precision_of,
)
from tilewright.tensor.strides import (
    IndexSpace,
    Shape,
    Strides,
    broadcast_shape,
    broadcast_strides,
)

# What the product of two arrays of a dtype may be rounded to; the first is the default.
RESULTS: dict[DType, tuple[DType, ...]] = {
    float16: (float16, float32),
    bfloat16: (bfloat16, float32),
    float32: (float32,),
    float64: (float64,),
    int8: (int32,),
    uint8: (int32,),
    float8e4nv: (bfloat16, float16, float32),
    float8e5: (bfloat16, float16, float32),
}

ACTIVATIONS: dict[str | None, int] = {
    None: 0,
    "relu": int(str(kernels.RELU.value)),
    "gelu": int(str(kernels.GELU.value)),
    "silu": int(str(kernels.SILU.value)),
    "sigmoid": int(str(kernels.SIGMOID.value)),
}

PRECISIONS = ("ieee", "tf32", "tf32x3")

_PLAIN = (float64, int8, uint8)  # summed in their own way, without an epilogue


@dataclass(frozen=True, slots=True)
class _Product:
    """One product `[m, k] @ [k, n]`; every operand has strides for the batch, rows and columns.

    `bias` is `[n]`; what the epilogue does not take is None.
    """

    sizes: tuple[int, int, int]
    a: Operand
    b: Operand
    c: Operand
    bias: Array | None
    gate: Operand | None
    residual: Operand | None
    alpha: float
    activation: int
    precision: str

    def transposed(self) -> _Product:
        """Return `C^T = B^T @ A^T`; there must be no bias, which would run along rows."""
        m, n, k = self.sizes
        return _Product(
            (n, m, k),
            _transposed(self.b),
            _transposed(self.a),
            _transposed(self.c),
            None,
            self.gate and _transposed(self.gate),
            self.residual and _transposed(self.residual),
            self.alpha,
            self.activation,
            self.precision,
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """How to read a matrix: along which axis ("any" for neither), its extent, the strides."""

    unit: str
    extent: int
    outer: int
    inner: int


def matmul(
    a: object,
    b: object,
    *,
    alpha: float = 1.0,
    bias: object | None = None,
    activation: str | None = None,
    gate: object | None = None,
    residual: object | None = None,
    input_precision: str = "ieee",
    out_dtype: DType | None = None,
    out: object | None = None,
) -> Array:
    """Return `activation(alpha * a @ b + bias) * gate + residual`, shapes as in `numpy.matmul`.

    `a` is `[..., M, K]` and `b` `[..., K, N]` of one dtype, of any strides; leading axes broadcast,
    and an operand of one axis is a row of `a` or a column of `b`, whose axis the result lacks.
    `bias` is contiguous `[N]`, `gate` and `residual` broadcast to the result, and all three have
    its dtype: that of the operands for floats of 16 bits and more, int32 for 8-bit integers,
    bfloat16 for 8-bit floats; `out_dtype` asks for another that `RESULTS` lists. Everything up to
    the one rounding at the end is in f32; f64 is summed in f64 and integers in i32, and neither
    takes an epilogue.
    `activation` is "relu", "gelu" (with the error function), "silu" or "sigmoid"; `input_precision`
    is what becomes of f32 operands, "ieee", "tf32" or "tf32x3", see `tl.dot`. `residual` may be
    `out`; else `out` must not overlap what is read. See `reference.matmul`.
    """
    left, right = as_array(a, name="a"), as_array(b, name="b")
    check_same_dtype({"a": left, "b": right})
    result_dtype = _result_dtype(dtype_of(left), out_dtype)
    check_choice("input_precision", input_precision, PRECISIONS)
    check_choice("activation", activation, ACTIVATIONS)
    batch, sizes = _sizes(left.shape, right.shape)
    m, n, k = sizes
    dropped = (len(left.shape) == 1, len(right.shape) == 1)
    shape = (*batch, *((m, n)[axis] for axis in (0, 1) if not dropped[axis]))
    result = output(out, shape, left, result_dtype)
    epilogue = {"bias": bias, "gate": gate, "residual": residual}
    given = {name: as_array(x, name=name) for name, x in epilogue.items() if x is not None}
    for name, array in given.items():
        check_same_side({"a": left, name: array})
        if dtype_of(array) != result_dtype:
            msg = f"{name} has dtype {dtype_of(array)}, the result has {result_dtype}"
            raise ArgumentError(msg)
    if dtype_of(left) in _PLAIN and (given or activation is not None or alpha != 1.0):
        msg = (
            f"a product of {dtype_of(left)} takes no alpha, bias, activation, gate or residual; "
            "apply them to its result"
        )
        raise ArgumentError(msg)
    if "bias" in given:
        _check_bias(given["bias"], n)
    product = _Product(
        sizes,
        _factor(left, (*batch, m, k), missing=-2 if dropped[0] else None),
        _factor(right, (*batch, k, n), missing=-1 if dropped[1] else None),
        _over_result(result, shape, dropped),
        given.get("bias"),
        _over_result(given["gate"], shape, dropped) if "gate" in given else None,
        _over_result(given["residual"], shape, dropped) if "residual" in given else None,
        as_number(alpha, name="alpha"),
        ACTIVATIONS[activation],
        precision_of(dtype_of(left), input_precision),
    )
    *_, row, column = product.c.strides
    if row == 1 and (column != 1 or n == 1) and "bias" not in given:
        product = product.transposed()
    if prod(shape):
        _launch(batch, product)
    return result


def _result_dtype(operands: DType, asked: DType | None) -> DType:
    allowed = RESULTS.get(operands)
    if allowed is None:
        known = ", ".join(str(dtype) for dtype in RESULTS)
        msg = f"arrays of {operands} are not multiplied; the dtypes are {known}"
        raise ArgumentError(msg)
    if asked is not None and asked not in allowed:
        names = " or ".join(str(dtype) for dtype in allowed)
        msg = f"out_dtype is {asked}; a product of {operands} is {names}"
        raise ArgumentError(msg)
    return asked or allowed[0]


def _sizes(left: Shape, right: Shape) -> tuple[Shape, tuple[int, int, int]]:
    """Return the batch shape and (M, N, K) of the product of two shapes."""
    if not left or not right:
        msg = f"a has shape {left} and b {right}; a product needs at least one axis of each"
        raise ArgumentError(msg)
    k, inner = left[-1], right[-2] if len(right) > 1 else right[0]
    if k != inner:
        msg = f"a of shape {left} has {k} columns, b of shape {right} has {inner} rows"
        raise ArgumentError(msg)
    m = left[-2] if len(left) > 1 else 1
    n = right[-1] if len(right) > 1 else 1
    return broadcast_shape(left[:-2], right[:-2]), (m, n, k)


def _check_bias(bias: Array, n: int) -> None:
    if bias.shape != (n,) or (strides_of(bias) != (1,) and n > 1):
        msg = (
            f"bias must be contiguous of shape ({n},), got shape {bias.shape} "
            f"with strides {strides_of(bias)}"
        )
        raise ArgumentError(msg)


def _factor(array: Array, shape: Shape, *, missing: int | None) -> Operand:
    """Walk a factor over `[batch, rows, columns]`; a vector lacks the axis `missing`."""
    own, strides = array.shape, strides_of(array)
    if missing is not None:
        own = (1, *own) if missing == -2 else (*own, 1)
        strides = (0, *strides) if missing == -2 else (*strides, 0)
    return Operand(array, broadcast_strides(own, strides, shape))


def _over_result(array: Array, shape: Shape, dropped: tuple[bool, bool]) -> Operand:
    """Walk over `[batch, M, N]` what broadcasts to the result, which may have dropped M or N."""
    if broadcast_shape(array.shape, shape) != shape:
        msg = f"shape {array.shape} does not broadcast to that of the result, {shape}"
        raise ArgumentError(msg)
    strides = list(broadcast_strides(array.shape, strides_of(array), shape))
    if dropped[1]:
        strides.append(0)
    if dropped[0]:
        strides.insert(len(strides) - 1, 0)
    return Operand(array, tuple(strides))


def _transposed(operand: Operand) -> Operand:
    *batch, row, column = operand.strides
    return Operand(operand.array, (*batch, column, row))


def _launch(batch: Shape, product: _Product) -> None:
    operands = (product.a, product.b, product.c, product.gate, product.residual)
    dtype = dtype_of(product.a.array)
    matrices = tuple(operand and operand.strides[-2:] for operand in operands)
    # What is absent is never read; the result's address keeps the pointer valid.
    walked = [operand or product.c for operand in operands]
    on_batch = tuple(Operand(operand.array, operand.strides[:-2]) for operand in walked)
    flags = tuple(int(x is not None) for x in (product.bias, product.gate, product.residual))
    for arrays, space in batched(batch, on_batch, rank=2):
        left, right, result, gate, residual = arrays
        pointers: tuple[Array, ...] = (left, right, result)
        scalars: tuple[float, ...] = ()
        if dtype not in _PLAIN:
            bias = result if product.bias is None else product.bias
            pointers = (left, right, result, bias, gate, residual)
            scalars = (product.alpha, product.activation, *flags)
        plan = _plan(
            product.sizes,
            matrices,
            space,
            dtype,
            product.precision,
            are_aligned(pointers),
            copies_blocks(left),
        )
        plan.kernel[plan.grid](*pointers, *plan.integers, *scalars, **plan.options)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A launch but for its pointers and what the epilogue needs."""

    kernel: Kernel
    grid: tuple[int, int, int]
    integers: tuple[int, ...]
    options: dict[str, Any]


@lru_cache(maxsize=4096)
def _plan(
    sizes: tuple[int, int, int],
    matrices: tuple[Strides | None, ...],
    space: IndexSpace,
    dtype: DType,
    precision: str,
    is_aligned: bool,
    by_blocks: bool,
) -> _Plan:
    """Plan a launch over a batch; `matrices` has the strides of rows and columns of each operand.

    `by_blocks` allows the form that copies blocks, which takes what is contiguous along its rows.

    Remembered, because a program multiplies few geometries many times.
    """
    m, n, k = sizes
    a, b = _walks(sizes, matrices[0] or (), matrices[1] or ())
    strides = [*space.strides[0], a.outer, a.inner, *space.strides[1], b.outer, b.inner]
    is_plain = dtype in _PLAIN
    kernel, pointers = (kernels.matmul_plain, 3) if is_plain else (kernels.matmul, 6)
    results = matrices[2:3] if is_plain else matrices[2:]
    for matrix, batch in zip(results, space.strides[2:], strict=False):
        if matrix is None:
            strides += (0, 0, 0, 1)
        else:  # along a single column any stride will do
            strides += (*batch, matrix[0], 1 if n == 1 else matrix[1])
    integers = (m, n, k, a.extent, b.extent, *strides)
    fast = is_aligned and fits_fast(kernel, pointers, integers)
    tiles = matmul_configuration(m, n, space.size, dtype, precision=precision, fast=fast)
    blocks: dict[str, Any] = {}
    if by_blocks and fast:
        full = any(matrix is not None for matrix in matrices[3:])
        own = blocks_configuration(
            m, n, space.size, dtype, units=(a.unit, b.unit), full_epilogue=full
        )
        if own is not None:
            kernel, tiles = kernels.matmul_blocks, own
            blocks["FULL_EPILOGUE"] = own != MATMUL_WIDEST
    options = {"A_UNIT": a.unit, "B_UNIT": b.unit, **blocks, **launch_options(tiles)}
    if not is_plain:
        options["PRECISION"] = precision
    grid = (count_tiles(m, n, tiles), space.sizes[1], space.sizes[0])
    return _Plan(kernel, grid, integers, options)


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
