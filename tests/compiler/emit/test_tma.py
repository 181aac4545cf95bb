"""Coordinates of bulk copies, which the hardware takes in 32 bits."""

from __future__ import annotations

import re

import pytest

from helpers import pointer_products
from helpers.kernel_source import signature_of
from tilewright.abi.signature import ConstexprValue
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.options import DEFAULT
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.hopper import schedule_hopper


@pytest.fixture(scope="module")
def ptx() -> str:
    kernel = pointer_products.batched_turned
    types: dict[str, ConstexprValue] = {
        p.name: "*f16" if p.name in "abc" else "i64"
        for p in kernel.parameters
        if not p.is_constexpr
    }
    types |= {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    signature = signature_of(kernel, types, specialization="fast")
    scheduled = schedule_hopper(optimize(lower_kernel(kernel, signature)))
    assert scheduled is not None
    return lower_to_ptx(emit_module(scheduled), flavor=HOPPER, options=DEFAULT).text


def test_a_coordinate_beyond_32_bits_does_not_come_back_as_one_inside(ptx: str) -> None:
    """So an index of 2^32 is outside of every tensor, and not index 0."""
    copies = re.findall(r"cp\.async\.bulk\.tensor\.3d\.\S+ .*\{(.*?)\}", ptx)
    assert len(copies) == 3
    made = dict(re.findall(r"cvt\.u32\.u64\s+(%r\d+), (%rd\d+);", ptx))
    clamped = set(re.findall(r"min\.s64\s+(%rd\d+),", ptx))
    names = {name.strip() for copy in copies for name in copy.split(",")}
    from_64_bits = {made[name] for name in names if name in made}
    assert from_64_bits
    assert from_64_bits <= clamped
    lows = re.findall(r"max\.s64\s+%rd\d+, %rd\d+, (-?\d+);", ptx)
    assert lows.count("-2147483648") >= len(from_64_bits & clamped)
