"""Triangular systems: what is given is checked here, what is computed is a text of the language."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.abi.dtypes import bfloat16, float16, float32, float64
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend import solve_tril as kernels
from tilewright_compiler.frontend.builtins import arguments, dot, shape
from tilewright_compiler.frontend.builtins.reduce import numbers
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import dtype_name
from tilewright_compiler.frontend.kernel_calls import call_kernel
from tilewright_compiler.frontend.operands import NONE, Constant, Operand, describe
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.ops.dot import PRECISIONS
from tilewright_compiler.ir.types import element_dtype, shape_of

_COMPUTED_IN = {float16: float32, bfloat16: float32, float32: float32, float64: float64}


@implements(tl.solve_tril)
def solve_tril(scope: Scope, a: Operand, b: Operand, input_precision: Operand) -> Operand:
    """Build the inverse, or its product with `b`."""
    matrix = _computed(scope, a, "`a` of tl.solve_tril")
    extents = shape_of(matrix.type)
    if len(extents) < 2 or extents[-1] != extents[-2]:
        msg = f"`a` of tl.solve_tril is a tile [..., N, N], got {describe(a)}"
        raise KernelTypeError(msg)
    precision: Operand = Constant("ieee")
    if input_precision != NONE:
        what = "`input_precision` of tl.solve_tril"
        chosen = arguments.choice(input_precision, what, PRECISIONS)
        # Of other dtypes there is one precision, as in tl.dot.
        precision = Constant(chosen if element_dtype(matrix.type) == float32 else "ieee")
    inverse = _inverse(scope, matrix, precision)
    if b == NONE:
        return inverse
    right = _computed(scope, b, "`b` of tl.solve_tril")
    wanted = shape_of(right.type)
    is_fitting = len(extents) == 2 and len(wanted) == 2 and wanted[0] == extents[0]
    if not is_fitting or element_dtype(right.type) != element_dtype(matrix.type):
        msg = (
            f"`b` of tl.solve_tril is a tile [N, M] for an `a` [N, N] of the same precision, got "
            f"{describe(b)} for {describe(a)}"
        )
        raise KernelTypeError(msg)
    return dot.dot(scope, inverse, right, NONE, precision, NONE)


def _inverse(scope: Scope, matrix: Value, precision: Operand) -> Value:
    extents = shape_of(matrix.type)
    n = extents[-1]
    if len(extents) == 2 and n > kernels.CHAIN and precision != Constant("ieee"):
        blocks = n // kernels.CHAIN
        sizes = (kernels.CHAIN, blocks, blocks.bit_length() - 1)
        given = (matrix, *map(Constant, sizes), precision)
        result = call_kernel(scope, kernels.invert_in_blocks, given, {})
        assert isinstance(result, Value)
        return result
    count = 1
    for extent in extents[:-2]:
        count *= extent
    batch = shape.reshaped(scope, matrix, (count, n, n))
    result = call_kernel(scope, kernels.substitute, (batch,), {})
    assert isinstance(result, Value)
    return shape.reshaped(scope, result, extents)


def _computed(scope: Scope, operand: Operand, what: str) -> Value:
    value = numbers(operand, what)
    dtype = _COMPUTED_IN.get(element_dtype(value.type))
    if dtype is None:
        names = ", ".join(dtype_name(dtype) for dtype in _COMPUTED_IN)
        msg = f"{what} is a tile of {names}, got {describe(operand)}; cast it with .to(...)"
        raise KernelTypeError(msg)
    return convert.cast(scope, value, dtype)
