"""A second, tiny evaluator of integer tile IR that shows every value of every iteration.

It exists to check claims about values; the interpreter frees and batches them. Addresses are 64-bit
integers, floats are left out, and a load gives zeros: no claim rests on what memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.abi.dtypes import uint64
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops.arithmetic import BINARY
from tilewright_compiler.ir.types import PointerType, Type, element_dtype, element_type, shape_of

Watch = Callable[[Value, Array], None]

_REDUCTIONS = {"max": np.max, "min": np.min}


def watched_run(module: Module, arguments: Mapping[str, int], program: int, watch: Watch) -> None:
    """Run one program of a kernel, calling `watch` with each value as it is defined.

    `arguments` holds integers, for pointers the address.
    """
    run = _Run(program, watch)
    for value, (name, _) in zip(
        module.kernel.body.arguments, module.signature.runtime, strict=True
    ):
        run.define(value, np.array(arguments[name], _numpy(value.type)))
    run.block(module.kernel.body)


class _Run:
    def __init__(self, program: int, watch: Watch) -> None:
        self._values: dict[Value, Array] = {}
        self._program = program
        self._watch = watch

    def define(self, value: Value, array: Array) -> None:
        array = np.asarray(array)
        assert array.shape == shape_of(value.type), value
        assert array.dtype == _numpy(value.type), value
        self._values[value] = array
        self._watch(value, array)

    def block(self, block: Block) -> list[Array]:
        for operation in block.operations[:-1]:
            operands = [self._values[value] for value in operation.operands]
            results = self._results(operation, operands)
            for value, array in zip(operation.results, results, strict=True):
                self.define(value, array)
        return [self._values[value] for value in block.terminator.operands]

    def _region(self, block: Block, arguments: Sequence[Array]) -> list[Array]:
        for value, array in zip(block.arguments, arguments, strict=True):
            self.define(value, array)
        return self.block(block)

    def _results(self, operation: Operation, operands: list[Array]) -> Sequence[Array]:
        match operation.name:
            case "if":
                return self._region(operation.regions[0 if operands[0] else 1], ())
            case "for":
                lower, upper, step, *carried = operands
                for index in range(int(lower), int(upper), int(step)):
                    induction = np.array(index, lower.dtype)
                    carried = self._region(operation.regions[0], (induction, *carried))
                return carried
            case "while":
                before, after = operation.regions
                while True:
                    going, *passed = self._region(before, operands)
                    if not going:
                        return passed
                    operands = self._region(after, passed)
            case "scan" | "reduce_with":
                return (self._combined(operation, operands[0]),)
            case "store":
                return ()
        return (self._result(operation, operands),)

    def _combined(self, operation: Operation, source: Array) -> Array:
        """Run the region on one element after the other along the axis, which is a right order."""
        axis, is_reversed = operation.attributes["axis"], operation.attributes.get("reverse", False)
        lines = np.moveaxis(np.flip(source, axis) if is_reversed else source, axis, -1)
        result = lines.copy()
        for line in np.ndindex(lines.shape[:-1]):
            for index in range(1, lines.shape[-1]):
                pair = result[line][index - 1], lines[line][index]
                (result[line][index],) = self._region(
                    operation.regions[0], list(map(np.array, pair))
                )
        if operation.name == "reduce_with":
            return result[..., -1]
        scanned = np.moveaxis(result, -1, axis)
        return np.flip(scanned, axis) if is_reversed else scanned

    def _result(self, operation: Operation, operands: list[Array]) -> Array:
        type_, attributes = operation.result.type, operation.attributes
        dtype, shape = element_dtype(type_), shape_of(type_)
        match operation.name:
            case "program_id":
                return np.array(self._program if attributes["axis"] == 0 else 0)
            case "num_programs":
                return np.array(7)
            case "constant":
                return numerics.constant(attributes["value"], dtype).reshape(())
            case "arange":
                return np.arange(attributes["start"], attributes["end"], dtype=np.int32)
            case "splat":
                return np.full(shape, operands[0])
            case "expand_dims" | "reshape":
                return operands[0].reshape(shape)
            case "broadcast":
                return np.broadcast_to(operands[0], shape)
            case "transpose":
                return operands[0].transpose(attributes["order"])
            case "cmp":
                return numerics.compare(attributes["predicate"], *operands)
            case "select":
                return np.where(*operands)
            case "addptr":
                offset = operands[1].astype(np.int64).view(np.uint64)
                address: Array = operands[0] + offset * np.uint64(dtype.size_bytes)
                return address
            case "cast":
                return numerics.cast(operands[0], element_dtype(operation.operands[0].type), dtype)
            case "neg":
                return numerics.negate(operands[0], dtype)
            case "abs":
                return numerics.absolute(operands[0], dtype)
            case "reduce" if attributes["kind"] == "sum":
                total: Array = np.sum(operands[0], attributes["axis"], dtype=operands[0].dtype)
                return total
            case "reduce":
                extreme: Array = _REDUCTIONS[attributes["kind"]](operands[0], attributes["axis"])
                return extreme
            case "gather":
                source, index = operands
                places = index.astype(np.int64) % source.shape[attributes["axis"]]
                return np.take_along_axis(source, places, attributes["axis"])
            case "load":
                return np.zeros(shape, to_numpy(dtype))
            case name if name in BINARY:
                return numerics.binary(name, operands[0], operands[1], dtype)
        message = f"{operation.name} is not for this evaluator"
        raise NotImplementedError(message)


def _numpy(type_: Type) -> np.dtype[np.generic]:
    is_pointer = isinstance(element_type(type_), PointerType)
    return to_numpy(uint64 if is_pointer else element_dtype(type_))
