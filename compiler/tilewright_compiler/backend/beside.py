"""Work that goes on beside the caller's, in a thread: what waits for other processes loses nothing.

concurrent.futures would do the same and takes 10 ms to be imported, which somebody waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """A call that was started when this was made."""

    def __init__(self, work: Callable[[], Result]) -> None:
        """Start the call."""
        self._work = work
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Wait for the call and return its result; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        (result,) = self._results
        return result

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # whoever asks for the result gets it
            self._error = error
