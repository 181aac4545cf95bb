"""PTX of one's own, applied to the elements of tiles."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.language.kernel import Kernel
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = ["inline_asm_elementwise"]


@operation
def inline_asm_elementwise(
    asm: str | constexpr,
    constraints: str | constexpr,
    args: tuple[Operand, ...] | list[Operand],
    dtype: DType | tuple[DType, ...],
    is_pure: bool | constexpr,
    pack: int | constexpr,
    reference: Kernel | None = None,
) -> Tile | tuple[Tile, ...]:
    """Return what the PTX `asm` makes of the elements of `args`, `pack` elements at a time.

    `args` broadcast to one shape, which is that of the results; there is one result for each dtype.
    `constraints` names the registers that `$0`, `$1`, ... stand for, results first: `=r` or `=&r`
    for a result, `r` for an argument or a number that ties it to a result, `~{...}` for what is
    clobbered. Letters are `h` (16 bits), `r` (32), `l` (64), `f` (f32), `d` (f64). Narrow elements
    travel packed in 32-bit registers, the first in the lowest bits: with `pack=4`, four int8 are
    one `r`, four f16 two, four f32 four. Where `pack` of them leave a register partly empty, its
    upper bits are unspecified (a single 16-bit element may also be an `h`).

    With `is_pure` the result depends on nothing but the arguments, so that calls are merged, moved
    and dropped. Otherwise each call stays, in order; for one element it may run in several threads.
    In no case may `asm` touch memory: loads, stores and atomic operations have functions of their
    own, and pointers are refused.

    The interpreter cannot run PTX. `reference`, a kernel that takes the arguments and returns what
    `asm` gives, is run in its place; without one the interpreter raises InterpreterError. Compiled
    code has no trace of it.
    """
    outside_kernel(inline_asm_elementwise)
