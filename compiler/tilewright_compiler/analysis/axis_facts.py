"""The claims about one value that `axis_info` makes, and how two of them are joined."""

from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.types import Type, shape_of

# Zero is a multiple of everything; claims stop here so that they stay small numbers.
MAX_DIVISOR = 1 << 30


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """The claims of a value, one number an axis; `constant` is the one integer all elements are."""

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None

    @property
    def divisor(self) -> int:
        """What divides every element: an axis without runs makes its claim about all of them."""
        pairs = zip(self.contiguity, self.divisibility, strict=True)
        return max((divisor for contiguity, divisor in pairs if contiguity == 1), default=1)

    def group_divisor(self, axis: int, group: int, *, unit: int = 1) -> int:
        """Return what divides the elements at multiples of `group` along `axis`.

        `unit` is how far a run advances an element: 1, or for a pointer the element's bytes.
        """
        start = self.divisibility[axis]
        known = start if group >= self.contiguity[axis] else min(start, group * unit)
        return max(known, self.divisor)

    def straight_run(self, axis: int, dtype: DType) -> int:
        """Return the longest group along `axis` that is a run without a wrap.

        A run that starts at a multiple of its length does not cross one, unless it is longer than
        half the numbers that there are.
        """
        return min(self.contiguity[axis], self.divisibility[axis], 1 << (dtype.bits - 1))


def nothing(type_: Type) -> AxisInfo:
    """Return the claims that hold of anything."""
    ones = (1,) * num_axes(type_)
    return AxisInfo(ones, ones, ones)


def scalar(*, divisibility: int) -> AxisInfo:
    """Return the claims of a scalar that is a multiple of `divisibility`."""
    return AxisInfo((1,), (divisibility,), (1,))


def constant(value: int, type_: Type) -> AxisInfo:
    """Return the claims of a value whose elements all are `value`."""
    rank = num_axes(type_)
    return AxisInfo((1,) * rank, (power_divisor(value),) * rank, axis_extents(type_), int(value))


def power_divisor(value: int) -> int:
    """Return the largest power of two that divides `value`, at most MAX_DIVISOR."""
    return min(value & -value, MAX_DIVISOR) if value else MAX_DIVISOR


def join(left: AxisInfo, right: AxisInfo) -> AxisInfo:
    """Return what holds of both."""
    contiguity = tuple(map(min, left.contiguity, right.contiguity))
    return AxisInfo(
        contiguity,
        tuple(
            min(left.group_divisor(axis, group), right.group_divisor(axis, group))
            for axis, group in enumerate(contiguity)
        ),
        tuple(map(min, left.constancy, right.constancy)),
        left.constant if left.constant == right.constant else None,
    )


def induction(lower: AxisInfo, step: AxisInfo) -> AxisInfo:
    """Return the claims of a loop's induction value."""
    return scalar(divisibility=min(lower.divisor, step.divisor))


def num_axes(type_: Type) -> int:
    """Return how many axes claims about a value have; a scalar has one."""
    return len(axis_extents(type_))


def axis_extents(type_: Type) -> tuple[int, ...]:
    """Return the extents of those axes."""
    return shape_of(type_) or (1,)
