"""Loads and stores as PTX: how wide, under which predicate, and who writes."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.ptx_interpreter import PtxFault, Run
from helpers.tile_operation import Array
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module

_BF16 = np.dtype(ml_dtypes.bfloat16)

# Each thread holds `v` consecutive elements of 1024.
_LAYOUTS = {
    1: "#layout<1024; r=128,256,512; l=1,2,4,8,16; w=32,64>",
    4: "#layout<1024; r=1,2,512; l=4,8,16,32,64; w=128,256>",
    8: "#layout<1024; r=1,2,4; l=8,16,32,64,128; w=256,512>",
}


def _copy(
    dtype: str,
    *,
    layout: str,
    aligned: bool = True,
    divisible: bool = False,
    other: bool = False,
    cache: str = "",
    eviction: str = "",
    masked: bool = True,
) -> Module:
    """Return a kernel that copies the first n elements of x to out, a tile of 1024 a program."""
    align, scalar = (":16" if aligned else ""), (":16s" if divisible else "")
    hints = f'{{cache = "{cache}", eviction = "{eviction}"}}'
    mask = ", %m" if masked else ""
    filler = f", %fill {hints}" if other else f" {hints}"
    seven = "true" if dtype == "i1" else "7" if dtype[0] in "iu" else "7.0"
    tile = f"tile<1024x{{}}, {layout}>"
    return parse_module(f"""signature (x:*{dtype}{align}, out:*{dtype}{align}, n:i64{scalar}) \
general num_warps=4 num_stages=3

kernel @copy(%x: ptr<{dtype}>, %out: ptr<{dtype}>, %n: i64) {{
  %pid = program_id {{axis = 0}} : i64
  %block = constant {{value = 1024}} : i64
  %start = mul %pid, %block : i64
  %starts = splat %start : {tile.format("i64")}
  %range = arange {{start = 0, end = 1024}} : {tile.format("i32")}
  %wide = cast %range : {tile.format("i64")}
  %offsets = add %starts, %wide : {tile.format("i64")}
  %ns = splat %n : {tile.format("i64")}
  %m = cmp %offsets, %ns {{predicate = "lt"}} : {tile.format("i1")}
  %seven = constant {{value = {seven}}} : {dtype}
  %fill = splat %seven : {tile.format(dtype)}
  %xs = splat %x : {tile.format(f"ptr<{dtype}>")}
  %xp = addptr %xs, %offsets : {tile.format(f"ptr<{dtype}>")}
  %value = load %xp{mask}{filler} : {tile.format(dtype)}
  %outs = splat %out : {tile.format(f"ptr<{dtype}>")}
  %outp = addptr %outs, %offsets : {tile.format(f"ptr<{dtype}>")}
  store %outp, %value{mask if not other else ""} {hints}
  return
}}
""")


def _ptx(module: Module) -> str:
    return lower_to_ptx(emit_module(module)).text


def _run_copy(module: Module, values: Array, out: Array, size: int) -> Run:
    programs = -(-max(1, len(out)) // 1024)
    return run_scheduled(module, [values, out, size], grid=(programs, 1, 1))


def _arange(size: int, dtype: np.dtype[np.generic]) -> Array:
    return (np.arange(size) % 100 + 1).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "vector", "instruction"),
    [
        ("f32", 4, "v4.b32"),
        ("bf16", 8, "v4.b32"),
        ("f16", 4, "v2.b32"),
        ("f64", 4, "v2.b64"),
        ("i8", 8, "v2.b32"),
        ("i8", 4, "b32"),
        ("f32", 1, "b32"),
        ("bf16", 1, "b16"),
    ],
)
def test_aligned_access_is_as_wide_as_the_layout(dtype: str, vector: int, instruction: str) -> None:
    text = _ptx(_copy(dtype, layout=_LAYOUTS[vector], masked=False))
    assert set(re.findall(r"(?:ld|st)\.global\.(\S+)", text)) == {instruction}


def test_nothing_known_of_the_pointer_means_single_elements() -> None:
    text = _ptx(_copy("f32", layout=_LAYOUTS[4], aligned=False))
    assert set(re.findall(r"(?:ld|st)\.global\.(\S+)", text)) == {"b32"}


def test_uniform_mask_leaves_no_path_by_element() -> None:
    text = _ptx(_copy("bf16", layout=_LAYOUTS[8], divisible=True))
    assert set(re.findall(r"(?:ld|st)\.global\.(\S+)", text)) == {"v4.b32"}
    assert "bra" not in text


@pytest.mark.parametrize("size", [0, 1, 3, 1000, 1023, 1024, 1025, 2049])
@pytest.mark.parametrize("vector", [1, 4, 8])
def test_odd_sizes_touch_nothing_outside(vector: int, size: int) -> None:
    values = _arange(size, _BF16)
    out = np.zeros_like(values)
    module = _copy("bf16", layout=_LAYOUTS[vector])
    run = _run_copy(module, values, out, size)  # an access outside would be a PtxFault
    np.testing.assert_array_equal(out, values)
    assert run.stored_bytes == 2 * size


def test_inside_threads_take_vectors_although_the_size_is_odd() -> None:
    values = _arange(1023, np.dtype(np.float32))
    run = _run_copy(_copy("f32", layout=_LAYOUTS[4]), values, np.zeros_like(values), 1023)
    # Of the 256 vectors only the last holds an element outside; its thread's other one is whole.
    assert run.executed["ld.global.v4.b32"] == 255
    assert run.executed["ld.global.b32"] == 3


@pytest.mark.parametrize("dtype", ["i1", "i8", "i16", "i32", "i64", "f16", "f64", "u8"])
@pytest.mark.parametrize("vector", [1, 4])
def test_every_dtype_is_copied(dtype: str, vector: int) -> None:
    kind = {"i": "int", "u": "uint", "f": "float"}[dtype[0]]
    numpy_dtype = np.dtype(bool if dtype == "i1" else f"{kind}{dtype[1:]}")
    values = _arange(1500, numpy_dtype)
    if dtype == "i1":
        values = np.arange(1500) % 3 == 0
    out = np.zeros_like(values)
    _run_copy(_copy(dtype, layout=_LAYOUTS[vector]), values, out, 1500)
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "i1"])
@pytest.mark.parametrize("vector", [1, 4])
def test_masked_elements_give_other(dtype: str, vector: int) -> None:
    numpy_dtype = {"f32": np.dtype(np.float32), "bf16": _BF16, "i8": np.dtype(np.int8)}.get(
        dtype, np.dtype(bool)
    )
    values = _arange(1024, numpy_dtype)
    out = np.zeros_like(values)
    run_scheduled(_copy(dtype, layout=_LAYOUTS[vector], other=True), [values[:701], out, 701])
    np.testing.assert_array_equal(out[:701], values[:701])
    assert (out[701:] == np.array(7).astype(numpy_dtype)).all()


def test_cache_operators_reach_the_instruction() -> None:
    text = _ptx(_copy("f32", layout=_LAYOUTS[4], cache="cg", masked=False))
    assert "ld.global.cg.v4.b32" in text
    assert "st.global.cg.v4.b32" in text


def test_evict_first_streams() -> None:
    text = _ptx(_copy("f32", layout=_LAYOUTS[4], eviction="evict_first", masked=False))
    assert "ld.global.cs.v4.b32" in text


def test_replicas_store_once() -> None:
    # 64 elements on 128 threads: two bits of the thread index only replicate.
    layout = "#layout<64; r=1; l=2,4,0,8,16; w=32,0>"
    module = parse_module(f"""signature (out:*i32) general num_warps=4 num_stages=3

kernel @fill(%out: ptr<i32>) {{
  %range = arange {{start = 0, end = 64}} : tile<64xi32, {layout}>
  %outs = splat %out : tile<64xptr<i32>, {layout}>
  %outp = addptr %outs, %range : tile<64xptr<i32>, {layout}>
  store %outp, %range {{cache = "", eviction = ""}}
  return
}}
""")
    out = np.zeros(64, np.int32)
    run = run_scheduled(module, [out])
    np.testing.assert_array_equal(out, np.arange(64))
    assert run.stored_bytes == out.nbytes


def test_scalar_is_stored_by_one_thread() -> None:
    module = parse_module("""signature (out:*f32, n:i64) general num_warps=4 num_stages=3

kernel @one(%out: ptr<f32>, %n: i64) {
  %p = addptr %out, %n : ptr<f32>
  %v = cast %n : f32
  store %p, %v {cache = "", eviction = ""}
  return
}
""")
    out = np.zeros(8, np.float32)
    run = run_scheduled(module, [out, 5])
    assert out.tolist() == [0, 0, 0, 0, 0, 5, 0, 0]
    assert run.stored_bytes == 4


def test_unsigned_offset_is_not_sign_extended() -> None:
    module = parse_module("""signature (out:*i8, n:u32) general num_warps=1 num_stages=3

kernel @far(%out: ptr<i8>, %n: u32) {
  %p = addptr %out, %n : ptr<i8>
  %one = constant {value = 1} : i8
  store %p, %one {cache = "", eviction = ""}
  return
}
""")
    with pytest.raises(PtxFault, match=str(2**32 - 2)):
        run_scheduled(module, [np.zeros(8, np.int8), 2**32 - 2])
