"""The launches of an operation but for its arrays: planned for a geometry, run for every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

from tilewright.abi.signature import DIVISOR
from tilewright.errors import ArgumentError
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.launch import prepare
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import GRID_HEIGHT, GRID_WIDTH, Array
from tilewright.tensor.configurations import Configuration
from tilewright.tensor.geometry import Arrays, Geometry
from tilewright.tensor.strides import IndexSpace, Shape, Strides, collapsed

_P = ParamSpec("_P")
_R = TypeVar("_R")

_forget: list[Callable[[], None]] = []


def planned(plan: Callable[_P, _R]) -> Callable[_P, _R]:
    """Remember what a function plans: a program launches few geometries many times."""
    remembered = lru_cache(maxsize=4096)(plan)
    _forget.append(remembered.cache_clear)
    return remembered  # type: ignore[return-value]  # functools' stub loses the parameters


def forget_plans() -> None:
    """Plan every operation anew from here on, because what plans follow has changed."""
    for forget in _forget:
        forget()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an index space that a kernel walks: where each operand begins in it, its strides.

    `offsets` count elements from the operand's first.
    """

    offsets: tuple[int, ...]
    space: IndexSpace

    def pointers(self, *numbers: int) -> tuple[Pointer, ...]:
        """Return where the operands of these numbers begin, the first the first walked here."""
        walks = zip(numbers, self.offsets, self.space.strides, strict=True)
        return tuple(
            Pointer(number, offset, self.space.sizes, strides) for number, offset, strides in walks
        )


def pieces(
    shape: Shape, strides: tuple[Strides, ...], *, rank: int, keep_last: bool = False
) -> Iterator[Piece]:
    """Cut an index space into pieces that collapse to `rank` axes; most spaces are one piece.

    With `keep_last` the last axis is one of its own, and may be empty.
    """
    return _pieces(shape, strides, (0,) * len(strides), rank=rank, keep_last=keep_last)


def batch_pieces(shape: Shape, strides: tuple[Strides, ...], *, rank: int) -> Iterator[Piece]:
    """Cut a batch into pieces of `rank` axes, none longer than a grid is high."""
    for piece in pieces(shape, strides, rank=rank):
        space = piece.space
        if max(space.sizes) <= GRID_HEIGHT:
            yield piece
            continue
        for starts in product(*(range(0, size, GRID_HEIGHT) for size in space.sizes)):
            cut = zip(space.sizes, starts, strict=True)
            sizes = tuple(min(GRID_HEIGHT, size - start) for size, start in cut)
            offsets = tuple(
                offset + sum(s * x for s, x in zip(walk, starts, strict=True))
                for offset, walk in zip(piece.offsets, space.strides, strict=True)
            )
            yield Piece(offsets, IndexSpace(sizes, space.strides))


def _pieces(
    shape: Shape,
    strides: tuple[Strides, ...],
    offsets: tuple[int, ...],
    *,
    rank: int,
    keep_last: bool,
) -> Iterator[Piece]:
    space = collapsed(shape, strides, rank=rank, keep_last=keep_last)
    if space is not None:
        if prod(space.sizes[:-1] if keep_last else space.sizes):
            yield Piece(offsets, space)
        return
    inner = tuple(walk[1:] for walk in strides)
    for index in range(shape[0]):
        moved = zip(offsets, strides, strict=True)
        starts = tuple(offset + index * walk[0] for offset, walk in moved)
        yield from _pieces(shape[1:], inner, starts, rank=rank, keep_last=keep_last)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a launch's pointer begins: `offset` elements into an operand, which it walks so."""

    operand: int
    offset: int
    sizes: Shape
    strides: Strides

    def into(self, arrays: Arrays) -> Array:
        """Return the view of the operand that begins there."""
        array = arrays[self.operand]
        assert array is not None  # a plan has no pointer into what is absent
        if not self.offset:
            return array
        if isinstance(array, DeviceArray):
            return array.view(self.sizes, self.strides, offset=self.offset)
        width = array.itemsize
        first = np.lib.stride_tricks.as_strided(array, (2,), (self.offset * width,))[1:]
        return np.lib.stride_tricks.as_strided(
            first, self.sizes, [stride * width for stride in self.strides]
        )


class PlannedLaunch:
    """One launch of a plan: everything but the arrays and the scalars of a call.

    The kernel takes pointers, the `tail`, the scalars of a call and the `flags`, in this order;
    `options` are its constexprs, `num_warps` and `num_stages`. `run(arrays, scalars)` launches
    over the operands, of which it takes a list; scalars that the kernel does not take are ignored.
    """

    __slots__ = ("kernel", "pointers", "run", "start")

    run: Callable[[Arrays, tuple[Any, ...]], None]

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        pointers: tuple[Pointer, ...],
        tail: tuple[Any, ...],
        options: dict[str, Any],
        *,
        flags: tuple[int, ...] = (),
    ) -> None:
        constexprs = dict(options)
        warps = {
            name: constexprs.pop(name) for name in ("num_warps", "num_stages") if name in options
        }
        names = [p.name for p in kernel.parameters if not p.is_constexpr]
        first, last = len(pointers) + len(tail), len(names) - len(flags)
        known = dict(zip(names[len(pointers) : first], tail, strict=True))
        known |= zip(names[last:], flags, strict=True)
        given = {name: -1 - index for index, name in enumerate(names[first:last])}
        # What begins inside an operand is a view of it, and then the launch takes views only.
        is_inside = any(pointer.offset for pointer in pointers)
        places = range(len(pointers)) if is_inside else [pointer.operand for pointer in pointers]
        given |= zip(names, places, strict=False)
        self.kernel = kernel
        self.pointers = pointers
        self.start = prepare(kernel, grid, known | constexprs, given, **warps)
        self.run = self._run_inside if is_inside else self.start

    def _run_inside(self, arrays: Arrays, scalars: tuple[Any, ...]) -> None:
        self.start([pointer.into(arrays) for pointer in self.pointers], scalars)


def check_programs(kernel: Kernel, programs: int) -> None:
    """Raise ArgumentError for a batch that takes more programs than a grid is wide."""
    if programs > GRID_WIDTH:
        msg = f"{kernel.name} needs {programs} programs, a grid has {GRID_WIDTH}; split the batch"
        raise ArgumentError(msg)


def is_aligned(walked: Sequence[Geometry], piece: Piece) -> bool:
    """Return whether the operands that a piece walks begin in it where the fast form needs it."""
    return all(
        array.is_aligned and offset * array.dtype.size_bytes % DIVISOR == 0
        for array, offset in zip(walked, piece.offsets, strict=True)
    )


def tile_options(tiles: Configuration, *, has_rows: bool = True) -> dict[str, int]:
    """Return the constexprs and options of a launch over tiles, or over rows of them."""
    rows = {"BLOCK_M": tiles.block_m} if has_rows else {}
    return rows | {"BLOCK_N": tiles.block_n, "num_warps": tiles.num_warps}


def is_empty(shape: Shape) -> bool:
    """Return whether an index space has no index."""
    return not prod(shape)
