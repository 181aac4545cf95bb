"""Which tensor maps a kernel's entry takes, and what launch arguments make them."""

from __future__ import annotations

import pytest

from helpers.descriptor_kernels import Product
from tilewright.abi.arguments import AbiParameter, TensorMapSpec
from tilewright.abi.dtypes import bfloat16
from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.tensor_maps import (
    LaunchExpressions,
    added_parameters,
    tensor_map_spec,
    tensor_maps,
)
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.layout.panels import panelled
from tilewright_compiler.schedule.hopper import schedule_hopper

_KERNEL = """
signature (a:*bf16:16, b:*i32, m:i64:16s, n:i32:16s, u:u32) fast num_warps=4 num_stages=1

kernel @one(%a: ptr<bf16>, %b: ptr<i32>, %m: i64, %n: i32, %u: u32) {
  %two = constant {value = 2} : i64
  %wide = cast %n : i64
  %more = add %wide, %two : i64
  %twice = mul %more, %m : i64
  %less = sub %twice, %two : i64
  %unsigned = cast %u : i64
  %narrow = cast %m : i32
  %sum = add %n, %n : i32
  %quotient = div %m, %two : i64
  %place = program_id {axis = 0} : i64
  %moved = addptr %a, %m : ptr<bf16>
  return
}
"""


def _scheduled(product: Product) -> Module:
    module = schedule_hopper(product.module())
    assert module is not None
    return module


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m", "m"),
        ("two", "2"),
        ("wide", "n"),
        ("more", "(n + 2)"),
        ("less", "(((n + 2) * m) - 2)"),
        ("unsigned", "u"),
        ("narrow", None),  # may lose bits
        ("sum", None),  # may wrap, which the host does not
        ("quotient", None),
        ("place", None),
    ],
)
def test_expressions_are_those_that_the_host_computes_alike(
    name: str, expected: str | None
) -> None:
    module = parse_module(_KERNEL)
    values = [*module.kernel.body.arguments]
    values += [result for o in module.kernel.body.operations for result in o.results]
    (value,) = (value for value in values if value.name == name)
    assert LaunchExpressions(module).of(value) == expected


def test_the_entry_takes_each_map_once_and_the_extents_that_are_read() -> None:
    module = _scheduled(Product(m=64, n=32, k=64, out="bf16"))
    a, b, c, *grid = added_parameters(module)
    assert a == AbiParameter(
        "tensor_map",
        "map0",
        tensor_map=TensorMapSpec("a", bfloat16, ("m", "k"), ("lda", "1"), (64, 64), 128),
    )
    assert b.tensor_map == TensorMapSpec("b", bfloat16, ("k", "n"), ("ldb", "1"), (64, 32), 64)
    assert c.tensor_map == TensorMapSpec("c", bfloat16, ("m", "n"), ("ldc", "1"), (64, 32), 64)
    assert [(p.kind, p.axis) for p in grid] == [("grid", axis) for axis in range(3)]
    copies = [operation.name for operation in tensor_maps(module)]
    assert copies == ["tma_load", "tma_load", "tma_store"]


def test_copies_of_one_tensor_share_its_map() -> None:
    text = Product(m=64, n=64, k=64, b_unit="k").text()
    text = text.replace("make_descriptor %b, %n, %k, %ldb", "make_descriptor %a, %m, %k, %lda")
    module = schedule_hopper(parse_module(text))
    assert module is not None
    maps = [p for p in added_parameters(module) if p.kind == "tensor_map"]
    assert [p.tensor_map.pointer for p in maps if p.tensor_map] == ["a", "c"]


@pytest.mark.parametrize(
    "made", ["make_descriptor %moved, %m, %m, %m", "make_descriptor %a, %place, %m, %m"]
)
def test_a_descriptor_of_more_than_arguments_has_no_map(made: str) -> None:
    text = _KERNEL.replace("  return", f"  %d = {made} : descriptor<64x64xbf16>\n  return")
    module = parse_module(text)
    descriptor = module.kernel.body.operations[-2].result
    layout = panelled((64, 64), 1, size_bytes=2)
    assert layout is not None
    assert tensor_map_spec(LaunchExpressions(module), descriptor, layout) is None


def test_copies_without_a_map_are_refused() -> None:
    module = _scheduled(Product(m=64, n=32, k=64))
    made = next(o for o in module.kernel.body.walk() if o.name == "make_descriptor")
    made.name = "select"
    with pytest.raises(InternalCompilerError, match="no launch argument describes"):
        tensor_maps(module)
