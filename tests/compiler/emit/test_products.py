"""Whole matrix products, executed from their PTX: rings, masks, both orders of both operands.

What the machine code of the steady loop consists of stands here too: it decides the speed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from helpers.dot_module import random_operand
from helpers.emitted import run_scheduled
from helpers.ptx_interpreter import Arrival, Order
from helpers.sass import loop_with
from helpers.tile_operation import Array
from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64, int8, int32, int64
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.abi.signature import (
    Constexpr,
    ConstexprValue,
    KernelSignature,
    Specialization,
    declared,
)
from tilewright.abi.target import Target
from tilewright.kernels.matmul import matmul_plain
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble, disassemble
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.core import Block
from tilewright_compiler.pipeline import schedule_signature
from tilewright_compiler.snapshots import Snapshots

_RESULT = {float64: float64, int8: int32}
_POINTERS = ("a", "b", "c")


def _signature(
    dtype: DType,
    units: tuple[str, str],
    block: tuple[int, int, int],
    *,
    specialization: Specialization = "fast",
    num_stages: int = 3,
) -> KernelSignature:
    (a_unit, b_unit), (block_m, block_n, block_k) = units, block
    constants: dict[str, ConstexprValue] = {
        "A_UNIT": a_unit,
        "B_UNIT": b_unit,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
    }
    declarations: dict[str, DType | tuple[DType] | Constexpr] = {}
    for parameter in matmul_plain.parameters:
        name = parameter.name
        if parameter.is_constexpr:
            declarations[name] = Constexpr(constants[name])
        elif name in _POINTERS:
            declarations[name] = (dtype if name != "c" else _RESULT.get(dtype, float32),)
        else:
            declarations[name] = int64
    return declared(
        declarations,
        rule=matmul_plain.rule,
        specialization=specialization,
        num_warps=4,
        num_stages=num_stages,
    )


def _multiply(
    a: Array,
    b: Array,
    signature: KernelSignature,
    *,
    order: Order = "lockstep",
    arrival: Arrival = "late",
    without: str = "",
) -> Array:
    """Return a @ b by the kernel; operands lie contiguous along their unit axes.

    The operations named `without` are left out of its schedule.
    """
    constants = signature.constexprs
    (m, k), n = a.shape, b.shape[1]
    held_a = np.ascontiguousarray(a.T if constants["A_UNIT"] == "m" else a)
    held_b = np.ascontiguousarray(b.T if constants["B_UNIT"] == "k" else b)
    c = np.zeros((m, n), to_numpy(_RESULT.get(from_numpy(a.dtype), float32)))
    arrays = {"a": held_a, "b": held_b, "c": c}
    a_extent, b_extent = held_a.shape[1], held_b.shape[1]
    values = {"m": m, "n": n, "k": k, "a_extent": a_extent, "b_extent": b_extent}
    values |= {"a_outer": a_extent, "b_outer": b_extent, "c_row": n}
    values |= {"a_inner": 1, "b_inner": 1, "c_column": 1}
    arguments = [arrays.get(name, values.get(name, 0)) for name, _ in signature.runtime]
    module = schedule_signature(matmul_plain, signature, snapshots=Snapshots())
    for block in _blocks(module.kernel.body):
        block.operations[:] = [x for x in block.operations if x.name != without]
    block_m, block_n = (constants[f"BLOCK_{axis}"] for axis in "MN")
    assert isinstance(block_m, int)
    assert isinstance(block_n, int)
    programs = -(-m // block_m) * -(-n // block_n)
    run_scheduled(module, arguments, grid=(programs, 1, 1), order=order, arrival=arrival)
    return c


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for operation in block.operations:
        for region in operation.regions:
            yield from _blocks(region)


def _operands(dtype: DType, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    m, n, k = shape
    rng = np.random.default_rng(0)
    return random_operand(rng, (m, k), dtype), random_operand(rng, (k, n), dtype)


def _assert_close(got: Array, a: Array, b: Array) -> None:
    """Compare with the exact product; rounding is relative to the sum of magnitudes."""
    if got.dtype == np.int32:
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))
        return
    a, b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(got - a @ b) / (np.abs(a) @ np.abs(b))
    assert np.max(error) < (2.0**-21 if got.dtype == np.float32 else 2.0**-48)


_UNITS = [("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")]


@pytest.mark.parametrize("units", _UNITS, ids="".join)
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64, int8], ids=str)
def test_operands_of_either_order(dtype: DType, units: tuple[str, str]) -> None:
    a, b = _operands(dtype, (48, 48, 80))
    signature = _signature(dtype, units, (32, 32, 32))
    _assert_close(_multiply(a, b, signature), a, b)


@pytest.mark.parametrize("units", _UNITS, ids="".join)
def test_odd_sizes_with_nothing_assumed(units: tuple[str, str]) -> None:
    a, b = _operands(bfloat16, (37, 45, 51))
    signature = _signature(bfloat16, units, (32, 32, 16), specialization="general")
    _assert_close(_multiply(a, b, signature), a, b)


@pytest.mark.parametrize("arrival", ["early", "late"])
@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_any_number_of_stages_and_order_of_events(
    num_stages: int, order: Order, arrival: Arrival
) -> None:
    a, b = _operands(float16, (64, 64, 112))
    signature = _signature(float16, ("k", "n"), (64, 64, 16), num_stages=num_stages)
    _assert_close(_multiply(a, b, signature, order=order, arrival=arrival), a, b)


@pytest.mark.parametrize("without", ["barrier", "async_wait"])
def test_what_orders_the_copies_is_needed(without: str) -> None:
    a, b = _operands(float16, (64, 64, 112))
    signature = _signature(float16, ("k", "n"), (64, 64, 16), num_stages=2)
    got = _multiply(a, b, signature, order="ascending", without=without)
    with pytest.raises(AssertionError):
        _assert_close(got, a, b)


def test_a_loop_shorter_than_its_prologue() -> None:
    a, b = _operands(float16, (32, 32, 16))
    signature = _signature(float16, ("k", "k"), (32, 32, 16), num_stages=4)
    _assert_close(_multiply(a, b, signature), a, b)


@pytest.mark.parametrize("target", [Target(8, 0), Target(9, 0, "a"), Target(12, 0, "f")], ids=str)
@pytest.mark.parametrize("units", [("k", "k"), ("k", "n")], ids="".join)
def test_the_steady_loop_is_matrix_instructions(units: tuple[str, str], target: Target) -> None:
    signature = _signature(bfloat16, units, (128, 128, 32), num_stages=4)
    module = schedule_signature(matmul_plain, signature, snapshots=Snapshots())
    cubin = assemble(lower_to_ptx(emit_module(module)), target)
    assert cubin.spill_bytes == 0
    loop = loop_with(disassemble(cubin.data), "HMMA")
    # Four warps of 64 x 64: for each 16 along k, 32 products, 4 reads of each operand.
    assert loop["HMMA"] == 2 * 32
    assert loop["LDSM"] == 2 * 8
    assert loop["LDGSTS"] == 2 * 128 * 32 // 128 // 8
    assert loop["BAR"] == 1
    # The rest: addresses of the copies, masks, counters. ptxas for sm_120 pads with NOP.
    assert loop.total() - loop["NOP"] < 170
