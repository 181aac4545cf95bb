"""Samples of operations over any axes: reductions, scans, sorts, copies; and of random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64, int8, int32, int64
from tilewright.abi.numpy_types import from_numpy
from tilewright.reference import movement as movement_definitions
from tilewright.reference import random as random_definitions
from tilewright.reference import reduction as definitions
from tilewright.reference import scan as scan_definitions
from tilewright.reference import sort as sort_definitions
from tilewright.tensor import movement, random, reduction, scan, sorting
from tilewright_release.samples.sample import Array, Sample, aligned, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_FLOATS = (float32, float16, bfloat16)


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature of these families."""
    yield from _scans()
    yield from _sorts()
    yield from _random_numbers()
    for dtype in _FLOATS:
        for shape, axis in (((5, 480), 1), ((3, 4080), 1), ((2, 40_000), 1), ((80, 640), 0)):
            for pad in (16, 1):
                yield from _reductions(dtype, shape, axis, pad)
        yield from _into_unaligned(dtype)
    for dtype in (int8, float16, float32, float64):
        for pad in (16, 1):
            for width in (64, 1024):
                yield _copy(f"{dtype}-{width}-{pad}", partial(_rows, dtype, width, pad))
            yield _copy(f"{dtype}-crossed-{pad}", partial(_columns, dtype, pad))


def _reductions(dtype: DType, shape: tuple[int, int], axis: int, pad: int) -> Iterator[Sample]:
    # A row that is not padded to a multiple of 16 elements makes the general form.
    x = partial(operand, shape if pad == 16 else (shape[0], shape[1] - 3), dtype, pad=pad)
    place = "x".join(map(str, shape)) + f"-{axis}-{'fast' if pad == 16 else 'general'}"
    for name in ("sum", "mean", "max", "min", "argmax", "argmin", "var", "std"):
        operation: Callable[..., Array] = getattr(reduction, name)
        definition: Callable[..., Array] = getattr(definitions, name)
        arguments = partial(_over_axis, x, axis)
        yield Sample(f"{name}-{dtype}-{place}", "reduction", operation, definition, arguments)


def _scans() -> Iterator[Sample]:
    for dtype in _FLOATS:
        for shape, axis in (((5, 240), 1), ((3, 4080), 1), ((2, 40_000), 1), ((80, 640), 0)):
            for pad in (16, 1):
                x = partial(
                    operand, shape if pad == 16 else (shape[0], shape[1] - 3), dtype, pad=pad
                )
                place = "x".join(map(str, shape)) + f"-{axis}-{'fast' if pad == 16 else 'general'}"
                for name, operation, definition in (
                    ("cumsum", scan.cumsum, scan_definitions.cumsum),
                    ("cumprod", scan.cumprod, scan_definitions.cumprod),
                ):
                    yield Sample(
                        f"{name}-{dtype}-{place}",
                        "scan",
                        operation,
                        definition,
                        partial(_over_axis, x, axis),
                    )


def _sorts() -> Iterator[Sample]:
    for dtype in (*_FLOATS, int32):
        for length in (112, 480, 2000):
            x = partial(operand, (3, length), dtype, pad=16)
            arguments = partial(_over_axis, x, 1)
            yield Sample(
                f"sort-{dtype}-{length}", "sort", sorting.sort, sort_definitions.sort, arguments
            )


def _random_numbers() -> Iterator[Sample]:
    shape = (5, 480)
    for dtype in _FLOATS:
        for name in ("rand", "randn"):
            operation: Callable[..., Array] = getattr(random, name)
            definition: Callable[..., Array] = getattr(random_definitions, name)
            yield Sample(
                f"{name}-{dtype}",
                "random",
                partial(_on_host, operation),
                definition,
                partial(_seeded, (shape,), {"dtype": dtype}),
            )
        for form, columns in (("fast", 480), ("general", 479)):
            x = partial(operand, (5, columns), dtype, seed=3)
            yield Sample(
                f"dropout-{dtype}-{form}",
                "random",
                random.dropout,
                random_definitions.dropout,
                partial(_dropped, x, form),
            )
    for dtype in (int32, int64):
        yield Sample(
            f"randint-{dtype}",
            "random",
            partial(_on_host, random.randint),
            random_definitions.randint,
            partial(_seeded, (-5, 1000), {"shape": shape, "dtype": dtype}),
        )


def _on_host(operation: Callable[..., Any], *arguments: Any, dtype: DType, **named: Any) -> Any:
    """Fill an array on the host, where samples run."""
    shape = named.get("shape") or arguments[0]
    out = aligned(prod(shape), dtype).reshape(shape)
    return operation(*arguments, dtype=dtype, **named, out=out)


def _seeded(positional: tuple[Any, ...], named: dict[str, Any]) -> Arguments:
    return positional, {**named, "seed": 1234567, "offset": 5}


def _dropped(x: Callable[[], Array], form: str) -> Arguments:
    array = x()
    if form == "general":  # from an odd place on
        moved = aligned(array.size + 1, from_numpy(array.dtype))[1:].reshape(array.shape)
        moved[...] = array
        array = moved
    return (array, 0.25), {"seed": 99}


def _into_unaligned(dtype: DType) -> Iterator[Sample]:
    """Yield reductions in parts whose result begins at an odd place."""
    for name in ("sum", "max", "argmax", "var"):
        operation: Callable[..., Array] = getattr(reduction, name)
        definition: Callable[..., Array] = getattr(definitions, name)
        result = int64 if name == "argmax" else dtype
        yield Sample(
            f"{name}-{dtype}-unaligned",
            "reduction",
            operation,
            partial(_without_out, definition),
            partial(_with_out, dtype, result),
        )


def _with_out(dtype: DType, result: DType) -> Arguments:
    return (operand((20_000, 48), dtype), 0), {"out": aligned(49, result)[1:]}


def _without_out(definition: Callable[..., Array], x: Array, axis: int, *, out: Array) -> Array:
    found = definition(x, axis)
    assert found.shape == out.shape
    return found


def _over_axis(x: Callable[[], Array], axis: int) -> Arguments:
    return (x(), axis), {}


def _copy(name: str, array: Callable[[], Array]) -> Sample:
    return Sample(
        f"copy-{name}",
        "movement",
        movement.copy,
        movement_definitions.copy,
        lambda: ((array(),), {}),
    )


def _rows(dtype: DType, width: int, pad: int) -> Array:
    return operand((5, width if pad == 16 else width - 3), dtype, pad=pad)


def _columns(dtype: DType, pad: int) -> Array:
    shape = (80, 48) if pad == 16 else (35, 37)
    return operand(shape, dtype, pad=pad).T
