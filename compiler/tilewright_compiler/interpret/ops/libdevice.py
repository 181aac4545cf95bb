"""Functions of libdevice: in f64, rounded to the result; those with a rounding mode exactly.

Approximate ones (`fast_...`) are given as exactly as the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret import directed_rounding, special_functions
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array, binary, fma
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.libdevice import MODES, overload_of
from tilewright_compiler.ir.types import element_dtype


def _libdevice(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    function: str = operation.attributes["function"]
    overload = overload_of(operation)
    assert overload is not None, "the verifier checks overloads"
    name, _, mode = function.rpartition("_")
    if mode in MODES:
        return directed_rounding.rounded(name, operands, mode)
    if function in _EXACT:
        return _EXACT[function](operands, element_dtype(operation.operands[0].type))
    wide = [
        array.astype(np.float64) if dtype.is_float else array
        for array, dtype in zip(operands, overload.operands, strict=True)
    ]
    result = _function(function)(*wide)
    return np.asarray(result).astype(to_numpy(overload.result))


def _function(name: str) -> Callable[..., Array]:
    if name in special_functions.FUNCTIONS:
        return special_functions.FUNCTIONS[name]
    return _FUNCTIONS[name]


def _exponent(value: Array) -> Array:
    limits = np.iinfo(np.int32)
    _, exponent = np.frexp(value)
    result = np.where((value == 0) | np.isnan(value), limits.min, exponent - 1)
    return np.where(np.isinf(value), limits.max, result)


def _to_int64(value: Array) -> Array:
    limit = 2.0**63
    inside = np.abs(value) < limit
    clamped = np.where(inside, value, 0).astype(np.int64)
    highest = np.where(value > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    # A NaN gives the lowest number of 64 bits (PTX ISA, cvt).
    return np.where(inside, clamped, np.where(np.isnan(value), np.iinfo(np.int64).min, highest))


def _power(base: Array, exponent: Array) -> Array:
    return np.power(base, exponent.astype(np.float64))


def _remainder(left: Array, right: Array) -> Array:
    left, right = np.broadcast_arrays(left, right)
    result = np.fmod(left, right)
    # The quotient is nearest now: fmod's parity decides ties, from the remainder by twice as much.
    twice = np.fmod(left, 2 * right)
    is_odd = np.abs(np.abs(twice) - np.abs(result)) > np.abs(right) / 2
    size, half = np.abs(result), np.abs(right) / 2
    goes_on = (size > half) | ((size == half) & is_odd)
    result = np.where(goes_on, result - np.copysign(np.abs(right), result), result)
    result = np.where(np.isinf(right) & np.isfinite(left), left, result)
    return np.where(result == 0, np.copysign(0.0, left), result)


def _positive_difference(left: Array, right: Array) -> Array:
    return np.where(left <= right, 0.0, left - right)


def _length(*values: Array) -> Array:
    total = np.abs(values[0])
    for value in values[1:]:
        total = np.hypot(total, value)
    return total


def _saturated(value: Array) -> Array:
    return np.clip(np.where(np.isnan(value), 0.0, value), 0.0, 1.0)


def _next_after(operands: Operands, _dtype: DType) -> Array:
    result: Array = np.nextafter(*operands)
    return result


def _fused(operands: Operands, dtype: DType) -> Array:
    left, right, addend = operands
    return fma(left, right, addend, dtype)


def _bits_of(value: Array) -> Array:
    """Return the bits of integers along a new last axis, the lowest first."""
    size = 8 * value.dtype.itemsize
    unsigned = value.view(f"u{value.dtype.itemsize}")
    places = np.arange(size, dtype=unsigned.dtype)
    bits: Array = (unsigned[..., None] >> places & unsigned.dtype.type(1)).astype(np.bool_)
    return bits


def _leading_zeros(operands: Operands, dtype: DType) -> Array:
    bits = _bits_of(operands[0])[..., ::-1]
    return np.where(bits.any(-1), bits.argmax(-1), dtype.bits).astype(np.int32)


def _lowest_bit(operands: Operands, _dtype: DType) -> Array:
    bits = _bits_of(operands[0])
    return np.where(bits.any(-1), bits.argmax(-1) + 1, 0).astype(np.int32)


def _count_bits(operands: Operands, _dtype: DType) -> Array:
    return np.asarray(_bits_of(operands[0]).sum(-1)).astype(np.int32)


def _reversed_bits(operands: Operands, _dtype: DType) -> Array:
    (value,) = operands
    bits = _bits_of(value)[..., ::-1]
    packed = np.packbits(np.ascontiguousarray(bits), axis=-1, bitorder="little")
    return packed.view(value.dtype)[..., 0]


def _high_product(operands: Operands, dtype: DType) -> Array:
    left, right = operands
    return binary("mulhi", left, right, dtype)


def _low_product(operands: Operands, _dtype: DType) -> Array:
    """Multiply the lower 24 bits, with their sign."""
    left, right = (value << 8 >> 8 for value in operands)
    return np.asarray(left * right)


def _mean(up: int) -> Callable[[Operands, DType], Array]:
    def mean(operands: Operands, dtype: DType) -> Array:
        left, right = (value.astype(np.int64) for value in operands)
        return np.asarray(left + right + up >> 1).astype(to_numpy(dtype))

    return mean


def _sum_of_difference(operands: Operands, _dtype: DType) -> Array:
    left, right, addend = (value.astype(np.int64) for value in operands)
    return np.asarray(np.abs(left - right) + addend).astype(np.uint32)


def _permuted_bytes(operands: Operands, dtype: DType) -> Array:
    x, y, selector = (value.astype(np.int64) & 0xFFFFFFFF for value in operands)
    both = x.astype(np.uint64) | y.astype(np.uint64) << np.uint64(32)
    result = np.zeros(np.broadcast_shapes(x.shape, y.shape, selector.shape), np.uint64)
    for place in range(4):
        chosen = (selector >> 4 * place & 7).astype(np.uint64)
        result |= (both >> chosen * np.uint64(8) & np.uint64(0xFF)) << np.uint64(8 * place)
    return result.astype(np.uint32).view(to_numpy(dtype))


_EXACT: dict[str, Callable[[Operands, DType], Array]] = {
    "nextafter": _next_after,
    "fma": _fused,
    "mulhi": _high_product,
    "clz": _leading_zeros,
    "ffs": _lowest_bit,
    "popc": _count_bits,
    "brev": _reversed_bits,
    "mul24": _low_product,
    "hadd": _mean(0),
    "rhadd": _mean(1),
    "sad": _sum_of_difference,
    "byte_perm": _permuted_bytes,
}
_PLAIN: dict[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp10": lambda value: np.power(10.0, value),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "rcbrt": lambda value: 1 / np.cbrt(value),
    "rint": np.rint,
    "rsqrt": lambda value: 1 / np.sqrt(value),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    **_PLAIN,
    **{f"fast_{name}f": function for name, function in _PLAIN.items()},
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "fdim": _positive_difference,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "pow": _power,
    "fast_powf": np.power,
    "fast_dividef": np.divide,
    "remainder": _remainder,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "ldexp": np.ldexp,
    "scalbn": np.ldexp,
    "norm3d": _length,
    "norm4d": _length,
    "rnorm3d": lambda *values: 1 / _length(*values),
    "rnorm4d": lambda *values: 1 / _length(*values),
    "ilogb": _exponent,
    "llrint": lambda value: _to_int64(np.rint(value)),
    "llround": lambda value: _to_int64(special_functions.FUNCTIONS["round"](value)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "saturatef": _saturated,
}

COMPUTE: dict[str, Compute] = {"libdevice": _libdevice}
