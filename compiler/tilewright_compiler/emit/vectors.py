"""Putting elements into MLIR vectors, and taking them out of vectors and structs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright_compiler.emit.text import FunctionText


def insert_elements(text: FunctionText, names: Sequence[str], type_: str) -> tuple[str, str]:
    """Return a vector of the elements and its type; a single element is itself."""
    if len(names) == 1:
        return names[0], type_
    vector_type = f"vector<{len(names)}x{type_}>"
    vector = text.value(f"llvm.mlir.poison : {vector_type}")
    for index, name in enumerate(names):
        vector = text.value(
            f"llvm.insertelement {name}, {vector}[{text.i32(index)} : i32] : {vector_type}"
        )
    return vector, vector_type


def extract_elements(text: FunctionText, vector: str, type_: str, count: int) -> tuple[str, ...]:
    """Return the elements of a vector of `count`; a single element is itself."""
    if count == 1:
        return (vector,)
    return tuple(
        text.value(
            f"llvm.extractelement {vector}[{text.i32(index)} : i32] : vector<{count}x{type_}>"
        )
        for index in range(count)
    )


def extract(text: FunctionText, struct: str, index: int, type_: str) -> str:
    """Return a member of a struct of that type."""
    return text.value(f"llvm.extractvalue {struct}[{index}] : {type_}")
