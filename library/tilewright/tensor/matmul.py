"""Matrix products of arrays of any shape and strides: orient, cut the batch, choose, launch.

Which axis of an operand is contiguous decides how its tiles are read, so transposed arrays are
multiplied as they lie. A result that is contiguous along its rows is computed as the transposed
product of the transposed operands. All of this depends on geometries alone and is remembered.
"""

from __future__ import annotations

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
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import Array, as_number
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.block_launches import PlannedStep
from tilewright.tensor.geometry import (
    Geometry,
    check_given,
    check_one_dtype,
    check_one_side,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.launches import is_empty, planned
from tilewright.tensor.matmul_launches import (
    GATE,
    PLAIN,
    RESIDUAL,
    A,
    B,
    C,
    Matrices,
    Product,
    Steps,
    plan_steps,
)
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import check_choice, precision_of
from tilewright.tensor.strides import Shape, broadcast_shape, broadcast_strides
from tilewright.tensor.workspaces import Workspace, obtain

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
    `out`; where `out` overlaps what is read otherwise, the product is computed apart and copied.
    See `reference.matmul`.

    On a GPU that copies blocks by itself, factors of a large product whose rows do not begin at
    multiples of 16 bytes, or lie along no axis that the hardware reads, are copied first, which
    takes memory of their size.
    """
    if type(input_precision) is not str or input_precision != "ieee":
        check_choice("input_precision", input_precision, PRECISIONS)
    if activation is not None:
        check_choice("activation", activation, ACTIVATIONS)
    if out_dtype is not None and not isinstance(out_dtype, DType):
        msg = f"out_dtype is {out_dtype!r}; it is one of tilewright.language, as tl.float32"
        raise ArgumentError(msg)
    scale = alpha if type(alpha) is float else as_number(alpha, name="alpha")
    arrays, geometries = operands(a=a, b=b, out=out, bias=bias, gate=gate, residual=residual)
    plan = _plan(geometries, activation, input_precision, out_dtype, scale != 1.0)
    result = result_of(arrays, C, plan.result)
    if out is not None and must_be_apart(arrays, C, 1 << RESIDUAL):
        apart = matmul(
            a, b,
            alpha=alpha, bias=bias, activation=activation, gate=gate, residual=residual,
            input_precision=input_precision, out_dtype=out_dtype,
        )  # fmt: skip
        copy_elements(apart, result)
        return result
    if plan.workspaces:
        arrays += obtain(plan.workspaces, arrays, plan.result.device)
    for step in plan.steps:
        step.run(arrays, (scale, *plan.numbers))
    return result


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a product takes, the geometry of its result, and the numbers that follow alpha."""

    steps: tuple[PlannedStep, ...]
    workspaces: tuple[Workspace, ...]
    result: Geometry
    numbers: tuple[int, ...]


@planned
def _plan(
    geometries: tuple[Any, ...],
    activation: str | None,
    input_precision: str,
    out_dtype: DType | None,
    is_scaled: bool,
) -> _Plan:
    """Check a product and plan its launches."""
    left: Geometry
    right: Geometry
    out: Geometry | None
    bias: Geometry | None
    gate: Geometry | None
    residual: Geometry | None
    left, right, out, bias, gate, residual = geometries
    check_given(a=left, b=right)
    check_one_dtype({"a": left, "b": right})
    result_dtype = _result_dtype(left.dtype, out_dtype)
    batch, sizes = _sizes(left.shape, right.shape)
    m, n, k = sizes
    dropped = (len(left.shape) == 1, len(right.shape) == 1)
    shape = (*batch, *((m, n)[axis] for axis in (0, 1) if not dropped[axis]))
    result = result_geometry(out, shape, result_dtype, left)
    epilogue = {"bias": bias, "gate": gate, "residual": residual}
    given = {name: array for name, array in epilogue.items() if array is not None}
    for name, array in given.items():
        check_one_side({"a": left, name: array})
        if array.dtype != result_dtype:
            msg = f"{name} has dtype {array.dtype}, the result has {result_dtype}"
            raise ArgumentError(msg)
    is_plain = left.dtype in PLAIN
    if is_plain and (given or activation is not None or is_scaled):
        msg = (
            f"a product of {left.dtype} takes no alpha, bias, activation, gate or residual; "
            "apply them to its result"
        )
        raise ArgumentError(msg)
    if bias is not None:
        _check_bias(bias, n)
    product = Product(
        sizes,
        _factor(A, left, (*batch, m, k), missing=-2 if dropped[0] else None),
        _factor(B, right, (*batch, k, n), missing=-1 if dropped[1] else None),
        _over_result(C, result, shape, dropped),
        bias,
        None if gate is None else _over_result(GATE, gate, shape, dropped),
        None if residual is None else _over_result(RESIDUAL, residual, shape, dropped),
        precision_of(left.dtype, input_precision),
        is_active=activation is not None,
    )
    *_, row, column = product.c.strides
    if row == 1 and (column != 1 or n == 1) and bias is None:
        product = product.transposed()
    flags = (int(x is not None) for x in (bias, gate, residual))
    numbers = (ACTIVATIONS[activation], *flags)  # a plain product takes none
    planned = Steps((), ()) if is_empty(shape) else plan_steps(batch, product)
    return _Plan(planned.steps, planned.workspaces, result, numbers)


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


def _check_bias(bias: Geometry, n: int) -> None:
    if bias.shape != (n,) or (bias.strides != (1,) and n > 1):
        msg = (
            f"bias must be contiguous of shape ({n},), got shape {bias.shape} "
            f"with strides {bias.strides}"
        )
        raise ArgumentError(msg)


def _factor(number: int, array: Geometry, shape: Shape, *, missing: int | None) -> Matrices:
    """Walk a factor over `[batch, rows, columns]`; a vector lacks the axis `missing`."""
    own, strides = array.shape, array.strides
    if missing is not None:
        own = (1, *own) if missing == -2 else (*own, 1)
        strides = (0, *strides) if missing == -2 else (*strides, 0)
    return Matrices(number, array, broadcast_strides(own, strides, shape))


def _over_result(
    number: int, array: Geometry, shape: Shape, dropped: tuple[bool, bool]
) -> Matrices:
    """Walk over `[batch, M, N]` what broadcasts to the result, which may have dropped M or N."""
    if broadcast_shape(array.shape, shape) != shape:
        msg = f"shape {array.shape} does not broadcast to that of the result, {shape}"
        raise ArgumentError(msg)
    strides = list(broadcast_strides(array.shape, array.strides, shape))
    if dropped[1]:
        strides.append(0)
    if dropped[0]:
        strides.insert(len(strides) - 1, 0)
    return Matrices(number, array, tuple(strides))
