"""Wrong programs of tensor descriptors, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram
from tilewright.errors import CompileError, KernelTypeError, KernelValueError


def _wrong(name: str, error: type[CompileError], says: tuple[str, ...], body: str) -> WrongProgram:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    text = f"@tl.kernel\ndef wrong(x, h, n, f, B: tl.constexpr):\n{lines}\n"
    return WrongProgram(name, error, says, text)


_MADE = "d = tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16])\n"

PROGRAMS = (
    _wrong(
        "descriptor of a tile of pointers",
        KernelTypeError,
        ("`base` of tl.make_tensor_descriptor is a pointer", "tile [64] of pointers to f32"),
        "d = tl.make_tensor_descriptor(x + tl.arange(0, B), [n], [1], [16])  # here",
    ),
    _wrong(
        "descriptor with too few sizes",
        KernelTypeError,
        ("`shape` of tl.make_tensor_descriptor has one integer for each of the 2 axes",),
        "d = tl.make_tensor_descriptor(x, [n], [n, 1], [16, 16])  # here",
    ),
    _wrong(
        "descriptor with a last stride of 2",
        KernelValueError,
        ("`strides` of tl.make_tensor_descriptor ends with the number 1", "permute the axes"),
        "d = tl.make_tensor_descriptor(x, [n, n], [n, 2], [16, 16])  # here",
    ),
    _wrong(
        "descriptor with a last stride of run time",
        KernelValueError,
        ("ends with the number 1, got i64 scalar",),
        "d = tl.make_tensor_descriptor(x, [n, n], [1, n], [16, 16])  # here",
    ),
    _wrong(
        "descriptor of six axes",
        KernelValueError,
        ("has 6 axes", "up to 5"),
        "d = tl.make_tensor_descriptor(x, [n] if B == 0 else (n, n, n, n, n, n), "
        "(n, n, n, n, n, 1), (1, 1, 1, 1, 2, 2))  # here",
    ),
    _wrong(
        "descriptor of odd extent",
        KernelValueError,
        ("powers of two", "got 24"),
        "d = tl.make_tensor_descriptor(x, [n], [1], [24])  # here",
    ),
    _wrong(
        "descriptor of run-time extent",
        KernelTypeError,
        ("extent of `block_shape` of tl.make_tensor_descriptor", "i64 scalar"),
        "d = tl.make_tensor_descriptor(x, [n], [1], [n])  # here",
    ),
    _wrong(
        "descriptor with a float size",
        KernelTypeError,
        ("`shape` of tl.make_tensor_descriptor", "f32 scalar"),
        "d = tl.make_tensor_descriptor(x, [f], [1], [16])  # here",
    ),
    _wrong(
        "descriptor padded with NaN",
        KernelValueError,
        ("`padding_option` of tl.make_tensor_descriptor is one of 'zero'",),
        "d = tl.make_tensor_descriptor(x, [n], [1], [16], padding_option='nan')  # here",
    ),
    _wrong(
        "block at a float offset",
        KernelTypeError,
        ("`offsets` of tl.load_tensor_descriptor", "f32 scalar"),
        _MADE + "y = d.load([0, f])  # here",
    ),
    _wrong(
        "block at one offset of two",
        KernelTypeError,
        ("`offsets` of tl.load_tensor_descriptor has one integer for each of the 2 axes",),
        _MADE + "y = d.load([0])  # here",
    ),
    _wrong(
        "block at a tile of offsets",
        KernelTypeError,
        ("`offsets` of tl.store_tensor_descriptor", "tile [64]"),
        _MADE + "d.store([0, tl.arange(0, B)], 1.0)  # here",
    ),
    _wrong(
        "block that does not broadcast",
        KernelTypeError,
        ("`value` of tl.store_tensor_descriptor", "[64]"),
        _MADE + "d.store([0, 0], tl.arange(0, B))  # here",
    ),
    _wrong(
        "block of a pointer",
        KernelTypeError,
        ("`desc` of tl.load_tensor_descriptor is a tensor descriptor, got pointer to f32",),
        "y = tl.load_tensor_descriptor(x, [0])  # here",
    ),
    _wrong(
        "load of a descriptor",
        KernelTypeError,
        ("`pointer` of tl.load", "tensor descriptor [16, 16] of f32"),
        _MADE + "y = tl.load(d)  # here",
    ),
    _wrong(
        "arithmetic on a descriptor",
        KernelTypeError,
        ("tensor descriptor [16, 16] of f32",),
        _MADE + "y = d + 1  # here",
    ),
    _wrong(
        "attribute that a descriptor lacks",
        KernelTypeError,
        ("has no attribute `gather`", "dtype, block_shape, shape, strides, load, store"),
        _MADE + "y = d.gather  # here",
    ),
    _wrong(
        "descriptors of two block shapes at a branch",
        KernelTypeError,
        ("tensor descriptor [16, 16] of f32", "tensor descriptor [32, 16] of f32"),
        _MADE + "if n > 3:  # here\n    d = tl.make_tensor_descriptor(x, [n, n], [n, 1], [32, 16])",
    ),
)
