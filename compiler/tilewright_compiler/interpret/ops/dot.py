"""The product of two tiles, computed in f64 and rounded once.

The products of two floats of at most 32 bits are exact in f64, and so are sums of products of 8-bit
integers. The sum over K, with the accumulator, is rounded to f32 at its end, so that the result is
more exact than any order of f32 additions gives: a device's is compared with a tolerance.
"""

from __future__ import annotations

import numpy as np

from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array, rounded_to_tf32
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype, shape_of


def _dot(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    dtype = element_dtype(operation.result.type)
    _, extent = shape_of(operation.operands[0].type)
    a, b, acc = operands
    # Equal elements may be held once, but the sum has all of them.
    a = np.broadcast_to(a, (*a.shape[:-1], extent))
    b = np.broadcast_to(b, (*b.shape[:-2], extent, b.shape[-1]))
    product = _product(a, b, operation.attributes["precision"])
    if dtype.is_integer:
        total: Array = product.astype(np.int64) + acc
        return total.astype(np.int32)
    total = product + acc.astype(np.float64)
    return total.astype(to_numpy(dtype))


def _product(a: Array, b: Array, precision: str) -> Array:
    """Return `a @ b` in f64."""
    if precision == "ieee":
        product: Array = a.astype(np.float64) @ b.astype(np.float64)
        return product
    a_high, b_high = rounded_to_tf32(a), rounded_to_tf32(b)
    high = _product(a_high, b_high, "ieee")
    if precision == "tf32":
        return high
    a_low, b_low = rounded_to_tf32(a - a_high), rounded_to_tf32(b - b_high)
    return high + _product(a_high, b_low, "ieee") + _product(a_low, b_high, "ieee")


COMPUTE: dict[str, Compute] = {"dot": _dot}
