"""Checks that the kernel's author writes.

| operation | operands | meaning |
|---|---|---|
| assert | i1 scalar | unless it is true, ends the launch with the attribute `message` |
"""

from __future__ import annotations

from tilewright.abi.dtypes import int1
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import ScalarType


def _verify_assert(operation: Operation) -> str | None:
    type_ = operation.operands[0].type
    return None if type_ == ScalarType(int1) else f"takes an i1 scalar, got {type_}"


SPECS = (
    OperationSpec("assert", (1, 1), ("message",), Effect.WRITE, results=0, verify=_verify_assert),
)
