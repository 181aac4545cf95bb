"""The state of lowering: one `Program` for a module, one `Scope` for each function in it.

A scope has the variables, the block that is being filled and the chain of calls that led here, so
that an error anywhere below can be told in the user's lines. Control flow lowers its parts in
nested blocks with a copy of the variables; what the copies say afterwards is the input of the
joins.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Literal

from tilewright.abi.signature import KernelSignature
from tilewright.errors import CompileError, KernelNameError, SourceLocation
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.frontend.operands import Constant, Operand
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Value
from tilewright_compiler.ir.types import Type


@dataclass(frozen=True, slots=True)
class Undefined:
    """A name that was assigned, but has no value here; `reason` completes "`x` ..."."""

    reason: str


@dataclass(frozen=True, slots=True)
class Variable:
    """What a local name holds and where it was last assigned."""

    operand: Operand | Undefined
    location: SourceLocation
    is_constexpr: bool = False


@dataclass(frozen=True, slots=True)
class Specialization:
    """A kernel lowered for certain argument types and constants.

    `result` is what a call gives: each leaf that is an `ir.Value` stands for the next of the call's
    results, the others are known at compile time.
    """

    function: Function
    result: Operand


class Retype(Exception):  # not an error: it unwinds to the loop that guessed
    """A carried number's guessed type does not fit: lower the loop again with `type`."""

    def __init__(self, value: Value, type_: Type) -> None:
        super().__init__()
        self.value = value
        self.type = type_


@dataclass(slots=True)
class Branch:
    """A block that was lowered with its own copy of the variables."""

    block: Block
    variables: dict[str, Variable]


@dataclass(slots=True)
class Rest:
    """What comes after the statement that is being lowered; `escapes` says what the kinds mean."""

    kind: Literal["statements", "iteration", "meeting"]
    execute: Callable[[], None] | None = None
    statements: Sequence[ast.stmt] = ()
    flag: str = ""
    is_lowered: bool = False


ALWAYS, NEVER = Constant(True), Constant(False)


@dataclass(frozen=True, slots=True)
class Returned:
    """What a `return` gives, and where it was met: always, or where an i1 scalar is true."""

    value: Operand
    where: Operand = ALWAYS


@dataclass(slots=True)
class Program:
    """One module in the making. `specialize` lowers a kernel that a scope calls, or finds it done.

    `guesses` maps block arguments of loops that are being lowered, whose type is a guess, to the
    number they start from; `origins` maps what has such a type in turn, inside inner loops and
    after branches, to that argument. `reached` is the innermost node being lowered, where an error
    of our own leaves it.
    """

    signature: KernelSignature
    specialize: Callable[[Scope, Kernel, dict[str, Operand]], Specialization]
    functions: dict[str, Function] = field(default_factory=dict)
    specializations: dict[tuple[object, ...], Specialization] = field(default_factory=dict)
    guesses: dict[Value, Constant] = field(default_factory=dict)
    origins: dict[Value, Value] = field(default_factory=dict)
    reached: SourceLocation | None = None

    def guessed(self, operand: object) -> Value | None:
        """Return the argument whose guessed type an operand has, None if it has its own."""
        value = self.origins.get(operand, operand) if isinstance(operand, Value) else None
        return value if value in self.guesses else None

    def derive(self, value: Value, sources: Iterable[object]) -> None:
        """Remember that a value has its type from a guess that one of its sources has."""
        for source in sources:
            guessed = self.guessed(source)
            if guessed is not None and guessed.type == value.type:
                self.origins[value] = guessed


@dataclass(slots=True)
class Scope:
    """The state of lowering one function.

    `callers` are the call sites from the innermost outwards, `active` the kernels from the entry to
    this one. `enclosing` names the run-time loops around the current statement, in which `return`
    has no meaning. `result` is set by `return`, `leaving` by `break` and `continue`; what follows
    one is not lowered. Of branches that meet, `result` is all that was returned, and what comes up
    to the meeting has been lowered. `pending` is what follows the current statement, innermost
    last, and `copies` how often such a rest was lowered once more.
    """

    program: Program
    kernel: Kernel
    builder: Builder
    variables: dict[str, Variable] = field(default_factory=dict)
    callers: tuple[SourceLocation, ...] = ()
    active: tuple[Kernel, ...] = ()
    enclosing: tuple[str, ...] = ()
    result: tuple[Returned, ...] | None = None
    leaving: bool = False
    pending: tuple[Rest, ...] = ()
    copies: int = 0

    @property
    def is_left(self) -> bool:
        """Whether a `return`, `break` or `continue` makes what follows unreachable."""
        return self.result is not None or self.leaving

    def locate(self, node: ast.AST) -> SourceLocation:
        """Return the span of a node of this kernel."""
        return self.kernel.locate(node)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[SourceLocation]:
        """Stamp operations with the node's span, and give it to errors that have none."""
        previous = self.builder.location
        location = self.locate(node)
        self.builder.location = self.program.reached = location
        try:
            yield location
        except CompileError as error:
            if not error.locations:
                error.locations = (location, *self.callers)
            raise
        else:
            self.program.reached = previous or location
        finally:
            self.builder.location = previous

    @contextmanager
    def nested(
        self, description: str, arguments: tuple[Value, ...] = (), *, is_loop: bool = True
    ) -> Iterator[Branch]:
        """Fill a new block inside run-time control flow, with a copy of the variables."""
        builder, variables, enclosing = self.builder, self.variables, self.enclosing
        pending = self.pending
        branch = Branch(Block(arguments), dict(variables))
        self.builder = Builder(branch.block, builder.location)
        self.variables = branch.variables
        if is_loop:
            self.enclosing = (*enclosing, description)
            self.pending = (Rest("iteration"),)
        try:
            yield branch
        finally:
            self.builder, self.variables, self.enclosing = builder, variables, enclosing
            self.pending, self.leaving = pending, False

    @contextmanager
    def filling(self, block: Block) -> Iterator[None]:
        """Append to an existing block."""
        builder = self.builder
        self.builder = Builder(block, builder.location)
        try:
            yield
        finally:
            self.builder = builder

    def assign(self, name: str, operand: Operand, *, is_constexpr: bool = False) -> None:
        """Bind a name at the current location; a value that has no name yet takes it."""
        location = self.builder.location
        assert location is not None, "statements are lowered at their location"
        if isinstance(operand, Value) and not operand.name:
            operand.name = name
        self.variables[name] = Variable(operand, location, is_constexpr)

    def undefine(self, name: str, reason: str) -> None:
        """Leave a name without a value, keeping where it was assigned."""
        self.variables[name] = replace(self.variables[name], operand=Undefined(reason))

    def lookup(self, name: str) -> Operand | None:
        """Return a local's value, None for a name that is not local; raises if it has none here."""
        variable = self.variables.get(name)
        if variable is None:
            return None
        if isinstance(variable.operand, Undefined):
            msg = f"`{name}` {variable.operand.reason}"
            raise KernelNameError(msg)
        return variable.operand
