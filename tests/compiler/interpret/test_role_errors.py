"""The schedule checker sees what is wrong with roles, mbarriers, bulk copies and asynchronous dots.

A right schedule is changed in one place, and each change must be found whatever the order in which
the checker happens to run things.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from helpers.descriptor_kernels import Product
from helpers.mutations import changed, find, with_attributes, without
from tilewright.abi.dtypes import int32
from tilewright.errors import ScheduleError
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import ScalarType
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.schedule.hopper import schedule_hopper

PRODUCT = Product(m=64, n=64, k=32, num_stages=2)
GROUPED = Product(m=128, n=64, k=32, num_warps=8, num_stages=2)  # two warpgroups store rows each
SIZES = (100, 130, 150)
SEEDS = range(3)


@cache
def schedule(product: Product = PRODUCT) -> Module:
    result = schedule_hopper(product.module())
    assert result is not None
    return result


def run(module: Module, seed: int) -> None:
    verify(module)
    product = GROUPED if module.signature.num_warps == GROUPED.num_warps else PRODUCT
    arguments, expected = product.arguments(*SIZES)
    grid = product.grid(*SIZES[:2])
    scheduled.run(module, grid=grid, arguments=arguments, seed=seed)
    np.testing.assert_allclose(arguments["c"], expected)


def assert_found(module: Module, match: str) -> None:
    """Demand that every seed finds an error, and that its message says what is wrong."""
    for seed in SEEDS:
        with pytest.raises(ScheduleError, match=match):
            run(module, seed)


@pytest.mark.parametrize("product", [PRODUCT, GROUPED], ids=str)
def test_schedule_is_right(product: Product) -> None:
    for seed in SEEDS:
        run(schedule(product), seed)


def role(name: str, index: int) -> list[Operation]:
    """Return the operations of a name in the producer (0) or the consumers (1)."""
    (roles,) = find(schedule(), "roles")
    return [operation for operation in roles.regions[index].walk() if operation.name == name]


def test_producer_that_does_not_wait_for_empty_slots_is_found() -> None:
    (wait,) = role("mbarrier_wait", 0)
    assert_found(without(schedule(), wait), "may still be at work|still being read|more")


def test_consumer_that_does_not_wait_for_full_slots_is_found() -> None:
    (wait,) = role("mbarrier_wait", 1)
    assert_found(without(schedule(), wait), "nobody has waited for the phase|nothing wrote")


@pytest.mark.parametrize("index", [0, 1])
def test_wrong_parity_is_found(index: int) -> None:
    (wait,) = role("mbarrier_wait", index)

    def flip(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        one = builder.value("constant", [], ScalarType(int32), value=1)
        parity = builder.value("xor", [operands[1], one], ScalarType(int32))
        return builder.create(operation.name, [operands[0], parity]).results

    assert_found(changed(schedule(), wait, flip), "nobody|nothing wrote")


def test_slots_that_are_not_given_back_are_found() -> None:
    for arrive in role("mbarrier_arrive", 1):
        assert_found(without(schedule(), arrive), "nobody can go on")


def test_slot_that_is_given_back_early_is_found() -> None:
    """The slot of this iteration instead of the one before: its dot still runs.

    Or, where that shows first, the one before is missing.
    """
    lines = print_module(schedule()).splitlines()
    consumer = next(i for i, line in enumerate(lines) if "consumer {" in line)
    full = next(i for i in range(consumer, len(lines)) if "mbarrier_slot %full" in lines[i])
    slot = lines[full].split(",")[1].split()[0]
    empty = next(i for i in range(full, len(lines)) if "mbarrier_slot %empty" in lines[i])
    lines[empty] = re.sub(r"%empty, %\w+", f"%empty, {slot}", lines[empty])
    early = parse_module("\n".join(lines))
    assert_found(early, "still being read|nobody can go on")


@pytest.mark.parametrize("which", [0, 1])
def test_wait_for_too_few_dots_is_found(which: int) -> None:
    wait = role("dot_wait", 1)[which]
    pending = wait.attributes["pending"] + 1
    module = with_attributes(schedule(), wait, pending=pending)
    assert_found(module, "still being read|is read while its dot runs|may still be at work")


def test_wrong_count_of_bytes_is_found() -> None:
    (expect,) = role("mbarrier_expect", 0)
    for change in (-16, 16):
        size = expect.attributes["bytes"] + change
        assert_found(with_attributes(schedule(), expect, bytes=size), "nobody")


def test_missing_fence_is_found() -> None:
    for fence in role("async_fence", 1):
        assert_found(without(schedule(), fence), "without an async_fence")


@pytest.mark.parametrize("product", [PRODUCT, GROUPED], ids=str)
def test_every_barrier_is_needed(product: Product) -> None:
    for barrier in find(schedule(product), "barrier"):
        assert_found(without(schedule(product), barrier), "barrier|wait|async_fence|met")


def test_barriers_of_too_small_groups_are_found() -> None:
    barriers = [b for b in find(schedule(GROUPED), "barrier") if "groups" in b.attributes]
    assert barriers
    for barrier in barriers:
        assert barrier.attributes["groups"] == 2
        smaller = with_attributes(schedule(GROUPED), barrier, groups=4)
        assert_found(smaller, "has not met|async_fence|no barrier")


def test_stores_of_rows_that_other_groups_hold_are_found() -> None:
    store = find(schedule(GROUPED), "tma_store")[0]
    assert store.attributes["groups"] == 2
    swapped = with_attributes(schedule(GROUPED), store, groups=1)
    assert_found(swapped, "has not met|async_fence|no barrier|nothing wrote")


def test_missing_wait_for_stores_is_found() -> None:
    for wait in role("tma_store_wait", 1):
        assert_found(without(schedule(), wait), "still being read|under way")


def test_missing_initialisation_is_found() -> None:
    for init in find(schedule(), "mbarrier_init"):
        assert_found(without(schedule(), init), "initialised")
