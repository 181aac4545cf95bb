"""Graphs: launches recorded once and run again as a whole, at the price of one launch.

The decision behind it: a graph keeps alive what its launches use. An address in it never comes to
mean other memory, at the price that temporary arrays of a recording live as long as the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.errors import ArgumentError, LaunchError
from tilewright.runtime.launcher import native
from tilewright.runtime.stream import Stream

__all__ = ["Graph", "capture"]


class Graph:
    """What `capture` recorded. `replay()` runs it; `stream` is the one that it was recorded from.

    Between runs, overwrite its arrays with `copy_from`, and read them: addresses and sizes stay
    those of the recording.
    """

    __slots__ = ("_native", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._native = native.Graph(stream.device, stream)

    def __repr__(self) -> str:
        state = f"{self.nodes} nodes" if self.is_ready else "not ready"
        return f"<graph of device {self.device}, {state}>"

    @property
    def device(self) -> int:
        """Ordinal of the device."""
        return self.stream.device

    @property
    def nodes(self) -> int:
        """How many launches, fills and copies it runs."""
        return self._native.nodes

    @property
    def is_ready(self) -> bool:
        """Whether it can be run: its recording has ended well, and it is not closed."""
        return self._native.is_ready

    def replay(self, *, stream: object = None) -> None:
        """Run it in the order of a stream (default: legacy): after its work, before what follows.

        Raises LaunchError while it is recorded, after a recording that failed and after it or its
        stream was closed, and ArgumentError if one of its arrays was freed.
        """
        if self.stream.is_closed:
            msg = "the stream of this graph was closed, and it runs on no other; record it again"
            raise LaunchError(msg)
        self._native.replay(stream)

    def close(self) -> None:
        """Let go of the graph and of the arrays that it keeps."""
        self._native.close()


@contextmanager
def capture(*, device: int = 0, stream: Stream | None = None) -> Iterator[Graph]:
    """Record what this thread launches in the block, without running it, and give the graph.

        with tw.capture() as graph:
            vecadd[grid](x, y, out, n, BLOCK=1024)
        graph.replay()

    Launches and new arrays of the block that name no stream belong to the graph's stream (default:
    a new one), torch's arguments or not. Load the kernels before, by a launch or `preload`: a
    launch that would have to load one raises LaunchError, as do copies to and from the host, and
    waiting.
    After an exception there is no graph. Other threads are not recorded and go on.
    """
    if stream is not None and not isinstance(stream, Stream):
        msg = f"stream of capture is a Stream, got {stream!r}; see Stream.external"
        raise ArgumentError(msg)
    own = Stream(device) if stream is None else stream
    graph = Graph(own)
    graph._native.begin()
    try:
        yield graph
    except BaseException:
        graph._native.end(False)
        raise
    graph._native.end(True)
