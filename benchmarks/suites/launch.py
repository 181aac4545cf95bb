"""Suite `launch`: what one launch costs the host, ours against torch, Triton and the driver.

The kernels are so small that the device waits for the host. Nothing is prepared outside the clock:
ours classifies its arguments, specializes and finds its plan at every call, as do torch and Triton;
cuda.core and cuda.bindings are given what is fixed beforehand, and `driver`, a loop in C around the
driver's call, is the floor of each row on the machine of the run: what is above it is a contender's
own. Every contender's result is checked before its first timed call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import tilewright
from benchmarks.baselines import cuda_bindings_vecadd, driver_loop, triton_vecadd
from benchmarks.kernels import copy_tiles
from benchmarks.record import Row
from benchmarks.timing import Contender, Loop, host_us
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.signature import Constexpr, declared
from tilewright.runtime import sources
from tilewright.runtime.launch import loaded_kernel
from tilewright.runtime.launcher import native
from tilewright.runtime.memory import DeviceArray
from tilewright.runtime.module import LoadedKernel

# As a file of the user's, not as a module of the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from vecadd import vecadd

N = 4096
GRID = (4,)
MATRIX = 64


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    rows = [_four_arguments(), _torch_arguments(), _two_tensor_maps()]
    versions = {
        "tilewright": tilewright.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "triton": triton_vecadd.VERSION,
    }
    return rows, versions


def _four_arguments() -> Row:
    x, y = np.random.default_rng().standard_normal((2, N)).astype(np.float32)
    first, second, out = map(tilewright.from_numpy, (x, y, _poison((N,))))

    def ours() -> None:
        vecadd[GRID](first, second, out, N, BLOCK=1024)

    ours()
    error = _error(out, x + y)
    additions, loops = _additions()
    timing = host_us({"ours": ours, **additions}, loops=loops)
    return timing.row(
        f"four_arguments/vecadd/{N}/-/eager", unit="us", checked=error == 0, err={"ours": error}
    )


def _torch_arguments() -> Row:
    x, y = torch.randn(2, N, device="cuda")
    out = torch.full_like(x, torch.nan)

    def ours() -> None:
        vecadd[GRID](x, y, out, N, BLOCK=1024)

    ours()
    error = _error(tilewright.as_device_array(out), (x + y).cpu().numpy())
    additions, loops = _additions()
    timing = host_us({"ours": ours, **additions}, loops=loops)
    return timing.row(
        f"torch_arguments/vecadd/{N}/-/eager", unit="us", checked=error == 0, err={"ours": error}
    )


def _two_tensor_maps() -> Row:
    matrix = np.random.default_rng().standard_normal((MATRIX, MATRIX)).astype(np.float32)
    x, out = tilewright.from_numpy(matrix), tilewright.from_numpy(_poison(matrix.shape))
    theirs_x = torch.from_numpy(matrix).cuda()
    theirs_out = torch.full_like(theirs_x, torch.nan)
    copy = _Launched()
    grid = (MATRIX // copy_tiles.TILE, MATRIX // copy_tiles.TILE)

    def ours() -> None:
        copy[grid](x, out, MATRIX, MATRIX)

    ours()
    error = _error(out, matrix)
    loop = driver_loop.looper(
        _copy_function(),
        copy_tiles.ABI.num_threads,
        grid=grid,
        parameters=[
            driver_loop.tensor_map(each, tile=copy_tiles.TILE) for each in (theirs_x, theirs_out)
        ],
    )
    loop(1)
    if not torch.equal(theirs_out, theirs_x):
        msg = "the driver's loop gave a wrong copy: its time would mean nothing"
        raise RuntimeError(msg)
    timing = host_us(
        {"ours": ours, "torch.eager": lambda: theirs_out.copy_(theirs_x)}, loops={"driver": loop}
    )
    return timing.row(
        f"two_tensor_maps/f32/{MATRIX}x{MATRIX}/-/eager",
        unit="us",
        checked=error == 0,
        err={"ours": error},
    )


class _Launched:
    """`copy_tiles` with the launch of a `Kernel`: its `__getitem__`, word for word."""

    __slots__ = ("_over",)

    def __init__(self) -> None:
        self._over = copy_tiles.dispatcher().over

    def __getitem__(self, grid: object) -> Callable[..., None]:
        over = self._over
        return over(grid)


def _additions() -> tuple[dict[str, Contender], dict[str, Loop]]:
    """Return the peers' vector additions and the driver's, each checked."""
    x, y = torch.randn(2, N, device="cuda")
    out = torch.full_like(x, torch.nan)
    loaded, cubin = _compiled()
    threads, entry = loaded.abi.num_threads, loaded.abi.entry
    calls: dict[str, Contender] = {
        "torch.eager": lambda: torch.add(x, y, out=out),
        "triton": triton_vecadd.launcher(x, y, out),
        "cuda.bindings": cuda_bindings_vecadd.launcher(loaded.function, threads, x, y, out),
    }
    try:
        from benchmarks.baselines import cuda_core_vecadd
    except ImportError as error:
        print(f"without cuda.core, which is not installed: {error}")
    else:
        calls["cuda.core"] = cuda_core_vecadd.launcher(cubin, entry, threads, x, y, out)
    loop = driver_loop.looper(
        loaded.function,
        threads,
        grid=(*GRID, 1),
        parameters=[driver_loop.word(value) for value in (*map(_address, (x, y, out)), N)],
    )
    checked: dict[str, Contender] = {**calls, "driver": lambda: loop(1)}
    for name, call in checked.items():
        out.fill_(torch.nan)
        call()
        if not torch.equal(out, x + y):
            msg = f"{name} gave a wrong sum: its time would mean nothing"
            raise RuntimeError(msg)
    return calls, {"driver": loop}


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.data_ptr())


def _copy_function() -> int:
    """Return the driver's handle of a copy of the kernel that the tensor maps are for."""
    _, _, function = native.load(
        torch.cuda.current_device(), copy_tiles.CODE, copy_tiles.ABI.entry, 0
    )
    return function


def _compiled() -> tuple[LoadedKernel, bytes]:
    """Return the code that our launches run, and its bytes."""
    wanted = declared(
        {"x": (float32,), "y": (float32,), "out": (float32,), "n": int64, "BLOCK": Constexpr(1024)},
        rule=vecadd.rule,
        specialization="fast",
        num_warps=4,
        num_stages=3,
    )
    loaded = loaded_kernel(vecadd, wanted, torch.cuda.current_device())
    _, code = sources.fetch_bundled(loaded.decision.source_key, loaded.candidate)
    return loaded, code


def _poison(shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.full(shape, np.nan, np.float32)


def _error(result: DeviceArray, exact: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    """Return the largest error relative to the largest value; a sum of two floats has none."""
    return float(np.abs(result.numpy() - exact).max() / np.abs(exact).max())
