"""What the operations that multiply tiles share: their grid, their options, their precision."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from tilewright.abi.dtypes import DType, float32
from tilewright.abi.target import ComputeCapability
from tilewright.errors import ArgumentError
from tilewright.kernels.matmul import GROUP_M
from tilewright.runtime.device import device as device_of
from tilewright.tensor.arrays import GRID_WIDTH
from tilewright.tensor.configurations import DotConfiguration

_HOPPER = ComputeCapability(9, 0)
_GROUP_M = int(str(GROUP_M.value))


def check_choice(name: str, value: object, choices: Iterable[str | None]) -> None:
    """Raise ArgumentError unless `value` is one of `choices`."""
    if not isinstance(value, str | None) or value not in choices:
        msg = f"{name} is {value!r}; it is one of {', '.join(map(repr, choices))}"
        raise ArgumentError(msg)


def precision_of(dtype: DType, input_precision: str) -> str:
    """Return the precision of a kernel: that asked for of f32, "ieee" of every other dtype."""
    return input_precision if dtype == float32 else "ieee"


def count_tiles(rows: int, columns: int, configuration: DotConfiguration) -> int:
    """Return how many tiles a result has; raises ArgumentError if a grid cannot hold them."""
    tiles_m = -(-rows // configuration.block_m)
    tiles_n = -(-columns // configuration.block_n)
    # The grouped order of programs counts a group of rows of tiles in 32 bits.
    if max(tiles_m, _GROUP_M) * tiles_n > GRID_WIDTH:
        msg = f"{rows} x {columns} results are more tiles than a grid holds; compute them in parts"
        raise ArgumentError(msg)
    return tiles_m * tiles_n


@cache
def copies_blocks(device: int | None) -> bool:
    """Return whether products on a device take the form whose blocks the GPU copies by itself."""
    return device is not None and device_of(device).facts.capability == _HOPPER


@cache
def processors(device: int | None) -> int:
    """Return how many multiprocessors a device has."""
    return device_of(device or 0).multiprocessors


def launch_options(configuration: DotConfiguration) -> dict[str, Any]:
    """Return the constexprs and options of a launch that tiles along M, N and K."""
    return {
        "BLOCK_M": configuration.block_m,
        "BLOCK_N": configuration.block_n,
        "BLOCK_K": configuration.block_k,
        "num_warps": configuration.num_warps,
        "num_stages": configuration.num_stages,
    }
