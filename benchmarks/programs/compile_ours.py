"""A kernel to its cubin for sm_90a without caches: `KERNEL cold` prints the wall clock when it is
there, `KERNEL warm` the milliseconds of a compilation after one with other tiles.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
import compiled

from tilewright.abi.signature import Constexpr, declared, parse_dtype
from tilewright.abi.target import Target
from tilewright_compiler import driver

TYPES = {
    "vecadd": dict.fromkeys(("x", "y", "out"), "*f32") | {"n": "i64"},
    "matmul": dict.fromkeys("abc", "*f16") | dict.fromkeys("mnk", "i64"),
}
BLOCKS = {
    "vecadd": ({"BLOCK": 1024}, {"BLOCK": 512}),
    "matmul": (
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64},
    ),
}
WARPS = {"vecadd": 4, "matmul": 8}


def compile_kernel(name: str, blocks: dict[str, int]) -> None:
    """Compile what a launch with aligned arguments waits for; ends the process without a cubin."""
    kernel = getattr(compiled, name)
    types = {
        parameter: (parse_dtype(text[1:]),) if text.startswith("*") else parse_dtype(text)
        for parameter, text in TYPES[name].items()
    }
    signature = declared(
        types | {block: Constexpr(extent) for block, extent in blocks.items()},
        rule=kernel.rule,
        specialization="fast",
        num_warps=WARPS[name],
        num_stages=3,
    )
    made = driver.compile_kernel(kernel, signature, [Target(9, 0, "a")], texts="first")
    if not all(cubin.data.startswith(b"\x7fELF") for cubin in made.cubins.values()):
        sys.exit("no cubin")


name, mode = sys.argv[1:]
blocks, other_blocks = BLOCKS[name]
if mode == "cold":
    compile_kernel(name, blocks)
    print(time.time())
else:
    compile_kernel(name, other_blocks)
    start = time.perf_counter()
    compile_kernel(name, blocks)
    print((time.perf_counter() - start) * 1e3)
