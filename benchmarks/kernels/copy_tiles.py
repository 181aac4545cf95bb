"""A kernel written by hand in PTX, bound to the launcher as a compiled one would be.

What tensor maps cost a launch is a matter of the launcher: it evaluates their extents, finds the
encoded descriptors and gives them to the driver. So this launch ABI has two of them and nothing
else. Everything after the choice of a binary is what other kernels use: the dispatcher, `load` and
`make_plan`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tilewright.abi.arguments import AbiParameter, LaunchAbi, TensorMapSpec
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.manifest import PTX
from tilewright.abi.signature import KernelSignature, SpecializationRule, declared
from tilewright.errors import LaunchError
from tilewright.runtime.device import device as device_of
from tilewright.runtime.launcher import native
from tilewright.runtime.module import load, make_plan
from tilewright.runtime.resolve import Candidate, Decision

CODE = Path(__file__).with_suffix(".ptx").read_bytes()
TILE = 32
PARAMETERS = ("x", "out", "rows", "columns")


def _tensor_map(pointer: str) -> AbiParameter:
    spec = TensorMapSpec(
        pointer, float32, sizes=("rows", "columns"), strides=("columns", "1"), box=(TILE, TILE)
    )
    return AbiParameter("tensor_map", f"{pointer}_map", tensor_map=spec)


ABI = LaunchAbi(
    entry="copy_tiles",
    parameters=(_tensor_map("x"), _tensor_map("out")),
    num_threads=32,
    # What the copy engine asks of a matrix: its address and the pitch of its rows are multiples of
    # 16 bytes.
    tma_ok="x % 16 == 0 and out % 16 == 0 and columns % 4 == 0",
    writes=("out",),
)


def dispatcher() -> native.Dispatcher:
    """Return `copy_tiles(grid)(x, out, rows, columns)`, for float32 matrices `[rows, columns]`.

    The grid is (columns / 32, rows / 32), rounded up. Needs compute capability 9.0 or later.
    """
    return native.Dispatcher(
        name="copy_tiles",
        names=PARAMETERS,
        constexprs=(False,) * 4,
        defaults=(None,) * 4,
        missing=None,
        divisible=(False,) * 4,
        unit=(False,) * 4,
        resolve=_resolve,
        interpret=_refuse,
    )


def signature(*, is_fast: bool) -> KernelSignature:
    """Return the kernel's signature in one of its specializations, which share their code."""
    return declared(
        {"x": (float32,), "out": (float32,), "rows": int64, "columns": int64},
        rule=SpecializationRule(),
        specialization="fast" if is_fast else "general",
        num_warps=1,
        num_stages=1,
    )


def _resolve(
    device: int,
    described: tuple[tuple[int, int, Any], ...],  # noqa: ARG001  # the dispatcher's protocol
    num_warps: int,  # noqa: ARG001
    num_stages: int,  # noqa: ARG001
    is_fast: int,
    is_capturing: int,  # noqa: ARG001
) -> native.Plan:
    wanted = signature(is_fast=bool(is_fast))
    decision = Decision(
        kernel="copy_tiles",
        signature=str(wanted),
        source_key=hashlib.sha256(CODE).hexdigest(),
        device=device_of(device).facts,
        candidates=(Candidate("ptx", PTX, None, None),),
        trace=(),
    )
    loaded = load(decision, device=device, fetch=lambda _: (ABI, CODE))
    return make_plan(loaded, wanted)


def _refuse(*_: object) -> None:
    msg = "copy_tiles is PTX and runs on a GPU only: pass device arrays"
    raise LaunchError(msg)
