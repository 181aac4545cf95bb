"""Which instruction executes a dot, and how its warps share it, in kernels nobody planned for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers import dot_kernels
from helpers.golden import Golden
from helpers.kernel_source import lower_text
from tilewright.abi.signature import ConstexprValue
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize
from tilewright_compiler.passes.legalize_dot import legalize_dot

BF16 = "*bf16"


def dots(module: Module) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name == "dot"]


def warps_of(module: Module, num_warps: int) -> list[tuple[int, int]]:
    """Return the warps of each dot in program order, for that many warps."""
    signature = replace(module.signature, num_warps=num_warps)
    legal = legalize_dot(Module(module.functions, signature))
    verify(legal)
    return [dot.attributes["warps"] for dot in dots(legal)]


def lower(directory: Path, text: str, **parameters: ConstexprValue) -> Module:
    return optimize(lower_text(directory, text, specialization="fast", **parameters))


def one_dot(a: str, b: str, acc: str, shape: tuple[int, int, int], precision: str = "ieee") -> str:
    m, n, k = shape
    return f"""signature (x:*f32) general num_warps=4 num_stages=3
kernel @k(%x: ptr<f32>) {{
  %sa = constant {{value = {"1.0" if "f" in a else "1"}}} : {a}
  %sb = constant {{value = {"1.0" if "f" in b else "1"}}} : {b}
  %sc = constant {{value = {"0.0" if "f" in acc else "0"}}} : {acc}
  %a = splat %sa : tile<{m}x{k}x{a}>
  %b = splat %sb : tile<{k}x{n}x{b}>
  %c = splat %sc : tile<{m}x{n}x{acc}>
  %d = dot %a, %b, %c {{precision = "{precision}"}} : tile<{m}x{n}x{acc}>
  return
}}
"""


@pytest.mark.parametrize(
    ("a", "b", "acc", "precision", "atom"),
    [
        ("f16", "f16", "f32", "ieee", "mma.m16n8k16"),
        ("bf16", "bf16", "f32", "ieee", "mma.m16n8k16"),
        ("f32", "f32", "f32", "ieee", "fma"),
        ("f32", "f32", "f32", "tf32", "mma.m16n8k8"),
        ("f32", "f32", "f32", "tf32x3", "mma.m16n8k8"),
        ("f64", "f64", "f64", "ieee", "mma.m8n8k4"),
        ("i8", "i8", "i32", "ieee", "mma.m16n8k32"),
        ("u8", "i8", "i32", "ieee", "mma.m16n8k32"),
        ("f8e4m3", "f8e4m3", "f32", "ieee", "mma.m16n8k16"),
        ("f8e5m2", "f8e4m3", "f32", "ieee", "mma.m16n8k16"),
    ],
)
def test_dtypes_and_precision_choose_the_atom(
    a: str, b: str, acc: str, precision: str, atom: str
) -> None:
    module = parse_module(one_dot(a, b, acc, (64, 64, 32), precision))
    verify(module)
    legal = legalize_dot(module)
    verify(legal)
    (dot,) = dots(legal)
    assert dot.attributes == {"precision": precision, "atom": atom, "warps": (2, 2)}
    operands = [str(operand.type) for operand in dot.operands[:2]]
    is_narrow = a.startswith("f8")
    assert operands == [
        f"tile<64x32x{'f16' if is_narrow else a}>",
        f"tile<32x64x{'f16' if is_narrow else b}>",
    ]


def test_dots_of_one_block_share_the_cast_of_an_8_bit_operand() -> None:
    text = one_dot("f8e4m3", "f8e4m3", "f32", (64, 64, 32))
    again = '  %e = dot %a, %b, %d {precision = "ieee"} : tile<64x64xf32>\n'
    legal = legalize_dot(parse_module(text.replace("  return", again + "  return")))
    assert len(dots(legal)) == 2
    assert [o.name for o in legal.kernel.body.operations].count("cast") == 2


@pytest.mark.parametrize(
    ("a", "acc", "precision", "shape"),
    [
        ("bf16", "f32", "ieee", (8, 64, 64)),
        ("bf16", "f32", "ieee", (64, 4, 64)),
        ("bf16", "f32", "ieee", (64, 64, 8)),
        ("i8", "i32", "ieee", (64, 64, 16)),
        ("f64", "f64", "ieee", (4, 8, 4)),
        ("f32", "f32", "tf32", (16, 8, 4)),
    ],
    ids=str,
)
def test_a_dot_smaller_than_the_atom_multiplies_and_adds(
    a: str, acc: str, precision: str, shape: tuple[int, int, int]
) -> None:
    (dot,) = dots(legalize_dot(parse_module(one_dot(a, a, acc, shape, precision))))
    assert dot.attributes["atom"] == "fma"
    # Whatever its size, tf32 rounds what it multiplies.
    assert dot.attributes["precision"] == precision


@pytest.mark.parametrize(
    ("shape", "num_warps", "warps"),
    [
        ((128, 128, 32), 4, (2, 2)),
        ((128, 256, 32), 8, (2, 4)),
        ((256, 128, 32), 8, (4, 2)),
        ((64, 256, 32), 4, (1, 4)),
        ((128, 64, 32), 4, (4, 1)),
        ((16, 128, 32), 4, (1, 4)),
        ((16, 16, 32), 8, (1, 2)),
        ((16, 8, 16), 4, (1, 1)),
    ],
    ids=str,
)
def test_warps_take_near_square_parts_of_at_least_an_atom(
    shape: tuple[int, int, int], num_warps: int, warps: tuple[int, int]
) -> None:
    module = parse_module(one_dot("bf16", "bf16", "f32", shape))
    assert warps_of(module, num_warps) == [warps]


def test_warps_of_attention_go_along_the_queries(tmp_path: Path) -> None:
    sizes = {"BM": 64, "BN": 128, "D": 64}
    pointers = dict.fromkeys(("q", "k", "v", "out"), BF16)
    module = lower(tmp_path, dot_kernels.ATTENTION, **pointers, length="i64", **sizes)
    assert warps_of(module, 4) == [(4, 1), (4, 1)]
    assert warps_of(module, 8) == [(4, 2), (4, 2)]  # what M does not take goes along N


def test_warps_of_a_chain_go_along_its_rows(tmp_path: Path) -> None:
    sizes = {"BM": 64, "BN": 128, "BK": 32, "BP": 128}
    pointers = dict.fromkeys(("x", "y", "z", "out"), BF16)
    module = lower(tmp_path, dot_kernels.CHAIN, **pointers, k="i64", **sizes)
    assert warps_of(module, 4) == [(4, 1), (4, 1)]


def test_accumulators_that_meet_share_their_warps(tmp_path: Path) -> None:
    sizes = {"BM": 64, "BN": 64, "BK": 32}
    pointers = dict.fromkeys(("x", "y", "z", "out"), BF16)
    module = lower(tmp_path, dot_kernels.GATED, **pointers, n="i64", k="i64", **sizes)
    assert warps_of(module, 4) == [(2, 2), (2, 2)]


@pytest.mark.parametrize(
    ("axis", "shape", "warps"), [(1, "64x1", (4, 1)), (0, "1x64", (1, 4))], ids=["rows", "columns"]
)
def test_sums_of_one_dot_scale_another_within_a_warp(
    axis: int, shape: str, warps: tuple[int, int]
) -> None:
    text = one_dot("f16", "f16", "f32", (64, 64, 64))
    scaled = f"""  %s = reduce %d {{axis = {axis}, kind = "sum"}} : tile<64xf32>
  %t = expand_dims %s {{axis = {axis}}} : tile<{shape}xf32>
  %u = broadcast %t : tile<64x64xf32>
  %e = mul %u, %c : tile<64x64xf32>
  %f = dot %b, %a, %e {{precision = "ieee"}} : tile<64x64xf32>
"""
    module = parse_module(text.replace("  return", scaled + "  return"))
    verify(module)
    assert warps_of(module, 4) == [warps, warps]


def test_rules_of_families(golden: Golden) -> None:
    """Four dots: one feeds the next through a loop, one meets it, one has nothing to do with it."""
    module = parse_module(FAMILIES)
    verify(module)
    before = print_module(module)
    legal = legalize_dot(module)
    verify(legal)
    assert print_module(module) == before
    golden(print_module(legal), name="families.after.tile")


FAMILIES = """signature (x:*f16, n:i64) general num_warps=4 num_stages=3
kernel @k(%x: ptr<f16>, %n: i64) {
  %zero = constant {value = 0} : i64
  %one = constant {value = 1} : i64
  %h = constant {value = 1.0} : f16
  %f = constant {value = 0.0} : f32
  %a = splat %h : tile<64x64xf16>
  %c = splat %f : tile<64x64xf32>
  %left = dot %a, %a, %c {precision = "ieee"} : tile<64x64xf32>
  %sum = for %zero, %n, %one, %c : tile<64x64xf32> (%i: i64, %t: tile<64x64xf32>) {
    %p = exp %t : tile<64x64xf32>
    %q = cast %p : tile<64x64xf16>
    %d = dot %q, %a, %t {precision = "ieee"} : tile<64x64xf32>
    yield %d
  }
  %met = mul %sum, %left : tile<64x64xf32>
  %s = reduce %met {axis = 1, kind = "sum"} : tile<64xf32>
  %apart = dot %a, %a, %c {precision = "ieee"} : tile<64x64xf32>
  %turned = transpose %apart {order = (1, 0)} : tile<64x64xf32>
  %u = cast %turned : tile<64x64xf16>
  %last = dot %a, %u, %c {precision = "ieee"} : tile<64x64xf32>
  return
}
"""
