"""Kernels whose keys are stored under tests/golden/, and a program that prints them.

Between them they use every kind of syntax that a key can hold. Run as a script this prints the keys
as JSON, so that another version of Python can be asked for them; it needs the standard library
alone.
"""

# A default of a constexpr parameter is a plain value, which a type checker cannot know.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import json

import tilewright.language as tl
from tilewright.abi import keys
from tilewright.abi.dtypes import bfloat16, float32, int64
from tilewright.abi.signature import Constexpr, KernelSignature, declared
from tilewright.language import Kernel

WIDTH = tl.constexpr(64)
SCALE: tl.constexpr = 0.1  # the annotated form of a constant
NAME = tl.constexpr("naïve \u2603 \U0001f600")
WIDE = tl.constexpr(2**80)


@tl.kernel
def helper(values, low=-1.5, high=None, *, exact: tl.constexpr = True):
    """Documentation, which enters no key."""
    if exact and high is not None:
        return tl.clamp(values, low, high)
    elif not exact or WIDE in (1, 2):  # noqa: RET505  # elif is under test
        values = -values if exact else +values
    return values * SCALE


@tl.kernel(divisible=("stride", "n"), unit=("step",))
def everything(x, out, n, stride, step, BLOCK: tl.constexpr, MODE: tl.constexpr = "plain"):
    "More documentation."
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # a comment
    mask = (offsets < n) & ~(offsets >= stride << 2) | (offsets != 3) ^ (offsets == 0x4)
    first, (second, third) = 1, (2.5, 1e-30)
    total: tl.constexpr = WIDTH // 2 % 7**2
    count: int = len((first, second, third))
    while count > 0 and total is not None:
        count -= 1
        if count <= 2:
            continue
        break
    else:
        pass
    for index in tl.range(0, n, step, num_stages=2):
        values = tl.load(x + offsets[:, None], mask=mask[:, None], other=float("-inf"))
        pair = [values, helper(values.to(tl.float32), *(first, second))]
        tl.store(out + offsets[None, 0:2:1] - index, pair[-1] / first, mask >> True)
    tl.static_assert(MODE == NAME, "a message")
    return


@tl.kernel
def formatted(N: tl.constexpr):
    tl.static_print(f"{N}: {N!r:>{3}} {{}}", sep="")


KERNELS = (helper, everything, formatted)


def golden_keys() -> dict[str, dict[str, str]]:
    """Return the keys of every kernel here, for a fixed signature and a fixed build."""
    return {kernel.name: _keys(kernel) for kernel in KERNELS}


def _keys(kernel: Kernel) -> dict[str, str]:
    source = keys.source_key(kernel.digest, _signature(kernel))
    return {
        "digest": kernel.digest,
        "source_key": source,
        "build_key": keys.build_key(source, "sm_90a", "toolchain-1.2.3", "fingerprint"),
    }


def _signature(kernel: Kernel) -> KernelSignature:
    kinds = ((bfloat16,), float32, int64)
    values = (1024, "naïve \u2603", float32, True)
    return declared(
        {
            parameter.name: Constexpr(values[index % len(values)])
            if parameter.is_constexpr
            else kinds[index % len(kinds)]
            for index, parameter in enumerate(kernel.parameters)
        },
        rule=kernel.rule,
        specialization="fast",
        num_warps=8,
        num_stages=2,
    )


if __name__ == "__main__":
    print(json.dumps(golden_keys(), indent=2, sort_keys=True))  # noqa: T201
