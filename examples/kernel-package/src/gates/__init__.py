"""SwiGLU, forward and backward: `silu(gate) * value`, on the GPU without a compiler."""

from __future__ import annotations

from math import prod
from typing import Protocol

from gates.kernels import swiglu_backward_kernel, swiglu_kernel

__all__ = ["swiglu", "swiglu_backward"]

_BLOCK = 1024  # what prebuilt/signatures/gates.toml compiles


class Array(Protocol):
    """An array that a kernel takes: Tilewright's own, NumPy's, torch's or any other on the GPU."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of its axes."""


def swiglu(gate: Array, value: Array, out: Array) -> None:
    """Write `silu(gate) * value`; all three are contiguous, of one shape and element type."""
    n = prod(out.shape)
    swiglu_kernel[_grid(n)](gate, value, out, n, BLOCK=_BLOCK)


def swiglu_backward(
    gate: Array, value: Array, grad: Array, grad_gate: Array, grad_value: Array
) -> None:
    """Write the gradients by `gate` and `value` for the gradient `grad` of the result."""
    n = prod(grad.shape)
    swiglu_backward_kernel[_grid(n)](gate, value, grad, grad_gate, grad_value, n, BLOCK=_BLOCK)


def _grid(n: int) -> tuple[int]:
    return (-(-n // _BLOCK),)
