"""Products of 8-bit floats with scales on the device: check, copy what must lie otherwise, launch.

The kernel wants both factors contiguous along K and rows of blocks of 16 bytes; what lies otherwise
is copied first, and a result that does is computed apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.abi.dtypes import DType, bfloat16, float8e4nv, float8e5, float16, float32
from tilewright.abi.signature import DIVISOR
from tilewright.errors import ArgumentError
from tilewright.kernels.scaled_matmul import SCALED
from tilewright.kernels.scaled_matmul import scaled_matmul as kernel
from tilewright.runtime.geometry import row_major
from tilewright.runtime.launcher import CODES
from tilewright.tensor.arrays import Array, fits_fast
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.block_launches import PlannedCopy, PlannedStep
from tilewright.tensor.configurations import DotConfiguration, scaled_configuration
from tilewright.tensor.geometry import (
    Geometry,
    check_given,
    check_one_dtype,
    check_one_side,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.launches import PlannedLaunch, Pointer, is_empty, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import copies_blocks, count_tiles, launch_options
from tilewright.tensor.strides import Shape, Strides, broadcast_strides
from tilewright.tensor.workspaces import Workspace, obtain

FACTORS = (float8e4nv, float8e5)
RESULTS = (bfloat16, float16, float32)

# The operands by number, as the kernel takes them, and the first workspace behind them.
A, B, C, BIAS, A_SCALE, B_SCALE, WORKSPACES = range(7)

_SCALED = int(str(SCALED.value))
# So far apart may rows of the scales of A lie that the kernel counts elements of a tile in 32 bits.
_LARGEST_STRIDE = 2**23
# Rows of copies begin at multiples of so many bytes.
_ROW_BYTES = 128


def scaled_matmul(
    a: object,
    b: object,
    a_scale: object,
    b_scale: object,
    *,
    bias: object | None = None,
    out_dtype: DType | None = None,
    out: object | None = None,
) -> Array:
    """Return `(a * a_scale) @ (b * b_scale) + bias`, `[M, N]`, of 8-bit floats.

    `a` is `[M, K]` and `b` `[K, N]` of one dtype, of any strides, K a multiple of 16. Scales are
    f32, on the same side: one for the whole of a factor (of one element), `[M, 1]` for each row of
    `a` and `[1, N]` for each column of `b`, or one for each block of 128 along K, the last one
    shorter: `[M, ceil(K / 128)]` for those of a row of `a`, `[ceil(K / 128), ceil(N / 128)]` for
    those of 128 columns of `b`. Both factors may have scales of any kind. `bias` is contiguous
    `[N]`, of the dtype of the result: bfloat16, or what `RESULTS` lists. Products of a block along
    K are summed and scaled in f32, and the result is rounded once. See `reference.scaled_matmul`.

    A factor that is not contiguous along K, or whose rows do not begin at multiples of 16 bytes, is
    copied first; a result of such rows is computed apart.
    """
    if out_dtype is not None and out_dtype not in RESULTS:
        names = ", ".join(map(str, RESULTS))
        msg = f"out_dtype is {out_dtype!r}; a product of 8-bit floats is one of {names}"
        raise ArgumentError(msg)
    arrays, geometries = operands(a=a, b=b, out=out, bias=bias, a_scale=a_scale, b_scale=b_scale)
    plan = _plan(geometries, out_dtype)
    result = result_of(arrays, C, plan.result)
    if out is not None and must_be_apart(arrays, C, 0):
        apart = scaled_matmul(a, b, a_scale, b_scale, bias=bias, out_dtype=out_dtype)
        copy_elements(apart, result)
        return result
    if plan.workspaces:
        arrays += obtain(plan.workspaces, arrays, plan.result.device)
    for step in plan.steps:
        step.run(arrays, ())
    return result


class _Plan(NamedTuple):
    """What a product takes, in order, with the workspaces, and the geometry of its result."""

    steps: tuple[PlannedStep, ...]
    workspaces: tuple[Workspace, ...]
    result: Geometry


class _Placed(NamedTuple):
    """Where the kernel finds an operand, walked over two axes, and the strides along them."""

    pointer: Pointer
    strides: Strides


@planned
def _plan(geometries: tuple[Any, ...], out_dtype: DType | None) -> _Plan:
    """Check a product and plan its copies and its launch."""
    a: Geometry
    b: Geometry
    a_scale: Geometry
    b_scale: Geometry
    out: Geometry | None
    bias: Geometry | None
    a, b, out, bias, a_scale, b_scale = geometries
    check_given(a=a, b=b, a_scale=a_scale, b_scale=b_scale)
    check_one_dtype({"a": a, "b": b})
    check_one_side({"a": a, "a_scale": a_scale, "b_scale": b_scale})
    m, n, k = _sizes(a, b)
    result = result_geometry(out, (m, n), out_dtype or bfloat16, a)
    if bias is not None:
        _check_bias(bias, n, result)
    blocks = -(-k // _SCALED)
    rows, along_k = _scale_strides("a_scale", a_scale, {"M": m, "K": k}, (m, blocks))
    by_columns = n > 1 and b_scale.shape == (1, n)
    groups = (blocks, n if by_columns else -(-n // _SCALED))
    b_along_k, along_n = _scale_strides("b_scale", b_scale, {"K": k, "N": n}, groups)
    if is_empty((m, n)):
        return _Plan((), (), result)
    work = _Work()
    left = work.read(A, a, (m, k), a.strides)
    right = work.read(B, b, (n, k), b.strides[::-1])
    target, finish = work.written(C, result, (m, n))
    scales = work.scale(A_SCALE, a_scale, (m, blocks), (rows, along_k))
    others = work.scale(B_SCALE, b_scale, groups, (b_along_k, along_n))
    shift = target.pointer if bias is None else work.vector(BIAS, bias)
    of_block, of_column = (0, others.strides[1]) if by_columns else (others.strides[1], 0)
    of_blocks = (scales.strides[1], others.strides[0], of_block)
    integers = (
        m, n, k, left.strides[0], right.strides[0], target.strides[0],
        scales.strides[0], *of_blocks, of_column, int(by_columns), int(bias is not None),
    )  # fmt: skip
    pointers = (
        left.pointer, right.pointer, target.pointer, shift, scales.pointer, others.pointer
    )  # fmt: skip
    if not fits_fast(kernel, len(pointers), integers):
        msg = f"a product of {m} x {k} by {k} x {n} has sizes or strides of more than 31 bits"
        raise ArgumentError(msg)
    tiles = scaled_configuration(m, n, by_blocks=copies_blocks(a.device))
    grid = (count_tiles(m, n, tiles), 1, 1)
    options = _options(tiles, by_blocks=any(of_blocks))
    launch = PlannedLaunch(kernel, grid, pointers, integers, options)
    return _Plan((*work.copies, launch, *finish), tuple(work.workspaces), result)


def _options(tiles: DotConfiguration, *, by_blocks: bool) -> dict[str, Any]:
    """Return the constexprs and options of a launch; a tile of two blocks of B is one of halves."""
    in_halves = tiles.block_n > _SCALED
    return {
        **launch_options(tiles),
        "BLOCK_N": tiles.block_n // 2 if in_halves else tiles.block_n,
        "IN_HALVES": in_halves,
        # Other tiles read scales as they go, of whichever kind.
        "BY_BLOCKS": by_blocks or not in_halves,
    }


class _Work:
    """Collects what must be copied, and the workspaces for it."""

    def __init__(self) -> None:
        self.copies: list[PlannedCopy] = []
        self.workspaces: list[Workspace] = []

    def read(self, number: int, array: Geometry, sizes: Shape, strides: Strides) -> _Placed:
        """Place a matrix to be read by blocks: where it is, or copied."""
        pointer = Pointer(number, 0, sizes, strides)
        if _has_rows_of_blocks(array, sizes, strides):
            return _Placed(pointer, (strides[0], 1))
        return self._copied(pointer, array.dtype)

    def written(
        self, number: int, array: Geometry, sizes: Shape
    ) -> tuple[_Placed, tuple[PlannedCopy, ...]]:
        """Place the result, with the copy that it takes behind the launch."""
        pointer = Pointer(number, 0, sizes, array.strides)
        if _has_rows_of_blocks(array, sizes, array.strides):
            return _Placed(pointer, (array.strides[0], 1)), ()
        apart = self._obtained(sizes, array.dtype)
        return apart, (PlannedCopy(sizes, apart.pointer, pointer),)

    def scale(self, number: int, array: Geometry, sizes: Shape, strides: Strides) -> _Placed:
        """Place scales, of which those are copied that the fast form cannot address."""
        pointer = Pointer(number, 0, array.shape, array.strides)
        if array.is_aligned and max(map(abs, strides)) < _LARGEST_STRIDE:
            return _Placed(pointer, strides)
        copied = self._copied(pointer, array.dtype)
        own = copied.strides if len(array.shape) == len(sizes) else (0,) * len(sizes)
        moved = zip(own, strides, strict=True)
        return _Placed(copied.pointer, tuple(new if old else 0 for new, old in moved))

    def vector(self, number: int, array: Geometry) -> Pointer:
        """Place a contiguous vector."""
        pointer = Pointer(number, 0, array.shape, array.strides)
        return pointer if array.is_aligned else self._copied(pointer, array.dtype).pointer

    def _copied(self, source: Pointer, dtype: DType) -> _Placed:
        placed = self._obtained(source.sizes, dtype)
        self.copies.append(PlannedCopy(source.sizes, source, placed.pointer))
        return placed

    def _obtained(self, sizes: Shape, dtype: DType) -> _Placed:
        unit = _ROW_BYTES // dtype.size_bytes
        shape = (*sizes[:-1], max(1, -(-sizes[-1] // unit)) * unit) if sizes else (1,)
        number = WORKSPACES + len(self.workspaces)
        self.workspaces.append(Workspace(shape, CODES[dtype]))
        strides = row_major(shape) if sizes else ()
        return _Placed(Pointer(number, 0, sizes, strides), strides)


def _has_rows_of_blocks(array: Geometry, sizes: Shape, strides: Strides) -> bool:
    """Return whether a matrix is contiguous along rows that begin at multiples of 16 bytes."""
    is_contiguous = strides[1] == 1 or sizes[1] == 1
    begins = strides[0] > 0 and strides[0] * array.dtype.size_bytes % DIVISOR == 0
    return array.is_aligned and is_contiguous and begins


def _sizes(a: Geometry, b: Geometry) -> tuple[int, int, int]:
    """Return M, N and K after checking the factors."""
    if a.dtype not in FACTORS:
        names = " and ".join(map(str, FACTORS))
        msg = f"a has dtype {a.dtype}; scaled_matmul takes {names}, tw.matmul other dtypes"
        raise ArgumentError(msg)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        msg = f"scaled_matmul takes [M, K] and [K, N], got shapes {a.shape} and {b.shape}"
        raise ArgumentError(msg)
    if a.shape[1] % DIVISOR:
        msg = f"K is {a.shape[1]}; it is a multiple of {DIVISOR}, so pad both factors with zeros"
        raise ArgumentError(msg)
    return a.shape[0], b.shape[1], a.shape[1]


def _check_bias(bias: Geometry, n: int, result: Geometry) -> None:
    check_one_side({"out": result, "bias": bias})
    if bias.dtype != result.dtype:
        msg = f"bias has dtype {bias.dtype}, the result has {result.dtype}"
        raise ArgumentError(msg)
    if bias.shape != (n,) or (bias.strides != (1,) and n > 1):
        msg = (
            f"bias must be contiguous of shape ({n},), got shape {bias.shape} "
            f"with strides {bias.strides}"
        )
        raise ArgumentError(msg)


def _scale_strides(
    name: str, scale: Geometry, sizes: dict[str, int], groups: tuple[int, int]
) -> Strides:
    """Return the strides of a factor's scales over its groups of elements, 0 where they repeat."""
    if scale.dtype != float32:
        msg = f"{name} has dtype {scale.dtype}; scales are {float32}"
        raise ArgumentError(msg)
    if scale.shape in ((), (1,)):
        return (0, 0)
    fits = len(scale.shape) == 2 and all(
        extent in (1, count) for extent, count in zip(scale.shape, groups, strict=True)
    )
    if not fits:
        given = " and ".join(f"{axis} = {size}" for axis, size in sizes.items())
        rows = "[M, 1]" if name == "a_scale" else "[1, N]"
        blocks = "[M, ceil(K / 128)]" if name == "a_scale" else "[ceil(K / 128), ceil(N / 128)]"
        msg = (
            f"{name} has shape {scale.shape} with {given}; it has one element, or shape {rows} "
            f"or {blocks}"
        )
        raise ArgumentError(msg)
    return broadcast_strides(scale.shape, scale.strides, groups)
