"""How a figure is taken: rounds of interleaved contenders, device time by events, host by clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

ROUNDS = 7
Contender = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Per-round figures of each contender, in rounds that interleave them."""

    rounds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median over rounds."""
        return median(self.rounds[name])

    def spread(self, name: str) -> tuple[float, float]:
        """Return the lowest and highest round."""
        return min(self.rounds[name]), max(self.rounds[name])

    def ratio(self, name: str, *, over: str = "ours") -> float:
        """Return the median of per-round ratios `name / over`: above 1 where `over` is faster."""
        pairs = zip(self.rounds[name], self.rounds[over], strict=True)
        return median(theirs / ours for theirs, ours in pairs)


def device_ms(contenders: dict[str, Contender], *, target_ms: float = 20.0) -> Timing:
    """Time device work in ms a call; a round spends about `target_ms` on each contender."""
    repeats = {}
    for name, call in contenders.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        repeats[name] = max(3, int(target_ms / max(_elapsed_ms(call, 3), 1e-3)))
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            rounds[name].append(_elapsed_ms(call, repeats[name]))
    return Timing(rounds)


def host_us(contenders: dict[str, Contender], *, calls: int = 2000) -> Timing:
    """Time what a call costs the host in microseconds; the queue is drained outside the clock."""
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        for _ in range(200):
            call()
    torch.cuda.synchronize()
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            # Short bursts, so that the driver's launch queue never fills and blocks the host.
            total = 0.0
            for _ in range(calls // 200):
                start = time.perf_counter()
                for _ in range(200):
                    call()
                total += time.perf_counter() - start
                torch.cuda.synchronize()
            rounds[name].append(total / calls * 1e6)
    return Timing(rounds)


def _elapsed_ms(call: Contender, repeats: int) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / repeats
