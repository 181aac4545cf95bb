"""What values a kernel computes with: tiles, compile-time values and element types.

Types of the language for readers and type checkers. A `Tile` exists only while a kernel is compiled
or interpreted; a `constexpr` is also how Python outside a kernel marks a constant that a kernel may
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilewright.abi.signature import CONSTEXPR_TYPES, ConstexprValue
from tilewright.errors import KernelTypeError, OutsideKernelError

__all__ = [
    "Operand",
    "Tile",
    "bfloat16",
    "constexpr",
    "float8e4nv",
    "float8e5",
    "float16",
    "float32",
    "float64",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "tensor",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class _Arithmetic:
    """Python's operators on tiles, scalars and compile-time numbers, for type checkers.

    Shapes broadcast as in NumPy; dtypes promote by `abi.dtypes.promote`, where a Python number
    takes the dtype of the tile that it meets. `/` on integers gives f32; `//` and `%` truncate as
    in C at run time.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        dtype: DType
        type: DType
        shape: tuple[int, ...]

        numel: int

        def to(
            self,
            dtype: DType,
            bitcast: bool = False,
            fp_downcast_rounding: str | None = None,
        ) -> Tile: ...
        @property
        def T(self) -> Tile: ...
        def item(self) -> Tile: ...
        def __getattr__(self, name: str) -> Callable[..., Tile]: ...
        def __getitem__(self, index: object) -> Tile: ...
        def __add__(self, other: Operand) -> Tile: ...
        def __radd__(self, other: Operand) -> Tile: ...
        def __sub__(self, other: Operand) -> Tile: ...
        def __rsub__(self, other: Operand) -> Tile: ...
        def __mul__(self, other: Operand) -> Tile: ...
        def __rmul__(self, other: Operand) -> Tile: ...
        def __truediv__(self, other: Operand) -> Tile: ...
        def __rtruediv__(self, other: Operand) -> Tile: ...
        def __floordiv__(self, other: Operand) -> Tile: ...
        def __rfloordiv__(self, other: Operand) -> Tile: ...
        def __mod__(self, other: Operand) -> Tile: ...
        def __rmod__(self, other: Operand) -> Tile: ...
        def __and__(self, other: Operand) -> Tile: ...
        def __rand__(self, other: Operand) -> Tile: ...
        def __or__(self, other: Operand) -> Tile: ...
        def __ror__(self, other: Operand) -> Tile: ...
        def __xor__(self, other: Operand) -> Tile: ...
        def __rxor__(self, other: Operand) -> Tile: ...
        def __lshift__(self, other: Operand) -> Tile: ...
        def __rlshift__(self, other: Operand) -> Tile: ...
        def __rshift__(self, other: Operand) -> Tile: ...
        def __rrshift__(self, other: Operand) -> Tile: ...
        def __lt__(self, other: Operand) -> Tile: ...
        def __le__(self, other: Operand) -> Tile: ...
        def __gt__(self, other: Operand) -> Tile: ...
        def __ge__(self, other: Operand) -> Tile: ...
        def __eq__(self, other: object) -> Tile: ...  # type: ignore[override]  # elementwise
        def __ne__(self, other: object) -> Tile: ...  # type: ignore[override]  # elementwise
        def __neg__(self) -> Tile: ...
        def __invert__(self) -> Tile: ...
        def __index__(self) -> int: ...


class Tile(_Arithmetic):
    """A value inside a kernel: a tile `[D0, D1, ...]` of numbers or pointers, or a scalar.

    Extents are powers of two. Nothing constructs a tile but the functions of the language;
    instances never exist in plain Python. Besides the operators a tile has:

    - `tile.to(dtype)`: the same values cast to `dtype`. Floats round to nearest even; float to
      integer truncates and saturates, NaN gives 0; a cast to `tl.int1` is `!= 0`. Casts to 8-bit
      floats saturate: what is too large, infinities included, becomes the largest number (448 of
      `tl.float8e4nv`, 57344 of `tl.float8e5`); NaN stays NaN.
    - `tile.to(dtype, fp_downcast_rounding="rtz")`: a float made narrower towards zero.
    - `tile.to(dtype, bitcast=True)`: the same bits as a dtype of equal width.
    - `tile.T`: the last two axes swapped; `tile.sum(0)`, `tile.abs()`: every function of the
      language whose first operand is called `x`.
    - `tile.dtype`, `tile.shape`, `tile.numel`: the element type, the extents and their product,
      known at compile time. The dtype of a pointer is that of what it points to. `tile.type` is
      another spelling of `tile.dtype`.
    - `tile.item()`: the scalar that a tile of one element holds.
    - `tile.sum(axis=0)` and other functions of one tile: `tl.sum(tile, axis=0)`.
    - `tile[:, None]`: a new axis of extent 1 at each `None`; `:` keeps an axis.
    """

    __slots__ = ()

    def __new__(cls) -> NoReturn:
        """Raise OutsideKernelError."""
        msg = (
            "a Tile exists only inside a kernel; tl.arange, tl.zeros, tl.full and tl.load give one"
        )
        raise OutsideKernelError(msg)


class constexpr(_Arithmetic):
    """A value known at compile time.

    As an annotation of a kernel's parameter it makes the launch pass the value to the compiler. As
    a wrapper, `WIDTH = tl.constexpr(64)`, it marks a global that kernels may read: the value enters
    the kernel's key, so it must not change, and a constexpr cannot be reassigned.

    Values are int, float, bool, str, None and dtypes; anything else raises KernelTypeError.
    """

    __slots__ = ("_value",)
    _value: ConstexprValue

    def __init__(self, value: ConstexprValue | constexpr) -> None:
        if isinstance(value, constexpr):
            value = value.value
        # Subclasses (an IntEnum member, numpy.float64) would print and compare in ways of their
        # own.
        if type(value) not in CONSTEXPR_TYPES:
            msg = f"tl.constexpr takes {describe_refused(value)}"
            raise KernelTypeError(msg)
        object.__setattr__(self, "_value", value)

    @property
    def value(self) -> ConstexprValue:
        """The Python value."""
        return self._value

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a constexpr does not change: cannot set {name!r} of {self!r}"
        raise AttributeError(msg)

    def __repr__(self) -> str:
        return f"constexpr({self._value!r})"


def describe_refused(value: object) -> str:
    """Return what a compile-time value may be, what was given instead, and what to write."""
    remedy = "convert it first"
    if isinstance(value, tuple | list):
        remedy = "give each item a parameter or name of its own, and write the tuple in the kernel"
    elif isinstance(value, type):
        remedy = "write the tl dtype, such as tl.float32"
    elif callable(value):
        remedy = "define the kernel inside a function that is given this one, and call it there"
    return (
        f"an int, float, bool, str, None or dtype, got {value!r} of type {type(value).__name__}; "
        f"{remedy}"
    )


tensor = Tile
"""What Triton calls a tile, for annotations; those of kernels say nothing unless `constexpr`."""

Operand = Tile | constexpr | int | float | bool
"""What the functions of the language take where a tile, a scalar or a number is allowed."""
