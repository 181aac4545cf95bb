"""PTX of the kernel's author, which no checker runs: its references are gone from a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tilewright_compiler.interpret.ops.inline_asm import refusal
from tilewright_compiler.interpret.warp.state import Held, Warp
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.inline_asm import NAMES


def _refuse(warp: Warp, operation: Operation) -> Held | None:
    raise refusal(operation, warp.program.batch.kernel)


COMPUTE: Mapping[str, Callable[[Warp, Operation], Held | None]] = MappingProxyType(
    dict.fromkeys(NAMES, _refuse)
)
