"""`--shard I/N`: which entries one job of N builds, so that a CI matrix shares the work."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `count`, counted from 1."""

    index: int
    count: int

    @staticmethod
    def parse(text: str) -> Shard:
        """Parse `2/5`; raises ArgumentTypeError, which a command line shows as it is."""
        index, slash, count = text.partition("/")
        if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
            return Shard(int(index), int(count))
        msg = f"{text!r} is no shard; it is I/N with I from 1 to N, such as 2/5"
        raise ArgumentTypeError(msg)

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def folder_name(self) -> str:
        """The name of the folder that holds it."""
        return f"shard-{self.index}-of-{self.count}"


def share_of(shard: Shard, items: Sequence[T]) -> list[T]:
    """Return every N-th item: neighbours, which take about the same time, go to different jobs."""
    return list(items[shard.index - 1 :: shard.count])
