"""What is known of the elements of each value along each axis: runs, alignment, repetition.

All claims are powers of two and about aligned groups: along axis `d`, for every element whose index
`i` on that axis is a multiple of the group's length,

- `contiguity[d]`: the elements at `i .. i + contiguity - 1` count up by one (pointers: by one
  element), modulo two to the width;
- `divisibility[d]`: the element at such an `i` is a multiple of it (pointers: in bytes);
- `constancy[d]`: the elements at `i .. i + constancy - 1` are equal, where `i` is a multiple of it.

So a vector of V elements is aligned and contiguous if both allow V. Scalars have one axis of extent
1. Integers wrap in the tile IR, so nothing here may rest on "no overflow": a run survives a
widening cast only as far as its starts are aligned, because an aligned run cannot cross a wrap. The
transfer functions stand in `axis_rules`; here is the walk. Facts carried around a loop start from
the initial values and are weakened until they hold after an iteration too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tilewright.abi.signature import DIVISOR, Parameter, Pointer, Scalar
from tilewright_compiler.analysis import axis_facts
from tilewright_compiler.analysis.axis_facts import AxisInfo
from tilewright_compiler.analysis.axis_rules import transfer
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops import combine

__all__ = ["AxisAnalysis", "AxisInfo", "analyze"]


class AxisAnalysis(Mapping[Value, AxisInfo]):
    """The facts of every value of a module."""

    def __init__(self, facts: Mapping[Value, AxisInfo]) -> None:
        self._facts = facts

    def __getitem__(self, value: Value) -> AxisInfo:
        return self._facts[value]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def analyze(module: Module) -> AxisAnalysis:
    """Return the facts of every value, seeded by what the signature promises of the arguments."""
    facts: dict[Value, AxisInfo] = {}
    for function in module.functions.values():
        arguments = function.body.arguments
        if function.is_kernel:
            for argument, (_, parameter) in zip(arguments, module.signature.runtime, strict=True):
                facts[argument] = _seed(argument, parameter)
        else:  # any caller may pass anything
            facts.update((argument, axis_facts.nothing(argument.type)) for argument in arguments)
        _Walk(facts).block(function.body)
    return AxisAnalysis(facts)


def _seed(argument: Value, parameter: Parameter) -> AxisInfo:
    match parameter:
        case Pointer(aligned=True) | Scalar(divisible=True):
            return axis_facts.scalar(divisibility=DIVISOR)
        case Scalar(unit=True):
            return axis_facts.constant(1, argument.type)
        case _:
            return axis_facts.nothing(argument.type)


class _Walk:
    """One pass over a function in program order; `facts` is filled as values are defined."""

    def __init__(self, facts: dict[Value, AxisInfo]) -> None:
        self._facts = facts

    def block(self, block: Block) -> tuple[AxisInfo, ...]:
        """Visit the operations; return the facts of the terminator's operands."""
        for operation in block.operations[:-1]:
            self._operation(operation)
        return self._of(block.terminator.operands)

    def _operation(self, operation: Operation) -> None:
        match operation.name:
            case "for":
                self._for(operation)
            case "while":
                self._while(operation)
            case "roles":
                for region in operation.regions:
                    self.block(region)
            case "if":
                branches = [self.block(region) for region in operation.regions]
                self._set(operation.results, map(axis_facts.join, *branches))
            case name if name in combine.NAMES:
                (region,) = operation.regions
                for value in (*region.arguments, *operation.results):
                    self._facts[value] = axis_facts.nothing(value.type)
                self.block(region)
            case _:
                operands = self._of(operation.operands)
                for result in operation.results:
                    self._facts[result] = transfer(operation, result.type, operands)

    def _for(self, operation: Operation) -> None:
        (body,) = operation.regions
        lower, _, step, *initial = self._of(operation.operands)
        induction = body.arguments[0]
        self._facts[induction] = axis_facts.induction(lower, step)
        carried = self._fixpoint(initial, body.arguments[1:], lambda: self.block(body))
        self._set(operation.results, carried)

    def _while(self, operation: Operation) -> None:
        before, after = operation.regions

        def iterate() -> tuple[AxisInfo, ...]:
            _, *passed = self.block(before)
            self._set(after.arguments, passed)
            return self.block(after)

        self._fixpoint(self._of(operation.operands), before.arguments, iterate)
        # The results are what the last `before` passed, which the fixpoint's last round saw.
        self._set(operation.results, self._of(before.terminator.operands[1:]))

    def _fixpoint(
        self,
        initial: Sequence[AxisInfo],
        arguments: Sequence[Value],
        iterate: Callable[[], tuple[AxisInfo, ...]],
    ) -> tuple[AxisInfo, ...]:
        """Weaken the facts until an iteration keeps them; claims only shrink, so it ends."""
        carried = tuple(initial)
        while True:
            self._set(arguments, carried)
            weakened = tuple(map(axis_facts.join, carried, iterate()))
            if weakened == carried:
                return carried
            carried = weakened

    def _of(self, values: Iterable[Value]) -> tuple[AxisInfo, ...]:
        return tuple(self._facts[value] for value in values)

    def _set(self, values: Iterable[Value], facts: Iterable[AxisInfo]) -> None:
        self._facts.update(zip(values, facts, strict=True))
