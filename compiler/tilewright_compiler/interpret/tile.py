"""Tile IR + NumPy arguments -> the same arrays, changed as the kernel would change them.

Programs run in batches, every operation on all programs of a batch at once (`interpret.batch`);
operations that run regions split a batch where its programs part (`interpret.ops.control`). If
programs may wait for each other, each runs as a coroutine of its own instead and turns change at
the back edges of `while`, so that whoever is waited for makes progress. Both ways are the same
code: a turn-taking list of batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.abi.signature import Pointer
from tilewright.errors import ArgumentError, InterpreterError, LaunchError
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.memory import Memory
from tilewright_compiler.interpret.numerics import Array, constant
from tilewright_compiler.interpret.ops.form import Environment, Operands, Pause, Run
from tilewright_compiler.interpret.plan import BlockPlan, largest_tile, may_wait, plan_block
from tilewright_compiler.ir.core import Block, Function, Module

Argument = Array | np.generic | float

# Elements of the largest tile in one batch: 2 MiB of addresses, which stay in the cache.
_BATCH_ELEMENTS = 1 << 18
_GRID_LIMITS = (2**31 - 1, 65_535, 65_535)


def run(module: Module, *, grid: tuple[int, int, int], arguments: Mapping[str, Argument]) -> None:
    """Run a kernel over a grid, writing its array arguments in place.

    `arguments` are the run-time parameters by name. An array is passed as a pointer to its first
    element, strides are the kernel's business. Raises ArgumentError or LaunchError before anything
    runs, OutOfBoundsError for an unmasked access outside every argument's memory, and
    InterpreterError for a misaligned access, a store to a read-only array, or programs that wait
    for each other for ever. Stores made before an error stay.
    """
    memory, values = prepare(module, grid=grid, arguments=arguments)
    if not prod(grid):
        return
    waits = may_wait(module, memory)
    size = 1 if waits else max(1, _BATCH_ELEMENTS // largest_tile(module))
    evaluator = BlockEvaluator(module.functions)
    batches = (
        Batch(module.kernel.name, grid, programs, memory) for programs in _chunks(prod(grid), size)
    )
    runs = (evaluator.run_block(module.kernel.body, values, {}, batch) for batch in batches)
    with np.errstate(all="ignore"):
        if waits:
            _take_turns(runs, memory, module.kernel.name)
        else:
            for single in runs:
                _take_turns(iter([single]), memory, module.kernel.name)


def prepare(
    module: Module, *, grid: tuple[int, int, int], arguments: Mapping[str, Argument]
) -> tuple[Memory, tuple[Array, ...]]:
    """Return the memory that the arguments make up, and the values of the kernel's parameters.

    Raises ArgumentError or LaunchError.
    """
    _check_grid(grid)
    _check_names(module, arguments)
    arrays = {
        name: _checked_array(name, arguments[name], parameter.dtype)
        for name, parameter in module.signature.runtime
        if isinstance(parameter, Pointer)
    }
    memory = Memory(arrays)
    values = tuple(
        np.array([memory.address(name)])
        if isinstance(parameter, Pointer)
        else _checked_scalar(name, arguments[name], parameter.dtype)
        for name, parameter in module.signature.runtime
    )
    return memory, values


class BlockEvaluator:
    """Runs blocks of one module, preparing each once. `functions` are what they may call."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._plans: dict[Block, BlockPlan] = {}

    def run_block(self, block: Block, arguments: Operands, env: Environment, batch: Batch) -> Run:
        """Run a block in an environment and give the operands of its terminator."""
        env.update(zip(block.arguments, arguments, strict=True))
        for step in self._plan(block).steps:
            operation = step.operation
            operands = tuple([env[value] for value in operation.operands])
            if step.control is not None:
                results = yield from step.control(operation, operands, env, batch, self)
                env.update(zip(operation.results, results, strict=True))
            elif step.compute is not None:
                result = step.compute(operation, operands, batch)
                if result is not None:
                    env[operation.result] = result
            for value in step.dead:
                del env[value]
        return tuple([env[value] for value in block.terminator.operands])

    def call(self, callee: str, arguments: Operands, batch: Batch) -> Run:
        """Run a function in an environment of its own and give what it returns."""
        return self.run_block(self._functions[callee].body, arguments, {}, batch)

    def captured(self, block: Block, env: Environment) -> Environment:
        """Return the part of an environment that a region reads."""
        return {value: env[value] for value in self._plan(block).captured}

    def _plan(self, block: Block) -> BlockPlan:
        plan = self._plans.get(block)
        if plan is None:
            plan = self._plans[block] = plan_block(block)
        return plan


def _take_turns(runs: Iterator[Run], memory: Memory, kernel: str) -> None:
    """Run coroutines to their ends, one turn each and round again.

    A round in which nobody stores, ends or changes what his loop carries would repeat for ever: an
    error.
    """
    waiting: deque[tuple[Run, Pause]] = deque()
    for fresh in runs:
        pause = next(fresh, None)
        if pause is not None:
            waiting.append((fresh, pause))
    while waiting:
        stores = memory.stores
        progress = False
        for _ in range(len(waiting)):
            current, before = waiting.popleft()
            pause = next(current, None)
            progress = progress or pause is None or not _is_repeated(before, pause)
            if pause is not None:
                waiting.append((current, pause))
        if not progress and memory.stores == stores:
            location = waiting[0][1].loop.location
            where = "" if location is None else f"\n  at {location.render()}"
            msg = (
                f"kernel {kernel!r} never ends: all that still runs repeats a loop "
                f"whose condition no program will change{where}"
            )
            raise InterpreterError(msg)


def _is_repeated(before: Pause, after: Pause) -> bool:
    return before.entry is after.entry and all(
        np.array_equal(old, new) for old, new in zip(before.carried, after.carried, strict=True)
    )


def _chunks(total: int, size: int) -> Iterator[Array]:
    for first in range(0, total, size):
        yield np.arange(first, min(first + size, total))


def _check_grid(grid: tuple[int, int, int]) -> None:
    if len(grid) != 3 or any(
        not 0 <= extent <= limit for extent, limit in zip(grid, _GRID_LIMITS, strict=True)
    ):
        msg = f"grid is {grid}; it has three extents from 0 to {_GRID_LIMITS}"
        raise LaunchError(msg)


def _check_names(module: Module, arguments: Mapping[str, Argument]) -> None:
    expected = [name for name, _ in module.signature.runtime]
    if sorted(expected) != sorted(arguments):
        msg = (
            f"kernel {module.kernel.name!r} takes the run-time arguments {expected}, "
            f"got {list(arguments)}"
        )
        raise ArgumentError(msg)


def _checked_array(name: str, argument: Argument, dtype: DType) -> Array:
    if not isinstance(argument, np.ndarray):
        msg = f"argument {name!r} points to {dtype}: pass an array, not {type(argument).__name__}"
        raise ArgumentError(msg)
    if from_numpy(argument.dtype) != dtype:
        msg = f"argument {name!r} points to {dtype}, got an array of {argument.dtype}"
        raise ArgumentError(msg)
    return argument


def _checked_scalar(name: str, argument: Argument, dtype: DType) -> Array:
    value: Any = argument.item() if isinstance(argument, np.generic) else argument
    kinds: tuple[type, ...] = (int, float)
    if dtype.is_integer:
        kinds = (bool,) if dtype.bits == 1 else (int,)
    is_of_kind = isinstance(value, kinds)
    if not is_of_kind:
        msg = f"argument {name!r} is of {dtype}, got {value!r} of {type(value).__name__}"
        raise ArgumentError(msg)
    if dtype.is_integer and dtype.bits > 1:
        limits = np.iinfo(to_numpy(dtype))
        if not limits.min <= value <= limits.max:
            msg = f"argument {name!r} is of {dtype}, {value} does not fit"
            raise ArgumentError(msg)
    return constant(value, dtype)
