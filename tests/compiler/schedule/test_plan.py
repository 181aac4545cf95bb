"""Stages shrink to the shared memory there is, and the error says what even one lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.staged_kernels import KERNELS, arguments, optimized, types_of
from tilewright.errors import KernelValueError
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.types import SharedType
from tilewright_compiler.schedule.plan import schedule_module

# Two operands of 32 x 16 bf16.
_STAGE_BYTES = 2 * 1024


def _walking(directory: Path) -> Module:
    """Return a matmul that asks for four stages."""
    values = arguments("walking", trips=1)
    module = optimized(directory, KERNELS["walking"], types_of(values))
    return Module(module.functions, replace(module.signature, num_stages=4))


def _slots(module: Module) -> set[int | None]:
    types = [o.result.type for o in module.kernel.body.walk() if o.name == "alloc_shared"]
    return {type_.slots for type_ in types if isinstance(type_, SharedType)}


@pytest.mark.parametrize(
    ("limit_bytes", "stages"),
    [(4 * _STAGE_BYTES, 4), (4 * _STAGE_BYTES - 1, 3), (2 * _STAGE_BYTES, 2), (3000, 1)],
)
def test_as_many_stages_as_fit(limit_bytes: int, stages: int, tmp_path: Path) -> None:
    result = schedule_module(_walking(tmp_path), shared_limit=limit_bytes)
    assert result.attributes["shared_bytes"] <= limit_bytes
    assert result.attributes.get("num_stages", 4) == stages
    assert _slots(result) == {stages if stages > 1 else None}


def test_operands_share_one_place_before_a_kernel_is_refused(tmp_path: Path) -> None:
    result = schedule_module(_walking(tmp_path), shared_limit=_STAGE_BYTES // 2)
    assert result.attributes["shared_bytes"] == _STAGE_BYTES // 2
    assert not _slots(result)


def test_what_does_not_fit_says_where_and_by_how_much(tmp_path: Path) -> None:
    with pytest.raises(KernelValueError, match=r"needs 1024 bytes.*24 more than the 1000") as error:
        schedule_module(_walking(tmp_path), shared_limit=1000)
    assert error.value.locations[0].line == 8  # where the loads stand


def test_a_kernel_that_fits_does_not_say_how_many_stages_it_has(tmp_path: Path) -> None:
    assert "num_stages" not in schedule_module(_walking(tmp_path)).attributes
