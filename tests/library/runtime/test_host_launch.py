"""Launches on NumPy arrays: what they compute does not depend on what was launched before."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.constexpr_kernels import fill, masked, scale


def test_zeros_of_either_sign_are_two_constexprs() -> None:
    out = np.empty(4, np.float32)
    fill[(1,)](out, value=0.0)
    assert not np.signbit(out).any()
    fill[(1,)](out, value=-0.0)
    assert np.signbit(out).all()


def test_an_integer_constexpr_is_no_float() -> None:
    x, wrapped, exact = (
        np.array([2**30], np.int32),
        np.empty(1, np.float64),
        np.empty(1, np.float64),
    )
    scale[(1,)](x, exact, factor=4.0)
    scale[(1,)](x, wrapped, factor=4)
    assert (exact[0], wrapped[0]) == (2.0**32, 0.0)


@pytest.mark.parametrize("n", [-(2**62), -(2**61) - 1, 0, 2**61, 2**62 - 1])
@pytest.mark.parametrize("m", [-(2**63), -1, 2**63 - 1])
def test_wide_starts_compare_as_integers_do(n: int, m: int) -> None:
    from tilewright.abi.dtypes import int32, int64
    from tilewright.abi.signature import declared
    from tilewright_compiler.frontend.lower import lower_kernel
    from tilewright_compiler.interpret import tile
    from tilewright_compiler.passes import optimize

    signature = declared(
        {"out": (int32,), "n": int64, "m": int64},
        rule=masked.rule,
        specialization="general",
        num_warps=1,
        num_stages=1,
    )
    out = np.full(128, 7, np.int32)
    module = optimize(lower_kernel(masked, signature))
    tile.run(module, grid=(1, 1, 1), arguments={"out": out, "n": n, "m": m})
    assert out.tolist() == [int(n + lane - 100 < m) for lane in range(128)]
