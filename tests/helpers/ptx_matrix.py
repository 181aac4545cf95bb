"""What the matrix instructions of a warp compute: fragments as the PTX ISA numbers them.

Deliberately written from the formulas of the PTX ISA and not from `layout.atoms`, which these tests
check. Arrays are `[warp, lane]` for each register, and `[warp, row, column]` for matrices. Products
of 16-bit and tf32 operands are exact and summed in f64, then rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers import ptx_arithmetic as pa
from helpers.ptx_arithmetic import Array

LANES = 32
_GROUP, _WITHIN = np.divmod(np.arange(LANES), 4)
_TF32_BITS = np.uint32(0xFFFFE000)


def multiply(
    shape: tuple[int, int, int],
    types: tuple[str, str, str],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
) -> list[Array]:
    """Return the registers of `c + a @ b`; `types` are those of a, b and c.

    Registers of a and b are bits (u32, f64 as values), those of c are values.
    """
    m, n, k = shape
    left = _matrix(a, types[0], (m, k), k_axis=1)
    right = _matrix(b, types[1], (k, n), k_axis=0)
    places = [_acc_place(index) for index in range(m * n // LANES)]
    wide = np.int64 if types[2] == "s32" else np.float64
    acc = np.zeros((len(left), m, n), wide)
    for register, (row, column) in zip(c, places, strict=True):
        acc[:, row, column] = register
    result = acc + left @ right
    return [result[:, row, column].astype(pa.DTYPES[types[2]]) for row, column in places]


def _matrix(
    registers: Sequence[Array], type_: str, shape: tuple[int, int], *, k_axis: int
) -> Array:
    """Put the elements of an operand's registers into their places."""
    elements = [element for register in registers for element in _elements(register, type_)]
    per_word = len(elements) // len(registers)
    matrix = np.zeros((len(registers[0]), *shape), elements[0].dtype)
    for index, element in enumerate(elements):
        word, within = divmod(index, per_word)
        if k_axis == 1:
            # Of the words of a, every second one lies 8 rows down, if there are so many rows.
            half_row, half_k = (word % 2, word // 2) if shape[0] > 8 else (0, word)
        else:
            half_row, half_k = 0, word
        along_k = half_k * 4 * per_word + _WITHIN * per_word + within
        across = _GROUP + 8 * half_row
        row, column = (across, along_k) if k_axis == 1 else (along_k, across)
        matrix[:, row, column] = element
    return matrix


def _elements(register: Array, type_: str) -> list[Array]:
    if type_ == "f64":
        return [register]
    if type_ == "tf32":
        return [(register & _TF32_BITS).view(np.float32).astype(np.float64)]
    bits = pa.bits_of(type_)
    wide = np.int64 if type_[0] in "su" else np.float64
    return [
        pa.from_bits(register >> np.uint32(shift), type_).astype(wide)
        for shift in range(0, 32, bits)
    ]


def _acc_place(index: int) -> tuple[Array, Array]:
    return _GROUP + 8 * (index // 2), 2 * _WITHIN + index % 2


def matrix_words(rows: Array, *, is_transposed: bool) -> Array:
    """Return the word of each lane, `[warp, lane]`, of matrices given as `[warp, row, byte]`.

    That is what `ldmatrix` gives.
    """
    halves = np.ascontiguousarray(rows).view(np.uint16)
    if is_transposed:
        halves = halves.transpose(0, 2, 1)
    low, high = (halves[:, _GROUP, 2 * _WITHIN + half].astype(np.uint32) for half in (0, 1))
    return np.asarray(low | high << np.uint32(16))


def matrix_rows(words: Array, *, is_transposed: bool) -> Array:
    """Return the matrices `[warp, row, byte]` of which lanes hold these words, `[warp, lane]`.

    That is what `stmatrix` writes.
    """
    halves = np.zeros((len(words), 8, 8), np.uint16)
    for half in (0, 1):
        part = (words >> np.uint32(16 * half) & np.uint32(0xFFFF)).astype(np.uint16)
        halves[:, _GROUP, 2 * _WITHIN + half] = part
    if is_transposed:
        halves = halves.transpose(0, 2, 1)
    return np.ascontiguousarray(halves).view(np.uint8)


def round_tf32(values: Array) -> Array:
    """Return f32 rounded to tf32, ties away from zero (cvt.rna.tf32)."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & _TF32_BITS
    return np.where(np.isfinite(values), rounded, bits & _TF32_BITS).view(np.float32)
