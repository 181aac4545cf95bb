"""Which iterations there are, some ahead: as with integers that have no width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.abi.dtypes import DType, int1, int32, int64, uint32, uint64
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import KernelSignature, Parameter, Pointer, Scalar
from tilewright_compiler.interpret import tile
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.types import PointerType, ScalarType
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.schedule.loop_range import LoopRange, constant

MOST_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range of a dtype, and the number of an iteration that it has, if it has any."""

    dtype: DType
    lower: int
    upper: int
    step: int
    number: int

    @property
    def count(self) -> int:
        return max(0, -((self.lower - self.upper) // self.step))


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    dtype = draw(st.sampled_from([int32, int64, uint32, uint64]))
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    high = low + (1 << dtype.bits) - 1
    ends = st.one_of(
        st.integers(low, high), st.integers(low, low + 40), st.integers(high - 40, high)
    )
    lower, upper = draw(ends), draw(ends)
    steps = st.one_of(st.integers(1, 20), st.integers(1, high), st.integers(high // 4, high))
    found = Bounds(dtype, lower, upper, draw(steps), 0)
    last = max(0, found.count - 1)
    number = draw(st.one_of(st.integers(0, last), st.integers(max(0, last - 5), last)))
    return Bounds(dtype, lower, upper, found.step, number)


def _kernel(dtype: DType, known_step: int | None) -> Module:
    """Return a kernel that stores whether iterations 0 .. begin, and then what follows another."""
    scalar = ScalarType(dtype)
    lower, upper, step, here = (Value(scalar, name) for name in ("lower", "upper", "step", "here"))
    out = Value(PointerType(int1), "out")
    builder = Builder(Block((lower, upper, step, here, out)))
    span = LoopRange(lower, upper, step, known_step=known_step)
    answers = [span.begins(builder, ahead) for ahead in range(MOST_AHEAD)]
    for ahead in range(1, MOST_AHEAD):
        answers.append(span.goes_on(builder, here, span.distance(builder, ahead)))
    for index, answer in enumerate(answers):
        place = builder.value("addptr", [out, constant(builder, index, int32)], out.type)
        builder.create("store", [place, answer], cache="", eviction="")
    builder.create("return")
    parameters: list[tuple[str, Parameter]] = [
        (name, Scalar(dtype)) for name in ("lower", "upper", "step", "here")
    ]
    parameters.append(("out", Pointer(int1)))
    module = Module(
        {"k": Function("k", builder.block, is_kernel=True)}, KernelSignature(tuple(parameters))
    )
    verify(module)
    return module


@settings(max_examples=150, deadline=None)
@given(found=bounds(), is_known=st.booleans())
# Four steps, and three of the last, come around to where they began.
@example(found=Bounds(int64, -(2**63), 2**63 - 1, 2**62, 0), is_known=True)
@example(found=Bounds(int64, -(2**63), 2**63 - 1, 2**62, 0), is_known=False)
@example(found=Bounds(uint64, 0, 2**64 - 1, 2**63, 0), is_known=True)
@example(found=Bounds(uint64, 0, 2**64 - 1, (2**64 + 2) // 3, 0), is_known=False)
def test_iterations_are_those_of_the_range(found: Bounds, is_known: bool) -> None:
    module = _kernel(found.dtype, found.step if is_known else None)
    scalar = to_numpy(found.dtype).type
    here = found.lower + found.number * found.step if found.count else found.lower
    out = np.zeros(2 * MOST_AHEAD - 1, np.bool_)
    arguments = {
        "lower": scalar(found.lower),
        "upper": scalar(found.upper),
        "step": scalar(found.step),
        "here": scalar(here),
        "out": out,
    }
    tile.run(module, grid=(1, 1, 1), arguments=arguments)
    begins, follows = out[:MOST_AHEAD], out[MOST_AHEAD:]
    assert begins.tolist() == [ahead < found.count for ahead in range(MOST_AHEAD)]
    if found.count:
        expected = [found.number + ahead < found.count for ahead in range(1, MOST_AHEAD)]
        assert follows.tolist() == expected


@settings(max_examples=50, deadline=None)
@given(found=bounds(), ahead=st.integers(1, MOST_AHEAD))
def test_a_known_offset_wraps_as_an_addition_does(found: Bounds, ahead: int) -> None:
    value = Value(ScalarType(found.dtype))
    builder = Builder(Block((value,)))
    span = LoopRange(value, value, value, known_step=found.step)
    span.offset(builder, ahead)
    (made,) = builder.block.operations
    offset: int = made.attributes["value"]
    assert (offset - found.step * ahead) % (1 << found.dtype.bits) == 0
    assert np.iinfo(to_numpy(found.dtype)).min <= offset <= np.iinfo(to_numpy(found.dtype)).max
