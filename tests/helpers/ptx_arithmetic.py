"""What PTX instructions compute, on NumPy arrays of one element a thread.

Values of bf16 are held as f32. Instructions that the hardware only approximates are rounded
correctly here.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DTYPES: dict[str, type[np.generic]] = {
    "pred": np.bool_,
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    **{f"{k}{bits}": getattr(np, f"uint{bits}") for k in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": getattr(np, f"int{bits}") for bits in (8, 16, 32, 64)},
}


@cache
def bits_of(type_: str) -> int:
    """Return the width of a PTX type."""
    return 1 if type_ == "pred" else int(type_.lstrip("bfsu"))


@cache
def unsigned(bits: int) -> Any:
    """Return NumPy's unsigned type of that width."""
    return DTYPES[f"u{bits}"]


def from_bits(values: Array, type_: str) -> Array:
    """Read register bits (unsigned, at least as wide) as values of a type."""
    if type_ == "pred":
        return values
    narrow = values.astype(unsigned(bits_of(type_)), copy=False)
    if type_ == "bf16":
        return widen_bf16(narrow)
    return np.asarray(narrow.view(DTYPES[type_]))


def to_bits(values: Array, type_: str, register_bits: int) -> Array:
    """Return values of a type as bits for a register; signed ones are extended by their sign."""
    if type_ == "pred":
        return values
    if type_ == "bf16":
        values, type_ = round_bf16(values), "u16"
    values = values.astype(DTYPES[type_], copy=False)
    if type_[0] == "s" and register_bits > bits_of(type_):
        values = values.astype(DTYPES[f"s{register_bits}"])
        return np.asarray(values.view(unsigned(register_bits)))
    bits = values.view(unsigned(bits_of(type_)))
    return np.asarray(bits.astype(unsigned(register_bits), copy=False))


def integer_limits(type_: str) -> np.iinfo[Any]:
    """Return the limits of an integer type."""
    return np.iinfo(np.dtype(DTYPES[type_]))


def widen_bf16(bits: Array) -> Array:
    """Return bf16 bits as f32."""
    return np.asarray((bits.astype(np.uint32) << 16).view(np.float32))


def round_bf16(values: Array) -> Array:
    """Return bf16 bits of f32 or f64 values, rounded once to nearest even."""
    single = round_to_odd(values) if values.dtype == np.float64 else values.astype(np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(single), np.uint32(0x7FFF), rounded).astype(np.uint16)


def truncate_bf16(values: Array) -> Array:
    """Return f32 with the digits cut off that bf16 lacks; NaN stays NaN."""
    cut = (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), cut)


def round_to_odd(values: Array) -> Array:
    """Return f64 as f32, truncated with a sticky last bit, so that a later rounding is right."""
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    too_far = np.abs(back) > np.abs(values)
    truncated = np.where(too_far, np.nextafter(single, np.float32(0)), single).astype(np.float32)
    inexact = (truncated.astype(np.float64) != values) & np.isfinite(values)
    return np.asarray((truncated.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32))


def fma(a: Array, b: Array, c: Array, *, type_: str, mode: str) -> Array:
    """Return a * b + c rounded once."""
    if type_ == "f64":
        return np.array([_fma_f64(*map(float, row)) for row in zip(a, b, c, strict=True)])
    exact, error = _product_sum(*(x.astype(np.float64) for x in (a, b, c)))
    odd = _make_odd(exact, error)
    if type_ == "bf16":
        return odd
    return round_mode(odd, type_, mode)


def round_mode(values: Array, type_: str, mode: str) -> Array:
    """Round f64 to a narrower float type: rn, rz, rm or rp."""
    result = values.astype(DTYPES[type_])
    if mode == "rn":
        return result
    back = result.astype(np.float64)
    zero = DTYPES[type_](0)
    toward = {
        "rz": (np.abs(back) > np.abs(values), zero),
        "rm": (back > values, DTYPES[type_](-np.inf)),
        "rp": (back < values, DTYPES[type_](np.inf)),
    }
    wrong, direction = toward[mode]
    return np.where(wrong, np.nextafter(result, direction), result).astype(DTYPES[type_])


def _product_sum(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return f64 sum and its exact error; the product of two 24-bit numbers is exact."""
    product = a * b
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    return total, np.where(np.isfinite(total), error, 0.0)


def _make_odd(total: Array, error: Array) -> Array:
    bits = total.view(np.uint64)
    shrink = (error != 0) & (np.signbit(error) != np.signbit(total))
    truncated = np.where(shrink, np.nextafter(total, 0.0), total)
    sticky = np.where(error != 0, truncated.view(np.uint64) | np.uint64(1), bits)
    return sticky.view(np.float64)


def _fma_f64(a: float, b: float, c: float) -> float:
    plain = a * b + c
    if not np.isfinite(plain) or not all(map(np.isfinite, (a, b, c))):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return float(exact) if exact else plain


def minimum(a: Array, b: Array, *, propagates_nan: bool) -> Array:
    """Return min; without .NaN the other operand wins over a NaN. +0 is above -0."""
    result = np.minimum(a, b) if propagates_nan else np.fmin(a, b)
    if a.dtype.kind != "f":
        return np.asarray(result)
    return np.where((a == b) & np.signbit(b), b, np.where(a == b, a, result))


def maximum(a: Array, b: Array, *, propagates_nan: bool) -> Array:
    """Return max; without .NaN the other operand wins over a NaN. +0 is above -0."""
    result = np.maximum(a, b) if propagates_nan else np.fmax(a, b)
    if a.dtype.kind != "f":
        return np.asarray(result)
    return np.where((a == b) & np.signbit(b), a, np.where(a == b, b, result))


def compare(name: str, a: Array, b: Array) -> Array:
    """Return setp's comparison; names ending in u are true for unordered operands."""
    unordered = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    if name in ("num", "nan"):
        return unordered if name == "nan" else ~unordered
    if name in _UNSIGNED and a.dtype.kind == "u":
        name = _UNSIGNED[name]
    base, accepts_unordered = (name[:-1], True) if name.endswith("u") else (name, False)
    result: Array = _COMPARE[base](a, b)
    if base == "ne" and not accepts_unordered:
        result = result & ~unordered
    return result | unordered if accepts_unordered else result


_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def float_to_integer(values: Array, target: str) -> Array:
    """Truncate and saturate; NaN gives 0, but the lowest value for 64-bit results (PTX, cvt)."""
    info = integer_limits(target)
    wide = np.trunc(values.astype(np.float64))
    low, high = float(info.min), float(info.max)
    inside = np.clip(np.where(np.isnan(wide), 0.0, wide), low, high)
    too_high = inside >= high
    result = np.where(too_high, 0.0, inside).astype(DTYPES[target])
    result = np.where(too_high, DTYPES[target](info.max), result)
    if info.bits == 64:
        lowest = info.min if target[0] == "s" else 1 << 63
        result = np.where(np.isnan(wide), DTYPES[target](lowest), result)
    return result.astype(DTYPES[target])


def byte_permute(a: Array, b: Array, selector: Array) -> Array:
    """Return prmt.b32 in its default mode."""
    pair = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros_like(a)
    for index in range(4):
        nibble = selector >> np.uint32(4 * index) & np.uint32(15)
        byte = (pair >> (nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8)) & np.uint64(0xFF)
        sign = np.where(byte >> np.uint64(7), np.uint64(0xFF), np.uint64(0))
        byte = np.where(nibble & np.uint32(8), sign, byte)
        result |= byte.astype(np.uint32) << np.uint32(8 * index)
    return result


def inserted_bits(source: Array, target: Array, start: Array, length: Array) -> Array:
    """Return bfi: `target` with the low bits of `source` from bit `start` on, `length` of them.

    Bits beyond the width are dropped.
    """
    bits = 8 * target.dtype.itemsize
    result = target.copy()
    for place in range(bits):
        taken = place - start.astype(np.int64)
        is_inside = (taken >= 0) & (taken < np.minimum(length, bits))
        bit = source >> np.clip(taken, 0, bits - 1).astype(source.dtype) & source.dtype.type(1)
        cleared = result & ~target.dtype.type(1 << place)
        moved = cleared | bit << target.dtype.type(place)
        result = np.where(is_inside, moved, result).astype(target.dtype)
    return result


def truncated_division(left: Array, right: Array) -> tuple[Array, Array]:
    """Return quotients and remainders of div and rem; by zero all ones and the dividend."""
    zero = right == 0
    divisor = np.where(zero, 1, right).astype(right.dtype)
    floor = left // divisor
    inexact = left - floor * divisor != 0
    quotient = (floor + (inexact & ((left < 0) != (divisor < 0)))).astype(left.dtype)
    remainder = (left - quotient * divisor).astype(left.dtype)
    return np.where(zero, ~np.zeros_like(left), quotient), np.where(zero, left, remainder)


def integer_to_float(value: Array, target: str, mode: str) -> Array:
    """Round to nearest even, or towards zero to f32."""
    if mode == "rn" or value.dtype.itemsize < 4:
        return value.astype(DTYPES[target])
    # 64 bits do not fit f64: the nearest value is corrected by comparing integers.
    rounded = [_truncate_integer(int(x)) for x in value]
    return np.array(rounded, DTYPES[target])


def _truncate_integer(value: int) -> float:
    shift = max(0, abs(value).bit_length() - 24)
    return float((abs(value) >> shift << shift) * (1 if value >= 0 else -1))
