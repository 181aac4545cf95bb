"""PTX instructions that compute one element from others and need no more of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def _copysign(sign: Array, magnitude: Array) -> Array:
    """PTX takes the sign from the first source and the magnitude from the second."""
    result: Array = np.copysign(magnitude, sign)
    return result


def _count(value: Array) -> Array:
    return np.array([int(x).bit_count() for x in value], np.uint32)


def _leading(value: Array) -> Array:
    width = 8 * value.dtype.itemsize
    return np.array([width - int(x).bit_length() for x in value], np.uint32)


def _shift_to_highest(value: Array) -> Array:
    """PTX's bfind.shiftamt: how far the highest bit set is from the top; all ones for 0."""
    width = 8 * value.dtype.itemsize
    return np.array([(width - int(x).bit_length()) if x else 0xFFFFFFFF for x in value], np.uint32)


def _reverse(value: Array) -> Array:
    width = 8 * value.dtype.itemsize
    turned = [int(f"{int(x):0{width}b}"[::-1], 2) for x in value]
    return np.array(turned, object).astype(value.dtype)


def _sad(left: Array, right: Array, addend: Array) -> Array:
    difference = np.abs(left.astype(np.int64) - right.astype(np.int64))
    total = difference + addend.astype(np.int64)
    return (total & 0xFFFFFFFF).astype(np.uint32).view(left.dtype)


def _tanh(value: Array) -> Array:
    return np.tanh(value.astype(np.float64)).astype(value.dtype)


FUNCTIONS: dict[str, tuple[Callable[..., Array], str]] = {
    "copysign": (_copysign, ""),
    "popc": (_count, "u32"),
    "clz": (_leading, "u32"),
    "bfind": (_shift_to_highest, "u32"),
    "brev": (_reverse, ""),
    "sad": (_sad, ""),
    "tanh": (_tanh, ""),
}
"""By opcode: what it computes, and the type of the result where that is not the sources'."""
