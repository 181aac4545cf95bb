"""The bench that is a GPU: calls are recorded into graphs, so that no time of the host counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.runtime.graph import Graph, capture
from tilewright.runtime.launcher import native
from tilewright.runtime.memory import DeviceArray, from_numpy

_TURNS = 5
# What is timed at once lasts so long, or is so many calls.
_BURST_US = 400.0
_MOST_CALLS = 20
# What takes so much longer than the fastest in the first turn is not timed again.
_BEHIND = 1.3


class DeviceBench:
    """A GPU by its ordinal, with the graphs of the point that is timed."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._graphs: list[Graph] = []

    def place(self, values: npt.NDArray[Any]) -> DeviceArray:
        """Return a copy of values on the device."""
        return from_numpy(values, device=self.device)

    def turned(self, array: DeviceArray) -> DeviceArray:
        """Return a view with the last two axes exchanged."""
        *outer, rows, columns = array.shape
        *strides, row, column = array.strides
        return array.view((*outer, columns, rows), (*strides, column, row))

    def clear(self, array: DeviceArray) -> None:
        """Set an array to zeros."""
        native.fill(array, 0)

    def read(self, array: DeviceArray) -> npt.NDArray[Any]:
        """Return an array's values."""
        return array.numpy()

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        """Record a graph of as many calls as a burst is long; it was called before."""
        once = max(_elapsed_us(call, self.device), 1.0)
        calls = max(1, min(_MOST_CALLS, int(_BURST_US / once)))
        with capture(device=self.device) as graph:
            for _ in range(calls):
                call()
        self._graphs.append(graph)
        return _Burst(graph, calls)

    def measure(self, contenders: Mapping[str, Callable[[], None]]) -> dict[str, list[float]]:
        """Time all in turns, each once before to warm up, and let go of their graphs."""
        times: dict[str, list[float]] = {name: [] for name in contenders}
        try:
            for turn in range(_TURNS):
                for name, burst in contenders.items():
                    fastest = min((t[0] for t in times.values() if t), default=np.inf)
                    if turn and times[name][0] > _BEHIND * fastest:
                        continue
                    if turn == 0:
                        burst()
                    calls = burst.calls if isinstance(burst, _Burst) else 1
                    times[name].append(_elapsed_us(burst, self.device) / calls)
        finally:
            for graph in self._graphs:
                graph.close()
            self._graphs.clear()
        return times


class _Burst:
    """A graph of so many calls."""

    def __init__(self, graph: Graph, calls: int) -> None:
        self.graph = graph
        self.calls = calls

    def __call__(self) -> None:
        self.graph.replay()


def _elapsed_us(call: Callable[[], None], device: int) -> float:
    first, last = native.Event(device), native.Event(device)
    first.record()
    call()
    last.record()
    last.synchronize()
    return first.elapsed_ms(last) * 1e3
