"""Choices of a launch that its author leaves open: configurations, and values computed from others.

Nothing is timed when a kernel is launched. `kernel.tune(...)` times the configurations once, on
request, and keeps the fastest for arguments like these in the user's cache; a launch looks there,
and takes the first configuration where nothing is known. What is chosen enters no key but through
the values that the kernel gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from tilewright.abi.signature import NUM_STAGES, NUM_WARPS, ConstexprValue
from tilewright.errors import KernelTypeError
from tilewright.language.triton import CONFIG, refuse_keywords
from tilewright.language.types import constexpr, describe_refused
from tilewright.lazy_dataclass import dataclass

__all__ = ["NO_CHOICES", "Choices", "Config", "Heuristic"]

Heuristic = Callable[[dict[str, Any]], Any]


class Config:
    """One configuration of a kernel: values of parameters, and how a program runs."""

    __slots__ = ("_hash", "kwargs", "num_stages", "num_warps")

    def __init__(
        self,
        kwargs: Mapping[str, ConstexprValue],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        **unknown: object,
    ) -> None:
        """Take values for the parameters named in `kwargs`; `num_ctas` is 1, clusters are not.

        Raises KernelTypeError for a keyword, value or name that it does not take.
        """
        if unknown:
            allowed = "kwargs, num_warps, num_stages and num_ctas=1"
            refuse_keywords("tl.Config", unknown, CONFIG, allowed)
        if num_ctas != 1:
            msg = f"num_ctas of tl.Config is 1, got {num_ctas}: a program is one thread block"
            raise KernelTypeError(msg)
        if not isinstance(kwargs, Mapping):
            msg = f"kwargs of tl.Config is a dict from parameters to values, got {kwargs!r}"
            raise KernelTypeError(msg)
        if type(num_warps) is not int or num_warps not in NUM_WARPS:
            most = NUM_WARPS[-1]
            msg = f"num_warps of tl.Config is a power of two from 1 to {most}, got {num_warps!r}"
            raise KernelTypeError(msg)
        if type(num_stages) is not int or num_stages not in NUM_STAGES:
            most = NUM_STAGES[-1]
            msg = f"num_stages of tl.Config is an integer from 1 to {most}, got {num_stages!r}"
            raise KernelTypeError(msg)
        values = {name: _value(name, value) for name, value in kwargs.items()}
        self.kwargs: Mapping[str, ConstexprValue] = MappingProxyType(values)
        self.num_warps = num_warps
        self.num_stages = num_stages
        # Asked for at every launch that chooses among configurations.
        self._hash = hash((frozenset(self.kwargs.items()), num_warps, num_stages))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return (
            f"Config({dict(self.kwargs)}, num_warps={self.num_warps}, num_stages={self.num_stages})"
        )

    def _fields(self) -> tuple[object, ...]:
        return dict(self.kwargs), self.num_warps, self.num_stages


def _value(name: object, value: ConstexprValue | constexpr) -> ConstexprValue:
    if not isinstance(name, str):
        msg = f"kwargs of tl.Config is a dict from names to values, got the name {name!r}"
        raise KernelTypeError(msg)
    try:
        return constexpr(value).value
    except KernelTypeError:
        msg = f"`{name}` of tl.Config is {describe_refused(value)}"
        raise KernelTypeError(msg) from None


@dataclass(frozen=True, slots=True)
class Choices:
    """What a launch of a kernel fills in: a configuration by `key`, then heuristics in order."""

    configs: tuple[Config, ...] = ()
    key: tuple[str, ...] = ()
    prune: Callable[..., Sequence[Config]] | None = None
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    heuristics: Mapping[str, Heuristic] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return bool(self.configs or self.heuristics)


NO_CHOICES = Choices()
