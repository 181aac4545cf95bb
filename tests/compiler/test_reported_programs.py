"""Faults reported by users of other tile languages that one expression cannot show.

The others are vectors, in `tests/vectors/reported.toml`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from helpers.gpu import requires_gpu
from helpers.ported.rows import layer_norm, layer_norm_backward
from tilewright.errors import LaunchError
from tilewright.language.kernel import Kernel
from tilewright.runtime.memory import from_numpy

SIDES = [
    pytest.param(False, id="host"),
    pytest.param(True, id="gpu", marks=[pytest.mark.gpu, requires_gpu()]),
]


@tl.kernel
def add_constant_to_sum(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < n, other=0.0) + 0.5
    tl.atomic_add(out + lanes * 0, values, mask=lanes < n)


@tl.kernel
def multiply_all(x, out, n):  # type: ignore[no-untyped-def]
    """Multiply into one element by compare and swap, which compares the bits."""
    for i in range(n):
        factor = tl.load(x + i)
        old = tl.load(out)
        found = tl.atomic_cas(out, old, old * factor)
        while found.to(tl.int32, bitcast=True) != old.to(tl.int32, bitcast=True):
            old = found
            found = tl.atomic_cas(out, old, old * factor)


@tl.kernel
def old_values(counts, floats, out, float_out):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, 4)
    tl.atomic_add(counts + lanes * 0, tl.full((4,), 1 << 40, tl.int64))
    tl.store(out, tl.load(counts))
    tl.store(float_out, tl.atomic_max(floats, 3.0))
    tl.store(float_out + 1, tl.atomic_min(floats, -1.0))


@tl.kernel
def program_of(out):  # type: ignore[no-untyped-def]
    tl.store(out + tl.program_id(1), tl.program_id(1))


@tl.kernel
def branch(out, FLAG: tl.constexpr):  # type: ignore[no-untyped-def]
    if FLAG:
        tl.store(out, 1)
    else:
        tl.store(out, 2)


def scaled_by(number: float) -> Kernel:
    factor = tl.constexpr(number)

    @tl.kernel
    def scale(x, out):  # type: ignore[no-untyped-def]
        tl.store(out, tl.load(x) * factor)

    return scale


def launch(kernel: Kernel, grid: Any, *arguments: Any, on_device: bool, **options: Any) -> None:
    """Launch on arrays of the side; what a kernel wrote is in the arrays given."""
    if not on_device:
        kernel[grid](*arguments, **options)
        return
    device = [from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel[grid](*device, **options)
    for given, there in zip(arguments, device, strict=True):
        if isinstance(given, np.ndarray):
            given[...] = there.numpy()


@pytest.mark.parametrize("on_device", SIDES)
def test_lanes_beyond_the_end_add_nothing(on_device: bool) -> None:
    for n in (1, 2, 3, 31, 33, 63, 64):
        x, out = np.ones(64, np.float32), np.zeros(1, np.float32)
        launch(add_constant_to_sum, 1, x, out, n, BLOCK=64, on_device=on_device)
        assert out[0] == 1.5 * n


@pytest.mark.parametrize("on_device", SIDES)
@pytest.mark.parametrize("factor", [2.0, float("nan")])
def test_a_product_by_compare_and_swap_ends_with_nan(factor: float, on_device: bool) -> None:
    x = np.array([2.0, factor, 0.5, 4.0], np.float32)
    out = np.ones(1, np.float32)
    launch(multiply_all, 1, x, out, 4, on_device=on_device)
    np.testing.assert_array_equal(out, [np.prod(x)])


@pytest.mark.parametrize("on_device", SIDES)
def test_atomic_operations_accumulate_in_64_bits_and_give_old_floats(on_device: bool) -> None:
    counts, floats = np.zeros(1, np.int64), np.array([2.0], np.float32)
    out, float_out = np.zeros(1, np.int64), np.zeros(2, np.float32)
    launch(old_values, 1, counts, floats, out, float_out, on_device=on_device)
    assert counts[0] == out[0] == 4 << 40
    assert float_out.tolist() == [2.0, 3.0]
    assert floats[0] == -1.0


def test_offsets_do_not_wrap_at_two_to_the_31st() -> None:
    # Pages that nobody touches take no memory; the last block is the only one that is run.
    x = np.zeros((1 << 31) + 64, np.int8)
    x[-64:] = np.arange(64)
    out = np.full(64, -1, np.int8)
    program = (x.size // 64) - 1

    @tl.kernel
    def last_block(x, out, program, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        place = program * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + tl.arange(0, BLOCK), tl.load(x + place))

    last_block[1](x, out, program, BLOCK=64)
    np.testing.assert_array_equal(out, np.arange(64))


def test_a_grid_that_the_hardware_lacks_is_refused_with_the_limits() -> None:
    out = np.full(70_000, -1, np.int64)
    program_of[(1, 65_535)](out)
    np.testing.assert_array_equal(out[:65_535], np.arange(65_535))
    with pytest.raises(LaunchError, match=r"\(1, 70000, 1\).*2147483647, 65535, 65535"):
        program_of[(1, 70_000)](out)


def test_captured_constants_belong_to_the_kernel() -> None:
    x, out = np.array([3.0], np.float32), np.zeros(1, np.float32)
    two, three = scaled_by(2.0), scaled_by(3.0)
    assert two.digest != three.digest
    for kernel, expected in ((two, 6.0), (three, 9.0), (two, 6.0)):
        kernel[1](x, out)
        assert out[0] == expected


def test_a_compile_time_branch_is_chosen_for_each_value() -> None:
    out = np.zeros(1, np.int32)
    for flag, expected in ((True, 1), (False, 2), (True, 1)):
        branch[1](out, FLAG=flag)
        assert out[0] == expected


@pytest.mark.parametrize("on_device", SIDES)
def test_layer_norm_keeps_digits_far_from_zero(on_device: bool) -> None:
    step = np.arange(16) * 1e-3
    means = np.array([0, 100, 1000, 10_000, 1e6])
    x = (means[:, None] + step).astype(np.float32)
    out, first, second = np.zeros_like(x), np.zeros(5, np.float32), np.zeros(5, np.float32)
    one, zero = np.ones(16, np.float32), np.zeros(16, np.float32)
    arguments = (x, one, zero, out, first, second, 16, 1e-5)
    launch(layer_norm, 5, *arguments, BLOCK=16, on_device=on_device)
    np.testing.assert_allclose(out[:4, 0], [-1.34164, -1.34153, -1.34151, -1.33133], atol=2e-5)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, exact, atol=1e-3)


@pytest.mark.parametrize("on_device", SIDES)
@pytest.mark.parametrize("rows", [1, 2, 8, 33])
def test_few_rows_share_more_groups(rows: int, on_device: bool) -> None:
    x = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    mean, rstd = x.mean(1), 1 / x.std(1)
    weight = np.ones(32, np.float32)
    grad_x, sums, biases = np.zeros_like(x), np.zeros((8, 32), np.float32), np.zeros((8, 32))
    biases = biases.astype(np.float32)
    locks = np.zeros(16, np.int32)
    arguments = (x, x, weight, mean, rstd, grad_x, sums, biases, locks, 32)
    launch(layer_norm_backward, rows, *arguments, GROUPS=8, BLOCK=32, on_device=on_device)
    np.testing.assert_allclose(biases.sum(0), x.sum(0), atol=1e-4)
