"""Wrong programs in which branches and loops give what has no one type, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram, in_kernel
from tilewright.errors import KernelTypeError

_WINDOW = "tl.make_block_ptr({}, (n, n), (n, 1), (0, 0), ({}, 16), (1, 0))"
_DESCRIPTOR = "tl.make_tensor_descriptor({}, (n, n), (n, 1), ({}, 16))"
_ONE_SHAPE = "one block shape, or use each where it is made"
_NO_CAST = "pointers are not cast: use each where it is made, and cast what is loaded"


def _branches(name: str, says: tuple[str, ...], then: str, otherwise: str) -> WrongProgram:
    body = f"if n > 1:  # here\n    a = {then}\nelse:\n    a = {otherwise}"
    return WrongProgram(f"branches with {name}", KernelTypeError, says, in_kernel(body))


def _loop(name: str, says: tuple[str, ...], before: str, inside: str) -> WrongProgram:
    body = f"a = {before}\nfor i in range(n):  # here\n    a = {inside}"
    return WrongProgram(f"loop with {name}", KernelTypeError, says, in_kernel(body))


PROGRAMS = (
    _branches(
        "windows of two shapes",
        ("block pointer [16, 16] to f32", "block pointer [32, 16] to f32", _ONE_SHAPE),
        _WINDOW.format("x", 16),
        _WINDOW.format("x", 32),
    ),
    _branches(
        "windows of two ranks",
        ("block pointer [16] to f32", "block pointer [32, 16] to f32", _ONE_SHAPE),
        "tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))",
        _WINDOW.format("x", 32),
    ),
    _branches(
        "windows of two dtypes",
        ("to f32", "to f16", _NO_CAST),
        _WINDOW.format("x", 16),
        _WINDOW.format("h", 16),
    ),
    _branches("pointers of two dtypes", ("pointer to f32", "pointer to f16", _NO_CAST), "x", "h"),
    _branches(
        "a window and a pointer",
        ("block pointer [16, 16]", "pointer to f32", "make it a block pointer in both places"),
        _WINDOW.format("x", 16),
        "x",
    ),
    _branches(
        "descriptors of two shapes",
        ("tensor descriptor [16, 16]", "both tensor descriptors", _ONE_SHAPE),
        _DESCRIPTOR.format("x", 16),
        _DESCRIPTOR.format("x", 32),
    ),
    _branches(
        "tuples that have windows of two shapes",
        ("both block pointers", _ONE_SHAPE),
        f"1, {_WINDOW.format('x', 16)}",
        f"2, {_WINDOW.format('x', 32)}",
    ),
    _branches("tuples of two lengths", ("give the tuples one length",), "1, 2", "1, 2, 3"),
    _branches("a tuple and a number", ("make it a tuple in both places",), "1, 2", "3"),
    _branches(
        "two texts",
        ("constexpr 'up'", "numbers, tiles, pointers and tuples", "choose by a tl.constexpr"),
        "'up'",
        "'down'",
    ),
    _loop(
        "windows of two shapes",
        ("before the loop (line 3)", "block pointer [32, 16] to f32", _ONE_SHAPE),
        _WINDOW.format("x", 16),
        _WINDOW.format("x", 32),
    ),
    _loop(
        "a window that becomes a tile",
        ("f32 tile [16, 16]", "make it a block pointer in both places", "another name"),
        _WINDOW.format("x", 16),
        "tl.load(a)",
    ),
    _loop("tuples of two lengths", ("give the tuples one length",), "(1, 2)", "(1, 2, 3)"),
    WrongProgram(
        "window that is added to",
        KernelTypeError,
        ("got block pointer [16, 16] to f32 (tl.advance moves it",),
        in_kernel(f"a = {_WINDOW.format('x', 16)}\na += 16  # here"),
    ),
)
