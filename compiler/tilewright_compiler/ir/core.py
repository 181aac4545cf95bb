"""The tile IR: dataclass SSA with regions, the one data structure between frontend and emission.

A `Module` holds functions; a function's body is a `Block`; an `Operation` may own regions (one
block each, structured control flow only). Passes are `module -> module` and do not change their
input: they rebuild through `ir.builder`. The operation set with its attributes and effects is
`ir.ops`; text form is `ir.printer` and `ir.parser`. Plain classes rather than an MLIR dialect:
MLIR's Python bindings cannot give a dialect effects, folds or terminators, and a dataclass
operation is ten times cheaper to build and walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tilewright.abi.signature import KernelSignature
from tilewright.errors import SourceLocation
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.types import Type


@dataclass(eq=False, slots=True)
class Value:
    """An SSA value: an operation's result or a block argument. Identity is the object."""

    type: Type
    name: str = ""


@dataclass(eq=False, slots=True)
class Operation:
    """One operation. `attributes` holds plain values (str, int, float, bool, tuples, DType)."""

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()
    location: SourceLocation | None = None

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def walk(self) -> Iterator[Operation]:
        """Yield this operation and all inside it, outer before inner, in program order."""
        return Block((), [self]).walk()


@dataclass(eq=False, slots=True)
class Block:
    """A list of operations with arguments; the last operation is the terminator."""

    arguments: tuple[Value, ...] = ()
    operations: list[Operation] = field(default_factory=list)

    def walk(self) -> Iterator[Operation]:
        """Yield all operations inside, outer before inner, in program order."""
        # No generator in a generator: a step would pass through one for each level of nesting.
        pending = [iter(self.operations)]
        while pending:
            for operation in pending[-1]:
                yield operation
                if operation.regions:
                    pending.extend(iter(r.operations) for r in reversed(operation.regions))
                    break
            else:
                pending.pop()

    @property
    def terminator(self) -> Operation:
        """The last operation."""
        return self.operations[-1]


@dataclass(eq=False, slots=True)
class Function:
    """A function. The kernel's arguments are the signature's run-time parameters, in order."""

    name: str
    body: Block
    result_types: tuple[Type, ...] = ()
    is_kernel: bool = False
    location: SourceLocation | None = None


@dataclass(eq=False, slots=True)
class Module:
    """A kernel with the functions that it calls. `attributes` holds what the schedule decided
    (`shared_bytes`)."""

    functions: dict[str, Function]
    signature: KernelSignature
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> Function:
        """The entry function."""
        (kernel,) = (f for f in self.functions.values() if f.is_kernel)
        return kernel
