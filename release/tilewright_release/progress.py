"""Progress of a long command: a bar on a terminal, plain lines elsewhere, such as a log of CI."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

_SECONDS_BETWEEN_LINES = 5.0


class Progress(Protocol):
    """Counts finished pieces of work."""

    def advance(self, label: str) -> None:
        """Count one piece as finished; `label` says which."""


@contextmanager
def show_progress(title: str, *, total: int, stream: TextIO) -> Iterator[Progress]:
    """Show progress of `total` pieces on `stream` while the block runs."""
    if stream.isatty():
        with _bar(title, total=total, stream=stream) as bar:
            yield bar
        return
    yield _Lines(title, total=total, stream=stream)


@contextmanager
def _bar(title: str, *, total: int, stream: TextIO) -> Iterator[Progress]:
    # rich is in the extra `dev`; a log needs none of it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    with RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[label]}"),
        console=Console(file=stream),
    ) as rich:
        task = rich.add_task(title, total=total, label="")

        class _Bar:
            def advance(self, label: str) -> None:
                rich.update(task, advance=1, label=label)

        yield _Bar()


class _Lines:
    """Prints a line now and then, and one at the end."""

    def __init__(self, title: str, *, total: int, stream: TextIO) -> None:
        self._title = title
        self._total = total
        self._stream = stream
        self._done = 0
        self._start = time.monotonic()
        self._next_line = self._start

    def advance(self, label: str) -> None:
        self._done += 1
        now = time.monotonic()
        if now < self._next_line and self._done < self._total:
            return
        self._next_line = now + _SECONDS_BETWEEN_LINES
        elapsed = now - self._start
        self._stream.write(
            f"{self._title}: {self._done}/{self._total}, {elapsed:.0f} s, last {label}\n"
        )
        self._stream.flush()
