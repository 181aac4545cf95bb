"""Looking into a kernel: prints of what is known at compile time, checks at run time, a meeting."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, constexpr

__all__ = ["debug_barrier", "device_assert", "device_print", "static_print"]


@operation
def static_print(*values: object, sep: str | constexpr = " ", end: str | constexpr = "\n") -> None:
    """Print when the kernel is compiled: compile-time values as Python does, others by their type.

    A kernel is compiled once for each signature and not at all where a bundle holds it; to see it
    compiled, `tilewright dev show` does.
    """
    outside_kernel(static_print)


@operation
def device_assert(
    condition: Operand, message: str | constexpr = "", mask: Operand | None = None
) -> None:
    """Stop with `message` unless `condition` is true, in every lane where `mask` is.

    A check that is written is a check that runs, on every device: it ends the launch with an error
    of the driver, after which the context is lost. The interpreter raises InterpreterError with the
    line and the program. A loop with a check is not pipelined.
    """
    outside_kernel(device_assert)


@operation
def device_print(prefix: str | constexpr, *values: Operand, hex: bool | constexpr = False) -> None:
    """Print each element of `values` at run time, a line each with its program and its place.

    A line is `pid (0, 0, 0) idx (3) prefix 1.500000`, without `idx` for a scalar; with `hex` the
    bits are shown. Lines of different threads come in any order, and a device keeps those of the
    last megabyte until the launch ends. A loop with a print is not pipelined.
    """
    outside_kernel(device_print)


@operation
def debug_barrier() -> None:
    """Let all threads of the program meet here.

    No kernel needs it: loads, stores and atomic operations of a program keep the order of its text.
    """
    outside_kernel(debug_barrier)
