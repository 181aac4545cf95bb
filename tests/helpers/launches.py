"""A bundle of made-up binaries of the sample kernels, and programs that launch from it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from helpers.bundles import signatures, write_bundle
from helpers.fake_driver import Finished, run_with_fake_driver
from helpers.sample_kernels import add, mixed, strided
from tilewright.abi.dtypes import (
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
    uint64,
)

PRELUDE = """
import sys, types
import numpy as np
import ml_dtypes
from helpers.sample_kernels import add, mixed, strided
from tilewright import errors
from tilewright.abi import dtypes
from tilewright.runtime import launch, memory, stream
from tilewright.runtime.launcher import native

def refused(kind, run):
    try:
        run()
    except kind as error:
        print(type(error).__name__, str(error).splitlines()[0])
    else:
        print("accepted")

def arrays(count=3, dtype=dtypes.float32, size=64, **where):
    return [memory.empty(size, dtype, **where) for _ in range(count)]
"""


class Run(Protocol):
    """Runs a program after PRELUDE with the fake driver; settings go by keyword."""

    def __call__(
        self, program: str, *, has_library_api: bool = True, **environment: str
    ) -> Finished: ...


def write_sample_bundle(folder: Path) -> None:
    """Write a bundle with both specializations of the sample kernels."""
    additions = [
        signature
        for dtype in (float32, float16, bfloat16)
        for n in (int64, int32)
        for block in (64, 128)
        for signature in signatures(add, x=(dtype,), y=(dtype,), out=(dtype,), n=n, BLOCK=block)
    ]
    copies = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    mixtures = signatures(
        mixed,
        out=(float32,),
        a=int8,
        b=float64,
        c=float16,
        d=bfloat16,
        flag=int1,
        big=uint64,
        MODE="sum",
    )
    write_bundle(folder, {add: additions, strided: copies, mixed: mixtures})


def run_sample(
    program: str, folder: Path, *, has_library_api: bool = True, **environment: str
) -> Finished:
    """Run a program after PRELUDE with the fake driver, by default without the compiler."""
    settings = {"TILEWRIGHT_JIT": "off"} | environment
    return run_with_fake_driver(
        PRELUDE + program, folder, has_library_api=has_library_api, **settings
    )
