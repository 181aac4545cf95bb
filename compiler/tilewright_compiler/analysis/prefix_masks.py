"""How far a mask is a prefix: in which runs along an axis its true elements come before its false.

`index < bound` is such a mask wherever the index counts up and the bound repeats, and most masks of
kernels are of this form. Of a prefix the last element says whether all are true, the first whether
any is, so a vector's edge is found from two bits instead of from all. Runs are aligned powers of
two, as in `axis_info`. Masks that a loop or a branch carries count as prefixes only where they are
constant.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import shape_of


class PrefixMasks:
    """Answers for the masks of one module."""

    def __init__(self, module: Module, facts: Mapping[Value, AxisInfo]) -> None:
        self._facts = facts
        self._producers: dict[Value, Operation] = {
            result: operation
            for function in module.functions.values()
            for operation in function.body.walk()
            for result in operation.results
        }

    def run(self, mask: Value, axis: int) -> int:
        """Return the longest run along `axis` in which `mask` is a prefix."""
        return max(self._facts[mask].constancy[axis], self._from_producer(mask, axis))

    def _from_producer(self, mask: Value, axis: int) -> int:
        operation = self._producers.get(mask)
        if operation is None:
            return 1
        operands = operation.operands
        match operation.name:
            case "and" | "or":
                return min(self.run(operand, axis) for operand in operands)
            case "cmp":
                return self._comparison(operation, axis)
            case "convert_layout":
                return self.run(operands[0], axis)
            case "broadcast" if shape_of(operands[0].type) != ():
                repeated = shape_of(operands[0].type)[axis] != shape_of(mask.type)[axis]
                return 1 if repeated else self.run(operands[0], axis)
            case "expand_dims":
                added = operation.attributes["axis"]
                return 1 if axis == added else self.run(operands[0], axis - (axis > added))
            case _:
                return 1

    def _comparison(self, operation: Operation, axis: int) -> int:
        index, bound = (self._facts[operand] for operand in operation.operands)
        match operation.attributes["predicate"]:
            case "lt" | "le":
                pass
            case "gt" | "ge":
                index, bound = bound, index
            case _:
                return 1
        # A run whose start is aligned to its length cannot wrap around in the middle.
        return min(index.contiguity[axis], index.divisibility[axis], bound.constancy[axis])
