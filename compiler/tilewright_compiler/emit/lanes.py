"""Shuffles: reading a value of another lane of the warp, for elements of any width.

The hardware moves 32 bits at a time: narrower values travel in a word, wider ones in two.
"""

from __future__ import annotations

from typing import Literal

from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import POINTER, element_text
from tilewright_compiler.ir.types import ElementType, PointerType

ALL_LANES = -1
_CLAMP = 31  # segment of the whole warp (PTX ISA, shfl.sync)


def shuffle(
    text: FunctionText, value: str, element: ElementType, *, mode: Literal["bfly", "idx"], lane: str
) -> str:
    """Return `value` of lane `lane`; with mode bfly, of the lane whose index differs by it."""
    type_ = element_text(element)
    bits = 64 if isinstance(element, PointerType) else element.dtype.bits
    if bits == 64:
        return _shuffle_64(text, value, type_, mode=mode, lane=lane)
    word = _to_word(text, value, type_, bits)
    moved = _shuffle_word(text, word, mode=mode, lane=lane)
    return _from_word(text, moved, type_, bits)


def _shuffle_word(text: FunctionText, word: str, *, mode: str, lane: str) -> str:
    everyone, clamp = text.i32(ALL_LANES), text.i32(_CLAMP)
    return text.value(f"nvvm.shfl.sync {mode} {everyone}, {word}, {lane}, {clamp} : i32 -> i32")


def _to_word(text: FunctionText, value: str, type_: str, bits: int) -> str:
    if type_ == f"i{bits}":
        integer = value
    else:
        integer = text.value(f"llvm.bitcast {value} : {type_} to i{bits}")
    return integer if bits == 32 else text.value(f"llvm.zext {integer} : i{bits} to i32")


def _from_word(text: FunctionText, word: str, type_: str, bits: int) -> str:
    integer = word if bits == 32 else text.value(f"llvm.trunc {word} : i32 to i{bits}")
    if type_ == f"i{bits}":
        return integer
    return text.value(f"llvm.bitcast {integer} : i{bits} to {type_}")


def _shuffle_64(text: FunctionText, value: str, type_: str, *, mode: str, lane: str) -> str:
    if type_ == "i64":
        integer = value
    else:
        convert = "ptrtoint" if type_ == POINTER else "bitcast"
        integer = text.value(f"llvm.{convert} {value} : {type_} to i64")
    half = text.i64(32)
    low = text.value(f"llvm.trunc {integer} : i64 to i32")
    high_bits = text.value(f"llvm.lshr {integer}, {half} : i64")
    high = text.value(f"llvm.trunc {high_bits} : i64 to i32")
    moved = [_shuffle_word(text, word, mode=mode, lane=lane) for word in (low, high)]
    low, high = (text.value(f"llvm.zext {word} : i32 to i64") for word in moved)
    shifted = text.value(f"llvm.shl {high}, {half} : i64")
    joined = text.value(f"llvm.or {low}, {shifted} : i64")
    if type_ == "i64":
        return joined
    convert = "inttoptr" if type_ == POINTER else "bitcast"
    return text.value(f"llvm.{convert} {joined} : i64 to {type_}")
