"""Claims about runs, alignment and repetition: true always, and sharp where it matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.watched_run import watched_run
from strategies import INTEGERS, Program, programs
from tilewright.abi.dtypes import int8, int32, int64, uint8, uint32
from tilewright.abi.signature import Pointer
from tilewright_compiler.analysis.axis_info import AxisInfo, analyze
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.evaluate import integer_limits
from tilewright_compiler.ir.ops.arithmetic import PREDICATES
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import PointerType, element_dtype, element_type
from tilewright_compiler.ir.verifier import verify


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    program=programs(dtypes=INTEGERS, accesses=False, size=24),
    pid=st.sampled_from([0, 1, 5, 2**31 - 2]),
    address=st.sampled_from([0, 4, 48, 2**40 + 8, 2**64 - 16]),
)
def test_every_claim_holds_on_random_programs(program: Program, pid: int, address: int) -> None:
    facts = analyze(program.module)
    arguments = {"n": program.n, "m": program.m}
    for name, parameter in program.module.signature.runtime:
        if isinstance(parameter, Pointer):
            arguments[name] = address & ~15 if parameter.aligned else address
    with np.errstate(all="ignore"):
        watched_run(
            program.module,
            arguments,
            pid,
            lambda value, array: assert_claims(facts[value], value, array),
        )


_NAMES = ("add", "sub", "mul", "div", "rem", "shl", "shr", "and", "or", "xor", "min", "max")


@settings(max_examples=600)
@given(data=st.data())
def test_every_claim_holds_of_a_run_through_two_operations(data: st.DataObject) -> None:
    """Draw what random programs rarely meet: long runs in narrow types, near a wrap, below zero."""
    dtypes = st.sampled_from([int8, int32, uint8, uint32, int64])
    first, last = data.draw(dtypes), data.draw(dtypes)
    extent = data.draw(st.sampled_from([4, 16, 256, 512]))
    start = data.draw(st.sampled_from([0, 1, 2, 4, 8, -4, -16, 120, 128]))
    lines = [
        f"%lane = arange {{start = {start}, end = {start + extent}}} : tile<{extent}xi32>",
        f"%t0 = cast %lane : tile<{extent}x{first}>",
        f"%w0 = cast %t0 : tile<{extent}x{last}>",
    ]
    for step in (1, 2):
        low, high = integer_limits(first)
        near = [1, 2, 4, 8, 16, 12, 3, low, high, high + 1 - 8, -16]
        number = data.draw(st.sampled_from([n for n in near if low <= n <= high]))
        operands = [f"%t{step - 1}", f"%s{step}"]
        if data.draw(st.booleans()):
            operands.reverse()
        shape = f"tile<{extent}x{first}>"
        name = data.draw(st.sampled_from(_NAMES))
        if name in ("div", "rem") and operands[0].startswith("%s"):
            name = "add"  # the run holds a zero, and division by it gives anything
        predicate = data.draw(st.sampled_from(PREDICATES))
        lines += [
            f"%c{step} = constant {{value = {number}}} : {first}",
            f"%s{step} = splat %c{step} : {shape}",
            f"%t{step} = {name} {', '.join(operands)} : {shape}",
            f'%m{step} = cmp {", ".join(operands)} {{predicate = "{predicate}"}} '
            f": tile<{extent}xi1>",
            f"%w{step} = cast %t{step} : tile<{extent}x{last}>",
        ]
    module = parse_module(
        "signature () general num_warps=4 num_stages=3\n"
        "kernel @k() {\n" + "\n".join(lines) + "\nreturn\n}\n"
    )
    verify(module)
    facts = analyze(module)
    with np.errstate(all="ignore"):
        watched_run(module, {}, 0, lambda value, array: assert_claims(facts[value], value, array))


def assert_claims(info: AxisInfo, value: Value, array: Array) -> None:
    """Check each claim by its definition in `axis_info`, on integers of unlimited size."""
    is_pointer = isinstance(element_type(value.type), PointerType)
    unit = element_dtype(value.type).size_bytes if is_pointer else 1
    modulus = 1 << (64 if is_pointer else element_dtype(value.type).bits)
    tile = array if array.ndim else array.reshape(1)
    if info.constant is not None:
        assert (tile == info.constant).all(), (info, tile)
    elements = tile.astype(object)  # Python's integers
    assert len(info.contiguity) == tile.ndim
    for axis in range(tile.ndim):
        lines = np.moveaxis(elements, axis, -1).reshape(-1, tile.shape[axis])
        run, divisor, repeat = (
            claims[axis] for claims in (info.contiguity, info.divisibility, info.constancy)
        )
        for line in lines.tolist():
            numbers = [int(number) for number in line]
            for index, number in enumerate(numbers):
                start = numbers[index - index % run]
                assert (number - start - index % run * unit) % modulus == 0, ("run", info, tile)
                assert start % divisor == 0, ("divisor", info, tile)
                assert number == numbers[index - index % repeat], ("repeat", info, tile)


def facts_of(
    body: str, signature: str = "n:i64:16, m:i64, x:*f32:16, h:*f16"
) -> dict[str, AxisInfo]:
    names = [part.split(":", 1) for part in signature.split(", ")]
    types = {"i64": "i64", "i32": "i32", "*f32": "ptr<f32>", "*f16": "ptr<f16>"}
    arguments = ", ".join(f"%{name}: {types[text.split(':')[0]]}" for name, text in names)
    module = parse_module(
        f"signature ({signature}) general num_warps=4 num_stages=3\n"
        f"kernel @k({arguments}) {{\n{body}\nreturn\n}}\n"
    )
    verify(module)
    facts = analyze(module)
    return {value.name: info for value, info in facts.items() if value.name}


def test_arguments_are_seeded_by_the_signature() -> None:
    facts = facts_of("", "n:i64:16, m:i64, one:i64:u, x:*f32:16, h:*f16")
    assert [facts[name].divisibility for name in ("n", "m", "x", "h")] == [(16,), (1,), (16,), (1,)]
    assert facts["one"].constant == 1


_OFFSETS = """
  %pid = program_id {axis = 0} : i64
  %block = constant {value = 128} : i64
  %start = mul %pid, %block : i64
  %narrow = arange {start = 0, end = 128} : tile<128xi32>
  %lane = cast %narrow : tile<128xi64>
  %starts = splat %start : tile<128xi64>
  %offsets = add %starts, %lane : tile<128xi64>
"""


def test_block_of_a_vector_is_one_aligned_run() -> None:
    facts = facts_of(
        _OFFSETS
        + """
      %xs = splat %x : tile<128xptr<f32>>
      %p = addptr %xs, %offsets : tile<128xptr<f32>>
      %hs = splat %h : tile<128xptr<f16>>
      %q = addptr %hs, %offsets : tile<128xptr<f16>>
    """
    )
    assert (facts["offsets"].contiguity, facts["offsets"].divisibility) == ((128,), (128,))
    assert (facts["p"].contiguity, facts["p"].divisibility) == ((128,), (16,))
    assert (facts["q"].contiguity, facts["q"].divisibility) == ((128,), (1,))


def test_mask_repeats_as_far_as_the_size_is_divisible() -> None:
    facts = facts_of(
        _OFFSETS
        + """
      %ns = splat %n : tile<128xi64>
      %fits = cmp %offsets, %ns {predicate = "lt"} : tile<128xi1>
      %ms = splat %m : tile<128xi64>
      %loose = cmp %offsets, %ms {predicate = "lt"} : tile<128xi1>
    """
    )
    assert facts["fits"].constancy == (16,)
    assert facts["loose"].constancy == (1,)


def test_row_major_tile_runs_along_its_last_axis() -> None:
    facts = facts_of("""
      %row = arange {start = 0, end = 4} : tile<4xi32>
      %rows = expand_dims %row {axis = 1} : tile<4x1xi32>
      %stride = constant {value = 48} : i32
      %strides = splat %stride : tile<4x1xi32>
      %first = mul %rows, %strides : tile<4x1xi32>
      %wide = broadcast %first : tile<4x64xi32>
      %column = arange {start = 0, end = 64} : tile<64xi32>
      %columns = expand_dims %column {axis = 0} : tile<1x64xi32>
      %tall = broadcast %columns : tile<4x64xi32>
      %index = add %wide, %tall : tile<4x64xi32>
      %xs = splat %x : tile<4x64xptr<f32>>
      %p = addptr %xs, %index : tile<4x64xptr<f32>>
    """)
    assert facts["wide"].constancy == (1, 64)
    assert facts["index"].contiguity == (1, 64)
    assert facts["p"].divisibility == (4, 16)
    assert facts["p"].contiguity == (1, 16), "an i32 run could wrap at 48 * row + 2**31"


def test_pointer_that_a_loop_advances_keeps_its_alignment() -> None:
    facts = facts_of(
        """
      %zero = constant {value = 0} : i64
      %step = constant {value = 8} : i64
      %end, %last = for %zero, %m, %step, %x, %h : ptr<f32>, ptr<f16>
          (%i: i64, %p: ptr<f32>, %q: ptr<f16>) {
        %next = addptr %p, %step : ptr<f32>
        %other = addptr %q, %i : ptr<f16>
        yield %next, %other
      }
    """
    )
    assert facts["i"].divisibility == (8,)
    assert facts["p"].divisibility == facts["end"].divisibility == (16,)
    assert facts["last"].divisibility == (1,)


@pytest.mark.parametrize(
    ("body", "contiguity"),
    [
        ("%r = arange {start = 0, end = 16} : tile<16xi32>", 16),
        ("%r = arange {start = 4, end = 20} : tile<16xi32>", 4),
        ("%r = arange {start = 1, end = 17} : tile<16xi32>", 1),
    ],
    ids=["aligned", "partly", "odd"],
)
def test_widening_keeps_only_runs_that_cannot_cross_a_wrap(body: str, contiguity: int) -> None:
    facts = facts_of(f"{body}\n%wide = cast %r : tile<16xi64>")
    assert facts["r"].contiguity == (16,)
    assert facts["wide"].contiguity == (contiguity,)


def test_every_value_has_facts_and_the_module_is_unchanged() -> None:
    module = parse_module(
        "signature (n:i64) general num_warps=4 num_stages=3\n"
        'kernel @k(%n: i64) {\n%a = call %n {callee = "f"} : i64\nreturn\n}\n'
        "func @f(%b: i64) -> i64 {\nreturn %b\n}\n"
    )
    text = print_module(module)
    facts = analyze(module)
    assert {value.name for value in facts} == {"n", "a", "b"}
    assert len(facts) == 3
    assert print_module(module) == text


def test_run_longer_than_half_the_numbers_is_cut_where_it_wraps() -> None:
    facts = facts_of("""
      %lane = arange {start = 0, end = 512} : tile<512xi32>
      %byte = cast %lane : tile<512xi8>
      %wide = cast %byte : tile<512xi64>
    """)
    assert facts["byte"].contiguity == (512,)
    assert facts["wide"].contiguity == (128,)


def test_a_promise_makes_vectors_and_decides_low_bits() -> None:
    module = parse_module("""signature (x:*bf16, n:i64) general num_warps=4 num_stages=3

kernel @k(%x: ptr<bf16>, %n: i64) {
  %moved = addptr %x, %n : ptr<bf16>
  %promised = multiple_of %moved {axis = 0, divisor = 16} : ptr<bf16>
  %base = splat %promised : tile<64xptr<bf16>>
  %lanes = arange {start = 0, end = 64} : tile<64xi32>
  %pointers = addptr %base, %lanes : tile<64xptr<bf16>>
  %address = address %promised : i64
  %three = constant {value = 3} : i64
  %low = and %address, %three : i64
  %unknown = address %moved : i64
  %lost = and %unknown, %three : i64
  return
}
""")
    verify(module)
    facts = {value.name: info for value, info in analyze(module).items()}
    assert facts["pointers"].contiguity == (64,)
    assert facts["pointers"].divisibility == (16,)
    assert facts["low"].constant == 0
    assert facts["lost"].constant is None
