"""How a figure is taken: contenders interleaved, device time by events, host time by the clock."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable

import torch

from benchmarks.rounds import HOST_ROUNDS, ROUNDS, Timing

Contender = Callable[[], object]
Loop = Callable[[int], object]
"""A contender that is called so many times at a stroke."""

# Calls between two waits for the device: few enough that the driver's launch queue, of some
# thousand launches, never fills and blocks the host.
_BURST = 500
_WARM_UP_BURSTS = 10  # the processor's clock has to rise first


def device_ms(contenders: dict[str, Contender], *, target_ms: float = 10.0) -> Timing:
    """Time device work in milliseconds a call.

    Each round spends about `target_ms` on each contender.
    """
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


def host_us(
    contenders: dict[str, Contender], *, loops: dict[str, Loop] | None = None, bursts: int = 20
) -> Timing:
    """Time what a call costs the host in microseconds; waiting for the device is not in it.

    A burst is the mean of many calls, and a round has the fastest of its bursts, as `timeit` does:
    what disturbs the host only adds. The contenders take turns burst by burst, each time in another
    order, so that a disturbance or a change of the clock meets them all. The rounds take some
    ten seconds: what the driver takes for one and the same call drifts by a tenth in between.
    """
    called = {name: _loop(call) for name, call in contenders.items()} | (loops or {})
    for _ in range(_WARM_UP_BURSTS):
        for loop in called.values():
            _burst_s(loop)
    names = list(called)
    rounds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(HOST_ROUNDS):
        fastest = dict.fromkeys(names, math.inf)
        for turn in range(bursts):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                fastest[name] = min(fastest[name], _burst_s(called[name]))
        for name, taken in fastest.items():
            rounds[name].append(taken / _BURST * 1e6)
    return Timing(rounds)


def memory_taken(call: Contender) -> int:
    """Return by how many bytes a call lowers the device's free memory, workspaces included.

    The call was made before, so its code is loaded; what it allocated and gave back is counted,
    because the allocators keep it.
    """
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    before = int(torch.cuda.mem_get_info()[0])
    call()
    torch.cuda.synchronize()
    return max(0, before - int(torch.cuda.mem_get_info()[0]))


def _loop(call: Contender) -> Loop:
    def loop(count: int) -> None:
        for _ in range(count):
            call()

    return loop


def _burst_s(loop: Loop) -> float:
    gc.disable()  # as timeit does: a collection is the program's cost, not the launch's
    start = time.perf_counter()
    loop(_BURST)
    taken = time.perf_counter() - start
    gc.enable()
    torch.cuda.synchronize()
    return taken


def _elapsed_ms(call: Contender, repeats: int) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / repeats
