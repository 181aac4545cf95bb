"""Streams and events.

Launches go to the legacy stream unless a `stream=` option or a torch argument says otherwise, so
exchange with other libraries is ordered without a word. An array that belongs to another stream
than the launch's makes the launch wait, and is waited for, by events; the launcher sees to that.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

from tilewright.errors import ArgumentError, DriverError
from tilewright.runtime.launcher import native

__all__ = ["Event", "Stream", "is_capturing", "synchronize"]

Event = native.Event


class Stream:
    """A stream of one device, not ordered with the legacy stream; as a context it is closed.

    Of streams with work to do, those of a lower `priority` number go first; the device knows a few
    of them, 0 being the least urgent on most. A stream that nothing refers to is closed without
    waiting.
    """

    __slots__ = ("__weakref__", "_handle", "_is_closed", "_is_own", "device")

    def __init__(self, device: int = 0, *, priority: int = 0) -> None:
        self.device = device
        self._is_own = True
        self._is_closed = False
        self._handle: int | None = native.stream_create(device, priority)

    @classmethod
    def external(cls, stream: object, *, device: int = 0) -> Stream:
        """Return another library's stream as one of ours; its owner keeps and closes it.

        Takes a handle, an object with `__cuda_stream__()` or a stream of torch's. The other way:
        `torch.cuda.ExternalStream(stream.handle)`.
        """
        made = cls.__new__(cls)
        made.device = device
        made._is_own = False
        made._is_closed = False
        made._handle = native.stream_handle(stream)
        return made

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._handle:#x}"
        return f"<stream {state} of device {self.device}>"

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def handle(self) -> int:
        """The driver's handle; raises DriverError when the stream is closed."""
        if self._is_closed or self._handle is None:
            msg = "this stream was closed"
            raise DriverError(msg, call="cuStreamDestroy")
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (version, handle), the protocol by which libraries pass streams."""
        return 0, self.handle

    def synchronize(self) -> None:
        """Block until all work on the stream is done."""
        native.synchronize(self.device, self.handle)

    def is_done(self) -> bool:
        """Return whether all work on the stream is done, without waiting."""
        return native.stream_is_done(self.device, self.handle)

    def record(self, event: Event | None = None) -> Event:
        """Mark the present end of the stream with an event (default: a new one) and return it."""
        event = Event(self.device) if event is None else event
        event.record(self.handle)
        return event

    def wait(self, other: Stream | Event) -> None:
        """Make work given to this stream from now on wait for an event, or a stream's present end.

        The host does not wait. Streams of two devices may wait for each other.
        """
        if isinstance(other, Event):
            other.hold(self.handle)
        elif isinstance(other, Stream):
            native.stream_order(other.device, other.handle, self.handle)
        else:
            msg = f"a stream waits for a Stream or an Event, not for {other!r}; see Stream.external"
            raise ArgumentError(msg)

    def close(self) -> None:
        """Wait for the work and give the stream no more.

        The driver's stream is destroyed with the last of its arrays, which give their memory back
        in its order: a destroyed one must not even be named to the driver.
        """
        if self._is_closed:
            return
        if self._is_own:
            self.synchronize()
        self._is_closed = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and self._is_own:
            self._handle = None
            # Its cached memory goes to the legacy stream.
            with suppress(DriverError):
                native.stream_destroy(self.device, handle)


def synchronize(device: int = 0, stream: Stream | None = None) -> None:
    """Block until the work on `stream` (default: legacy) is done."""
    native.synchronize(device, stream)


def is_capturing(stream: Stream | int | None) -> bool:
    """Return whether a graph is being captured from `stream`."""
    return native.is_capturing(stream)
