"""Which keys a query of attention may see: so many before and behind its own place."""

from __future__ import annotations

from tilewright.abi.signature import INT31_MAX
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import as_integer

# More than any block has, so that every row of one sees the whole of what is not limited.
_MARGIN = 1024


@dataclass(frozen=True, slots=True)
class Window:
    """Query i sees key j if `-left <= j - i - (keys - queries) <= right`.

    A side without a limit reaches `_MARGIN` beyond all keys, or all queries.
    """

    left: int
    right: int
    is_left_limited: bool
    is_right_limited: bool

    @property
    def sides(self) -> tuple[int, int]:
        """Return what kernels take."""
        return self.left, self.right

    @property
    def sees_ever_more(self) -> bool:
        """Return whether later queries see more keys than earlier ones do."""
        return self.is_right_limited and not self.is_left_limited

    @property
    def words(self) -> list[str]:
        """Return what tuned configurations call it."""
        if self.is_left_limited:
            return ["window"]
        return ["causal"] * self.is_right_limited


def window_of(
    window: tuple[int | None, int | None], *, causal: bool, queries: int, keys: int
) -> Window:
    """Return the window over so many queries and keys; `causal` hides what is behind as well."""
    left, right = window[0], 0 if causal else window[1]
    # What reaches as far as there are keys, or queries, limits nothing.
    if left is not None and left >= keys:
        left = None
    if right is not None and right >= queries:
        right = None
    return Window(
        keys + _MARGIN if left is None else left,
        queries + _MARGIN if right is None else right,
        is_left_limited=left is not None,
        is_right_limited=right is not None,
    )


def as_window(window: object) -> tuple[int | None, int | None]:
    """Return how far a query sees before and behind itself; None is without a limit.

    Raises ArgumentError for what is no pair, ArgumentValueError for a negative number.
    """
    if window is None:
        return None, None
    if not isinstance(window, tuple | list) or len(window) != 2:
        msg = f"window is {window!r}; a pair is needed, of the keys seen before and behind a query"
        raise ArgumentError(msg)
    left, right = (
        None if side is None else as_integer(side, name="a side of window") for side in window
    )
    if (left or 0) < 0 or (right or 0) < 0:
        msg = f"window is {window!r}; its sides are at least 0, or None for no limit"
        raise ArgumentValueError(msg)
    return left, right


def check_lengths(queries: int, keys: int) -> None:
    """Raise ArgumentError for more queries and keys than places of 31 bits allow."""
    if queries + keys > INT31_MAX - 2 * _MARGIN:
        msg = (
            f"{queries} queries and {keys} keys are too many: attention counts both together in 31 "
            "bits; split the queries, or add up parts of the keys by their lse"
        )
        raise ArgumentError(msg)
