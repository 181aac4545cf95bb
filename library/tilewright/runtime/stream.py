"""Streams and events.

Launches go to the legacy stream unless a `stream=` option or a torch argument says otherwise, so
exchange with other libraries is ordered without a word. An array that belongs to another stream
than the launch's makes the launch wait, and is waited for, by events; the launcher sees to that.
"""

from __future__ import annotations

from types import TracebackType

from tilewright.errors import DriverError
from tilewright.runtime import driver
from tilewright.runtime._launcher import Event
from tilewright.runtime.launcher import native

__all__ = ["Event", "Stream", "is_capturing", "synchronize"]

_NON_BLOCKING = 1


class Stream:
    """A stream of one device, not ordered with the legacy stream; as a context it is closed."""

    __slots__ = ("_handle", "device")

    def __init__(self, device: int = 0) -> None:
        self.device = device
        with driver.current(device):
            self._handle: int | None = int(driver.call("cuStreamCreate", _NON_BLOCKING))

    @property
    def handle(self) -> int:
        """The driver's handle; raises DriverError when the stream is closed."""
        if self._handle is None:
            msg = "this stream was closed"
            raise DriverError(msg, call="cuStreamDestroy")
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (version, handle), the protocol by which libraries pass streams."""
        return 0, self.handle

    def synchronize(self) -> None:
        """Block until all work on the stream is done."""
        native.synchronize(self.device, self.handle)

    def close(self) -> None:
        """Wait for the work and destroy the stream; its cached memory goes to the legacy one."""
        if self._handle is None:
            return
        self.synchronize()
        native.pool_adopt(self.device, self._handle)
        with driver.current(self.device):
            driver.call("cuStreamDestroy", self._handle)
        self._handle = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def synchronize(device: int = 0, stream: Stream | None = None) -> None:
    """Block until the work on `stream` (default: legacy) is done."""
    native.synchronize(device, stream)


def is_capturing(stream: Stream | int | None) -> bool:
    """Return whether a graph is being captured from `stream`."""
    return native.is_capturing(stream)
