"""Tensor descriptors: an array in memory that is read and written by blocks, wherever they lie.

What lies outside the array reads as zero and is not written, so a kernel needs no masks, and
hardware that copies blocks by itself may do so. A descriptor is a value of the kernel like a block
pointer, but has no place of its own: each load and store says where.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tilewright.errors import OutsideKernelError
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

if TYPE_CHECKING:
    from tilewright.abi.dtypes import DType

__all__ = [
    "atomic_add_tensor_descriptor",
    "atomic_and_tensor_descriptor",
    "atomic_max_tensor_descriptor",
    "atomic_min_tensor_descriptor",
    "atomic_or_tensor_descriptor",
    "atomic_xor_tensor_descriptor",
    "load_tensor_descriptor",
    "make_tensor_descriptor",
    "store_tensor_descriptor",
]

_Scalars = tuple[Operand, ...] | list[Operand]
_Numbers = tuple[int | constexpr, ...] | list[int | constexpr]


class TensorDescriptor:
    """An array seen by blocks, made by `make_tensor_descriptor`.

    - `d.load([i, j])`, `d.store([i, j], value)`: `load_tensor_descriptor` and
      `store_tensor_descriptor`;
    - `d.atomic_add([i, j], value)`, and `atomic_max`, `atomic_min`, `atomic_and`, `atomic_or`,
      `atomic_xor`: `atomic_add_tensor_descriptor` and so on;
    - `d.dtype`, `d.block_shape`: known at compile time; `d.shape`, `d.strides`: as given, in i64.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        dtype: DType
        block_shape: tuple[int, ...]
        shape: tuple[Tile, ...]
        strides: tuple[Tile, ...]

        def load(self, offsets: _Scalars) -> Tile: ...  # says the class
        def store(self, offsets: _Scalars, value: Operand) -> None: ...
        def atomic_add(self, offsets: _Scalars, value: Operand) -> None: ...
        def atomic_max(self, offsets: _Scalars, value: Operand) -> None: ...
        def atomic_min(self, offsets: _Scalars, value: Operand) -> None: ...
        def atomic_and(self, offsets: _Scalars, value: Operand) -> None: ...
        def atomic_or(self, offsets: _Scalars, value: Operand) -> None: ...
        def atomic_xor(self, offsets: _Scalars, value: Operand) -> None: ...

    def __new__(cls) -> NoReturn:
        """Raise OutsideKernelError."""
        msg = "a TensorDescriptor exists only inside a kernel; tl.make_tensor_descriptor gives one"
        raise OutsideKernelError(msg)


@operation
def make_tensor_descriptor(
    base: Tile,
    shape: _Scalars,
    strides: _Scalars,
    block_shape: _Numbers,
    padding_option: str | constexpr = "zero",
) -> TensorDescriptor:
    """Return a descriptor of the array at `base`, to be read and written by `block_shape` blocks.

    `shape` and `strides` are one integer an axis, up to five axes, in elements, computed in 64
    bits; the last stride is the number 1. `block_shape` is known at compile time. Reads outside the
    array give 0, the only `padding_option`.

    A GPU that copies blocks by itself does so where base and strides are multiples of 16 bytes and
    the descriptor is made of the kernel's arguments; otherwise, and on others, the same kernel
    computes addresses.
    """
    outside_kernel(make_tensor_descriptor)


@operation
def load_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars) -> Tile:
    """Return the block of `desc` whose first element is at `offsets`, one integer an axis.

    Offsets may be negative. Elements outside the array are 0.
    """
    outside_kernel(load_tensor_descriptor)


@operation
def store_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Write `value`, cast to the element type, as the block of `desc` at `offsets`.

    `value` broadcasts to the block. Elements outside the array are not written.
    """
    outside_kernel(store_tensor_descriptor)


@operation
def atomic_add_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Add `value`, cast to the element type, to the block of `desc` at `offsets`.

    `value` broadcasts to the block. Each element is added by a relaxed atomic operation, as
    `atomic_add` does it, so it has 16, 32 or 64 bits; elements outside the array are left alone.
    Offsets are not negative: the copy engine of a GPU cannot do it there.
    """
    outside_kernel(atomic_add_tensor_descriptor)


@operation
def atomic_max_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Replace elements of the block of `desc` at `offsets` by `value` where that is greater.

    As `atomic_add_tensor_descriptor`; which is greater `atomic_max` says.
    """
    outside_kernel(atomic_max_tensor_descriptor)


@operation
def atomic_min_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Replace elements of the block of `desc` at `offsets` by `value` where that is less.

    As `atomic_add_tensor_descriptor`; which is less `atomic_min` says.
    """
    outside_kernel(atomic_min_tensor_descriptor)


@operation
def atomic_and_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Clear the bits of the block of `desc` at `offsets` that `value` lacks.

    As `atomic_add_tensor_descriptor`; elements are integers.
    """
    outside_kernel(atomic_and_tensor_descriptor)


@operation
def atomic_or_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Set the bits of the block of `desc` at `offsets` that `value` has.

    As `atomic_add_tensor_descriptor`; elements are integers.
    """
    outside_kernel(atomic_or_tensor_descriptor)


@operation
def atomic_xor_tensor_descriptor(desc: TensorDescriptor, offsets: _Scalars, value: Operand) -> None:
    """Turn over the bits of the block of `desc` at `offsets` that `value` has.

    As `atomic_add_tensor_descriptor`; elements are integers.
    """
    outside_kernel(atomic_xor_tensor_descriptor)
