"""The row kernels that we ship: coalesced full vectors, no conversions, little shared memory."""

from __future__ import annotations

import pytest

from tilewright.abi.dtypes import DType, bfloat16, float32, int64
from tilewright.abi.signature import Constexpr, Specialization, declared
from tilewright.kernels import norm, reduce, softmax
from tilewright.language.kernel import Kernel
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.types import TileType, element_dtype
from tilewright_compiler.layout.access import vector_width
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

_POINTERS = ("x", "out", "weight", "bias")


def schedule(
    kernel: Kernel,
    dtype: DType,
    blocks: dict[str, int],
    num_warps: int,
    specialization: Specialization = "fast",
) -> Module:
    parameters: dict[str, DType | tuple[DType] | Constexpr] = {}
    for parameter in kernel.parameters:
        name = parameter.name
        if parameter.is_constexpr:
            parameters[name] = Constexpr(blocks[name])
        elif name in _POINTERS:
            parameters[name] = (dtype,)
        else:
            parameters[name] = float32 if name == "eps" else int64
    signature = declared(
        parameters,
        rule=kernel.rule,
        specialization=specialization,
        num_warps=num_warps,
        num_stages=3,
    )
    return schedule_module(optimize(lower_kernel(kernel, signature)))


def operations(module: Module, *names: str) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name in names]


def tile_layout(operation: Operation) -> LinearLayout:
    type_ = operation.operands[0].type
    assert isinstance(type_, TileType)
    assert type_.layout is not None
    return type_.layout


ROWS = [(1, 1024, 1), (1, 16384, 16), (4, 1024, 4), (8, 128, 1), (64, 16, 4)]


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize(("m", "n", "num_warps"), ROWS)
@pytest.mark.parametrize("kernel", [softmax.softmax, norm.layer_norm], ids=lambda k: k.name)
def test_fast_row_kernels_move_16_bytes_a_lane_and_convert_nothing(
    kernel: Kernel, m: int, n: int, num_warps: int, dtype: DType
) -> None:
    module = schedule(kernel, dtype, {"BLOCK_M": m, "BLOCK_N": n}, num_warps)
    assert not operations(module, "convert_layout")
    for access in operations(module, "load", "store"):
        layout = tile_layout(access)
        vector = 16 // element_dtype(access.operands[0].type).size_bytes
        assert vector_width(layout, layout.rank - 1, limit=vector) == vector


@pytest.mark.parametrize(("m", "n", "num_warps"), ROWS)
def test_only_rows_wider_than_a_warp_reduce_through_shared_memory(
    m: int, n: int, num_warps: int
) -> None:
    module = schedule(softmax.softmax, float32, {"BLOCK_M": m, "BLOCK_N": n}, num_warps)
    across = num_warps > 1 and m < num_warps
    assert module.attributes["shared_bytes"] == (2 * 4 * num_warps if across else 0)


@pytest.mark.parametrize("specialization", ["fast", "general"])
@pytest.mark.parametrize(
    "kernel",
    [softmax.softmax_looped, norm.layer_norm_looped, reduce.sum_rows_looped],
    ids=lambda kernel: kernel.name,
)
def test_looped_rows_keep_one_layout_through_the_loops(
    kernel: Kernel, specialization: Specialization
) -> None:
    module = schedule(kernel, bfloat16, {"BLOCK_N": 4096}, 8, specialization)
    assert not operations(module, "convert_layout")
    layouts = {
        tile_layout(access)
        for access in operations(module, "load", "store")
        if isinstance(access.operands[0].type, TileType)
    }
    assert len(layouts) == 1


def test_general_rows_are_coalesced_without_vectors() -> None:
    blocks = {"BLOCK_M": 1, "BLOCK_N": 1024}
    module = schedule(softmax.softmax, float32, blocks, 4, "general")
    loads = operations(module, "load")
    assert loads
    assert {tile_layout(load).lane for load in loads} == {(1, 2, 4, 8, 16)}
    assert not operations(module, "convert_layout")
