"""Whole kernels over grids, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import ArgumentError, InterpreterError, LaunchError
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.verifier import verify

HINTS = '{cache = "", eviction = ""}'


def module(text: str) -> Module:
    parsed = parse_module(text)
    verify(parsed)
    return parsed


def vecadd(dtype: str) -> Module:
    pointers = f"tile<128xptr<{dtype}>>"
    return module(f"""
        signature (x:*{dtype}, y:*{dtype}, out:*{dtype}, n:i64) general num_warps=4 num_stages=3
        kernel @vecadd(%x: ptr<{dtype}>, %y: ptr<{dtype}>, %out: ptr<{dtype}>, %n: i64) {{
          %pid = program_id {{axis = 0}} : i64
          %block = constant {{value = 128}} : i64
          %start = mul %pid, %block : i64
          %lanes = arange {{start = 0, end = 128}} : tile<128xi32>
          %wide = cast %lanes : tile<128xi64>
          %starts = splat %start : tile<128xi64>
          %offsets = add %starts, %wide : tile<128xi64>
          %limit = splat %n : tile<128xi64>
          %mask = cmp %offsets, %limit {{predicate = "lt"}} : tile<128xi1>
          %xs = splat %x : {pointers}
          %x_at = addptr %xs, %offsets : {pointers}
          %a = load %x_at, %mask {HINTS} : tile<128x{dtype}>
          %ys = splat %y : {pointers}
          %y_at = addptr %ys, %offsets : {pointers}
          %b = load %y_at, %mask {HINTS} : tile<128x{dtype}>
          %sum = add %a, %b : tile<128x{dtype}>
          %outs = splat %out : {pointers}
          %out_at = addptr %outs, %offsets : {pointers}
          store %out_at, %sum, %mask {HINTS}
          return
        }}
    """)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 1000, 40_000])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("u8", np.uint8)],
)
def test_vector_addition(size: int, name: str, dtype: Any) -> None:
    rng = np.random.default_rng(size)
    x, y = (rng.integers(-100, 100, size).astype(dtype) for _ in range(2))
    out = np.full(size + 1, 77, dtype)
    run(
        vecadd(name),
        grid=(-(-size // 128), 1, 1),
        arguments={"x": x, "y": y, "out": out, "n": size},
    )
    assert np.array_equal(out[:size], x + y)
    assert out[size] == 77


def test_an_argument_may_be_updated_in_place() -> None:
    x = np.arange(200, dtype=np.float32)
    run(vecadd("f32"), grid=(2, 1, 1), arguments={"x": x, "y": x, "out": x, "n": 200})
    assert np.array_equal(x, 2 * np.arange(200))


# Each program takes one row in chunks of 64 columns: a running maximum and sum, then the result.
SOFTMAX = f"""
    signature (x:*f32, out:*f32, columns:i64) general num_warps=4 num_stages=3
    kernel @softmax(%x: ptr<f32>, %out: ptr<f32>, %columns: i64) {{
      %pid = program_id {{axis = 0}} : i64
      %zero = constant {{value = 0}} : i64
      %chunk = constant {{value = 64}} : i64
      %none = constant {{value = 0.0}} : f32
      %lowest = constant {{value = -inf}} : f32
      %first = mul %pid, %columns : i64
      %row = addptr %x, %first : ptr<f32>
      %out_row = addptr %out, %first : ptr<f32>
      %max, %sum = for %zero, %columns, %chunk, %lowest, %none : f32, f32
          (%start: i64, %old_max: f32, %old_sum: f32) {{
        %values = call %row, %start, %columns {{callee = "chunk"}} : tile<64xf32>
        %chunk_max = reduce %values {{axis = 0, kind = "max"}} : f32
        %new_max = max %old_max, %chunk_max : f32
        %maxima = splat %new_max : tile<64xf32>
        %shifted = sub %values, %maxima : tile<64xf32>
        %terms = exp %shifted : tile<64xf32>
        %chunk_sum = reduce %terms {{axis = 0, kind = "sum"}} : f32
        %drop = sub %old_max, %new_max : f32
        %scale = exp %drop : f32
        %kept = mul %old_sum, %scale : f32
        %new_sum = add %kept, %chunk_sum : f32
        yield %new_max, %new_sum
      }}
      for %zero, %columns, %chunk (%at: i64) {{
        %again = call %row, %at, %columns {{callee = "chunk"}} : tile<64xf32>
        %top = splat %max : tile<64xf32>
        %below = sub %again, %top : tile<64xf32>
        %numerators = exp %below : tile<64xf32>
        %total = splat %sum : tile<64xf32>
        %result = div %numerators, %total : tile<64xf32>
        %o, %mask = call %at, %columns {{callee = "lanes"}} : tile<64xi64>, tile<64xi1>
        %base = splat %out_row : tile<64xptr<f32>>
        %places = addptr %base, %o : tile<64xptr<f32>>
        store %places, %result, %mask {HINTS}
        yield
      }}
      return
    }}
    func @lanes(%start: i64, %columns: i64) -> tile<64xi64>, tile<64xi1> {{
      %narrow = arange {{start = 0, end = 64}} : tile<64xi32>
      %lanes = cast %narrow : tile<64xi64>
      %starts = splat %start : tile<64xi64>
      %offsets = add %starts, %lanes : tile<64xi64>
      %limit = splat %columns : tile<64xi64>
      %mask = cmp %offsets, %limit {{predicate = "lt"}} : tile<64xi1>
      return %offsets, %mask
    }}
    func @chunk(%row: ptr<f32>, %start: i64, %columns: i64) -> tile<64xf32> {{
      %o, %mask = call %start, %columns {{callee = "lanes"}} : tile<64xi64>, tile<64xi1>
      %base = splat %row : tile<64xptr<f32>>
      %places = addptr %base, %o : tile<64xptr<f32>>
      %lowest = constant {{value = -inf}} : f32
      %other = splat %lowest : tile<64xf32>
      %values = load %places, %mask, %other {HINTS} : tile<64xf32>
      return %values
    }}
"""


@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (7, 65), (5, 300)], ids=str)
def test_softmax_of_rows_in_chunks(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 10
    out = np.full(shape, np.nan, np.float32)
    run(
        module(SOFTMAX),
        grid=(shape[0], 1, 1),
        arguments={"x": x, "out": out, "columns": shape[1]},
    )
    exact = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    # About ten roundings of 2**-24 each, one of them of an exponent of size 60.
    np.testing.assert_allclose(out, exact / exact.sum(-1, keepdims=True), rtol=1e-5)


PROGRAM_IDS = f"""
    signature (out:*i64) general num_warps=4 num_stages=3
    kernel @ids(%out: ptr<i64>) {{
      %x = program_id {{axis = 0}} : i64
      %y = program_id {{axis = 1}} : i64
      %z = program_id {{axis = 2}} : i64
      %width = num_programs {{axis = 0}} : i64
      %height = num_programs {{axis = 1}} : i64
      %plane = mul %z, %height : i64
      %rows = add %plane, %y : i64
      %before = mul %rows, %width : i64
      %place = add %before, %x : i64
      %at = addptr %out, %place : ptr<i64>
      %ten = constant {{value = 10}} : i64
      %a = mul %z, %ten : i64
      %b = add %a, %y : i64
      %c = mul %b, %ten : i64
      %d = add %c, %x : i64
      store %at, %d {HINTS}
      return
    }}
"""


@pytest.mark.parametrize("grid", [(3, 4, 5), (1, 1, 1), (1, 4, 1), (2, 1, 3)], ids=str)
def test_every_program_of_a_grid_runs_once(grid: tuple[int, int, int]) -> None:
    out = np.full(grid[::-1], -1)
    run(module(PROGRAM_IDS), grid=grid, arguments={"out": out})
    z, y, x = np.indices(grid[::-1])
    assert np.array_equal(out, z * 100 + y * 10 + x)


def test_a_grid_may_be_larger_than_a_batch() -> None:
    out = np.full(600_000, -1)
    run(module(PROGRAM_IDS), grid=(600_000, 1, 1), arguments={"out": out})
    assert np.array_equal(out, np.arange(600_000))


def test_an_empty_grid_runs_nothing() -> None:
    out = np.full(1, -1)
    run(module(PROGRAM_IDS), grid=(2, 0, 1), arguments={"out": out})
    assert out[0] == -1


@pytest.mark.parametrize("grid", [(-1, 1, 1), (1, 65_536, 1), (2**31, 1, 1), (1, 1)], ids=str)
def test_grids_that_no_device_takes_are_refused(grid: Any) -> None:
    with pytest.raises(LaunchError, match="it has three extents from 0 to"):
        run(module(PROGRAM_IDS), grid=grid, arguments={"out": np.zeros(1, np.int64)})


SCALARS = f"""
    signature (out:*f32, half:f16, flag:i1, small:u8) general num_warps=4 num_stages=3
    kernel @scalars(%out: ptr<f32>, %half: f16, %flag: i1, %small: u8) {{
      %a = cast %half : f32
      %b = cast %flag : f32
      %c = cast %small : f32
      %d = add %a, %b : f32
      %e = add %d, %c : f32
      store %out, %e {HINTS}
      return
    }}
"""
GOOD: dict[str, Any] = {"out": np.zeros(1, np.float32), "half": 0.1, "flag": True, "small": 200}


def test_scalars_are_rounded_to_their_type() -> None:
    out = np.zeros(1, np.float32)
    run(module(SCALARS), grid=(1, 1, 1), arguments=GOOD | {"out": out})
    assert out[0] == np.float32(np.float16(0.1)) + 201
    numpy_scalars = {"half": np.float16(0.1), "flag": np.True_, "small": np.uint8(200)}
    run(module(SCALARS), grid=(1, 1, 1), arguments=GOOD | numpy_scalars)
    assert GOOD["out"] == out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"small": 256}, "'small' is of u8, 256 does not fit"),
        ({"small": -1}, "'small' is of u8, -1 does not fit"),
        ({"small": 1.0}, "'small' is of u8, got 1.0 of float"),
        ({"flag": 1}, "'flag' is of i1, got 1 of int"),
        ({"half": "x"}, "'half' is of f16, got 'x' of str"),
        ({"out": [1.0]}, "'out' points to f32: pass an array, not list"),
        ({"out": np.zeros(1)}, "'out' points to f32, got an array of float64"),
        ({"more": 1}, "takes the run-time arguments .*'small'.*, got .*'more'"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run(module(SCALARS), grid=(0, 1, 1), arguments=GOOD | wrong)


def test_a_read_only_output_is_an_error() -> None:
    out = np.zeros(1, np.float32)
    out.flags.writeable = False
    with pytest.raises(InterpreterError, match="kernel 'scalars' stores to argument 'out'"):
        run(module(SCALARS), grid=(1, 1, 1), arguments=GOOD | {"out": out})
