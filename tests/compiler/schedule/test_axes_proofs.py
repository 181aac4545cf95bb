"""Kernels along axes compute under their schedules what they say, and are bundled as launched.

By default one signature of each kernel and operation; `--prove-all` proves every one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from helpers.proven_cases import CHECKOUT, Case, not_bundled, prove
from helpers.sides import DTYPES
from tilewright.abi.numpy_types import from_numpy
from tilewright.tensor import (
    addition,
    counting,
    indexing,
    movement,
    random,
    reduction,
    scan,
    sorting,
)
from tilewright_release.signatures import read_signatures
from tilewright_release.stage_cache import StageCache

Array = np.ndarray[Any, np.dtype[Any]]


def operand(shape: tuple[int, ...], dtype: Any, *, skip: int = 0) -> Array:
    """Return small numbers that begin `skip` elements after a multiple of 64 bytes."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    memory = np.zeros((count + skip) * kind.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64 + skip * kind.itemsize
    flat: Array = memory[start : start + count * kind.itemsize].view(kind)
    flat[:] = np.random.default_rng(count).integers(0, 9, count).astype(kind)
    shaped: Array = flat.reshape(shape)
    return shaped


# Shape, axis, and how far from an aligned address: the fast form and the general one.
_TILES = {
    "narrow": ((40, 512), 1, 0),
    "wide": ((1, 9008), 1, 0),
    "split": ((1, 40000), 1, 0),
    "unaligned": ((6, 301), 1, 1),
    "outer": ((60, 64), 0, 0),
    "outer split": ((20000, 64), 0, 0),
    "outer unaligned": ((60, 61), 0, 1),
    "two and two": ((3, 16, 5, 32), (1, 3), 0),
}


def _axes_cases() -> list[Case]:
    cases = []
    reductions = ("sum", "mean", "max", "min", "argmax", "argmin", "var", "std")
    for dtype, kind in DTYPES.items():
        for name in reductions:
            for tile, (shape, axis, skip) in _TILES.items():
                if tile == "two and two" and name.startswith("arg"):
                    continue
                call = partial(getattr(reduction, name), operand(shape, kind, skip=skip), axis)
                default = dtype == "bf16" and tile in ("wide", "outer", "unaligned")
                by_default = default and name in ("sum", "argmax", "var")
                cases.append(Case(f"{name}-{dtype}-{tile}", call, by_default))
            wide = np.dtype(np.int64) if name.startswith("arg") else kind
            x, out = operand((20000, 64), kind), operand((64,), wide, skip=1)
            call = partial(getattr(reduction, name), x, 0, out=out)
            cases.append(Case(f"{name}-{dtype}-split to unaligned", call, False))
        for name in ("cumsum", "cumprod"):
            for tile, (shape, axis, skip) in _TILES.items():
                if isinstance(axis, tuple):
                    continue
                call = partial(getattr(scan, name), operand(shape, kind, skip=skip), axis)
                by_default = dtype == "bf16" and name == "cumsum" and tile in ("wide", "outer")
                cases.append(Case(f"{name}-{dtype}-{tile}", call, by_default))
    return cases


def _moves(kind: Any, skip: int) -> dict[str, Callable[[], object]]:
    x = operand((96, 80), kind, skip=skip)
    return {
        "rows": partial(
            movement.copy, operand((3, 2064), kind, skip=skip), out=operand((3, 2064), kind)
        ),
        "short rows": partial(
            movement.copy,
            operand((3, 50, 48), kind, skip=skip)[..., :32],
            out=operand((3, 50, 32), kind),
        ),
        "transpose": partial(movement.transpose, x),
        "strided": partial(movement.copy, x[:, ::3]),
    }


def _movement_cases() -> list[Case]:
    return [
        Case(f"{name}-{np.dtype(kind)}-{skip}", call, kind == np.float32 and name != "rows")
        for kind in (np.uint8, np.float16, np.float32, np.float64)
        for skip in (0, 1)
        for name, call in _moves(kind, skip).items()
    ]


def _by_index(dtype: str, places: Any) -> dict[str, Callable[[], object]]:
    kind = DTYPES[dtype]
    x, rows = operand((9, 64), kind), operand((700,), places)
    src, wide = operand((700, 64), kind), operand((30, 64), places)
    flat, one = operand((9,), kind), operand((700,), kind)
    return {
        "gather": partial(indexing.gather, x, wide, axis=0),
        "gather unaligned": partial(indexing.gather, x[:, 1:], wide[:, 1:], axis=0),
        "take": partial(indexing.take, x, rows),
        "take unaligned": partial(indexing.take, x[:, 1:50], rows),
        "take elements": partial(indexing.take, flat, rows),
        "scatter_add": partial(addition.scatter_add, flat, rows, one),
        "scatter_add atomic": partial(addition.scatter_add, flat, rows, one, deterministic=False),
        "index_add": partial(addition.index_add, x, rows, src),
        "index_add atomic": partial(addition.index_add, x, rows, src, deterministic=False),
    }


def _other_cases() -> list[Case]:
    cases = []
    for dtype, kind in DTYPES.items():
        is_first = dtype == "bf16"
        for places in (np.int32, np.int64):
            for name, call in _by_index(dtype, places).items():
                by_default = is_first and places == np.int64
                cases.append(Case(f"{name}-{dtype}-{np.dtype(places)}", call, by_default))
        for name, x, src in (
            ("scatter_add", operand((9,), kind), operand((700,), kind, skip=1)),
            ("index_add", operand((9, 64), kind), operand((700, 64), kind, skip=1)),
        ):
            for deterministic in (True, False):
                add = partial(getattr(addition, name), deterministic=deterministic)
                call = partial(add, x, operand((700,), np.int64), src)
                cases.append(Case(f"{name} unaligned-{dtype}-{deterministic}", call, False))
        x, wide = operand((5, 100), kind), operand((2, 1500), kind)
        out = operand((1000,), kind)
        options: dict[str, Any] = {"seed": 1, "dtype": from_numpy(kind), "out": out}
        calls: dict[str, Callable[[], object]] = {
            "sort": partial(sorting.sort, x),
            "sort long": partial(sorting.sort, wide, descending=True),
            "sort unaligned": partial(sorting.sort, wide[:, 1:]),
            "topk": partial(sorting.topk, wide, 10),
            "rand": partial(random.rand, (1000,), **options),
            "randn": partial(random.randn, (1000,), **options),
            "dropout": partial(random.dropout, operand((1000,), kind), 0.5, seed=1, out=out),
            "dropout unaligned": partial(random.dropout, operand((99,), kind, skip=1), 0.5, seed=1),
            "histogram": partial(counting.histogram, wide, 10, range=(0.0, 9.0)),
            "histogram many": partial(counting.histogram, wide, 3000, range=(0.0, 9.0)),
        }
        cases += [Case(f"{name}-{dtype}", call, is_first) for name, call in calls.items()]
    for integer in (np.int32, np.int64):
        x, dtype_ = operand((3000,), integer), from_numpy(np.dtype(integer))
        fill = partial(
            random.randint, 0, 9, shape=(3000,), seed=1, dtype=dtype_, out=operand((3000,), integer)
        )
        count = partial(counting.bincount, x, minlength=10)
        cases += [
            Case(f"randint-{dtype_}", fill, integer == np.int64),
            Case(f"bincount-{dtype_}", count, integer == np.int64),
            Case(f"bincount many-{dtype_}", partial(counting.bincount, x, minlength=2000), False),
        ]
    cases.append(Case("sort-i32", partial(sorting.sort, operand((2, 1500), np.int32)), False))
    return cases


CASES = [*_axes_cases(), *_movement_cases(), *_other_cases()]


def test_schedule_is_proven(case: Case, store: StageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    prove(case.launches(monkeypatch, runs=True), store)


def test_what_the_library_launches_is_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [*not_bundled(CASES, monkeypatch)]


def test_nothing_is_bundled_that_the_library_does_not_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    families = {"reduction", "scan", "movement", "index", "random", "sort"}
    launched = {
        (launch.kernel.qualified_name, str(launch.signature))
        for case in CASES
        for launch in case.launches(monkeypatch)
    }
    unused = [
        f"{entry.kernel.name} {entry.signature}"
        for entry in read_signatures(CHECKOUT)
        if entry.family in families
        and (entry.kernel.qualified_name, str(entry.signature)) not in launched
    ]
    assert not unused
