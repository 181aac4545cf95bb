"""Types of the tile IR: scalars, pointers to global memory, and tiles of either.

The same classes serve the scheduled IR, where every tile also has a layout, and which has three
types of its own: tiles in shared memory, tokens of asynchronous copies, and mbarriers. Types are
values: equal types compare equal and print the same text.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.abi.dtypes import DType
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.swizzle import SharedLayout


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A scalar of `dtype`, the same for the whole program."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True, slots=True)
class PointerType:
    """A pointer to an element of `dtype` in global memory."""

    dtype: DType

    def __str__(self) -> str:
        return f"ptr<{self.dtype.name}>"


ElementType = ScalarType | PointerType


@dataclass(frozen=True, slots=True)
class TileType:
    """A tile of `shape`, extents powers of two. `layout` is None until the schedule assigns one."""

    shape: tuple[int, ...]
    element: ElementType
    layout: LinearLayout | None = None

    def __str__(self) -> str:
        dims = "".join(f"{extent}x" for extent in self.shape)
        layout = "" if self.layout is None else f", {self.layout}"
        return f"tile<{dims}{self.element}{layout}>"

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def with_layout(self, layout: LinearLayout | None) -> TileType:
        """Return the same tile type with that layout."""
        return replace(self, layout=layout)


@dataclass(frozen=True, slots=True)
class SharedType:
    """A tile in shared memory, or with `slots` a ring of that many tiles, one behind the other."""

    shape: tuple[int, ...]
    dtype: DType
    layout: SharedLayout
    slots: int | None = None

    def __str__(self) -> str:
        ring = "" if self.slots is None else f"{self.slots}*"
        dims = "".join(f"{extent}x" for extent in self.shape)
        return f"shared<{ring}{dims}{self.dtype.name}, {self.layout}>"

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile."""
        return prod(self.shape) * self.dtype.size_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the tile, or of the whole ring."""
        return self.tile_bytes * (1 if self.slots is None else self.slots)


@dataclass(frozen=True, slots=True)
class TokenType:
    """A group of asynchronous copies that can be waited for."""

    def __str__(self) -> str:
        return "token"


@dataclass(frozen=True, slots=True)
class MbarrierType:
    """An mbarrier in shared memory, or with `slots` a ring of that many."""

    slots: int | None = None

    def __str__(self) -> str:
        return "mbarrier" if self.slots is None else f"mbarrier<{self.slots}>"


@dataclass(frozen=True, slots=True)
class DescriptorType:
    """A view of a tensor in global memory, which is read and written by blocks of `block`."""

    dtype: DType
    block: tuple[int, ...]

    def __str__(self) -> str:
        dims = "".join(f"{extent}x" for extent in self.block)
        return f"descriptor<{dims}{self.dtype.name}>"

    def is_block(self, shape: tuple[int, ...]) -> bool:
        """Whether a tile of `shape` is a block, or one without leading axes of extent 1."""
        return shape == self.block or (
            0 < len(shape) < len(self.block) and self.padded(shape) == self.block
        )

    def padded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a block, or of a box of it, with the leading axes it may lack."""
        return (*(1,) * (len(self.block) - len(shape)), *shape)


Type = ScalarType | PointerType | TileType | SharedType | TokenType | MbarrierType | DescriptorType


def element_type(type_: Type) -> ElementType:
    """Return the element type of a tile, or the type itself.

    Raises TypeError for tokens and mbarriers, which have none.
    """
    match type_:
        case TileType():
            return type_.element
        case SharedType() | DescriptorType():
            return ScalarType(type_.dtype)
        case TokenType() | MbarrierType():
            msg = f"{type_} has no elements"
            raise TypeError(msg)
        case _:
            return type_


def element_dtype(type_: Type) -> DType:
    """Return the dtype of an element, or of what a pointer points to."""
    return element_type(type_).dtype


def lacks_arithmetic(type_: Type) -> str | None:
    """Return a complaint if operations do not compute on these elements, for verifiers."""
    dtype = element_dtype(type_)
    return None if dtype.has_arithmetic else f"{dtype} has no arithmetic"


def element_bytes(type_: Type) -> int:
    """Return the bytes of an element in registers and shared memory; a pointer takes 8."""
    element = element_type(type_)
    return 8 if isinstance(element, PointerType) else element.dtype.size_bytes


def shape_of(type_: Type) -> tuple[int, ...]:
    """Return the tile's shape; a scalar's is empty."""
    return type_.shape if isinstance(type_, TileType | SharedType) else ()


def like(type_: Type, element: ElementType) -> Type:
    """Return `type_` with another element type: same shape and layout."""
    return replace(type_, element=element) if isinstance(type_, TileType) else element
