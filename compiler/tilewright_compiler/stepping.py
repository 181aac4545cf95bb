"""A kernel run as the Python function it is, one program after the other: pdb can step in it.

The function's own code object runs, with other globals: names of the language build their operation
through the frontend, as always, and the operation is computed at once by the interpreter. So the
meaning of an operation is written down once, lines and breakpoints are the file's, and a variable
shows its values. Python does the control flow: `if` and `while` ask for a scalar's truth, `range`
gives scalars of its bounds' dtype.

What only a whole program can show is not checked here: the types that a loop or a branch must keep,
and names that a compiled kernel may not read. Programs that wait for each other wait for ever.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import prod
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright.errors import CompileError, SourceLocation
from tilewright.language.captures import MISSING, attribute_of
from tilewright.language.kernel import Kernel
from tilewright.language.registry import BUILTINS, is_builtin, is_function
from tilewright.language.types import constexpr
from tilewright_compiler.frontend import calls, convert, names, operators, subscripts
from tilewright_compiler.frontend.infer_types import common_dtype
from tilewright_compiler.frontend.lower import specialize
from tilewright_compiler.frontend.operands import (
    Constant,
    FunctionReference,
    KernelReference,
    MethodReference,
    Operand,
    SliceAll,
    TupleOperand,
    describe,
    flatten,
)
from tilewright_compiler.frontend.scope import Program, Scope
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.memory import Memory
from tilewright_compiler.interpret.tile import Argument, BlockEvaluator, prepare
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import PointerType, ScalarType, shape_of

_RANGES = (builtins.range, tl.range)
_BUILTINS = tuple(builtin.__name__ for builtin in BUILTINS)
_OPERATORS_BY_NAME = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_COMPARISONS_BY_NAME = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_COMPARISONS = frozenset(_COMPARISONS_BY_NAME.values())


def step_kernel(
    kernel: Kernel,
    signature: KernelSignature,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Argument],
) -> None:
    """Run a kernel over a grid, writing its array arguments in place.

    Raises what lowering or interpreting it would, at the line that runs, and what the function
    itself raises.
    """
    entry = Function(kernel.name, Block(_parameters(signature)), (), is_kernel=True)
    module = Module({kernel.name: entry}, signature)
    memory, values = prepare(module, grid=grid, arguments=arguments)
    for number in range(prod(grid)):
        _Stepper(kernel, module, grid, number, memory).run(values)


def _parameters(signature: KernelSignature) -> tuple[Value, ...]:
    return tuple(
        Value(PointerType(p.dtype) if isinstance(p, Pointer) else ScalarType(p.dtype), name)
        for name, p in signature.runtime
    )


class _Computing(Builder):
    """A builder that computes each operation as it is built."""

    def __init__(self, stepper: _Stepper) -> None:
        super().__init__(Block())
        self._stepper = stepper

    def create(self, name: str, *args: Any, **attributes: Any) -> Operation:
        self.location = self._stepper.here()
        operation = super().create(name, *args, **attributes)
        self._stepper.compute(operation)
        self.block.operations.clear()
        return operation


class _Stepper:
    """One program of a launch."""

    def __init__(
        self,
        kernel: Kernel,
        module: Module,
        grid: tuple[int, int, int],
        number: int,
        memory: Memory,
    ) -> None:
        self._kernel = kernel
        self._module = module
        self._batch = Batch(kernel.name, grid, np.array([number]), memory)
        self._env: dict[Value, Any] = {}
        self._codes: dict[object, Kernel] = {kernel.fn.__code__: kernel}
        program = Program(module.signature, specialize)
        self.scope = Scope(program, kernel, _Computing(self), active=(kernel,))

    def run(self, values: tuple[Any, ...]) -> None:
        """Call the kernel's function."""
        parameters = self._module.kernel.body.arguments
        self._env.update(zip(parameters, values, strict=True))
        given = {value.name: self.wrap(value) for value in parameters}
        given |= {
            name: self.wrap(Constant(value))
            for name, value in self._module.signature.constexprs.items()
        }
        arguments = [given[parameter.name] for parameter in self._kernel.parameters]
        with np.errstate(all="ignore"):
            self.function(self._kernel)(*arguments)

    def function(self, kernel: Kernel) -> FunctionType:
        """Return a kernel's function with the language's names bound to this program."""
        fn = kernel.fn
        self._codes[fn.__code__] = kernel
        space = {name: self.bind(getattr(builtins, name)) for name in _BUILTINS}
        space |= {name: self.bind(found) for name, found in fn.__globals__.items()}
        cells = tuple(CellType(self.bind(cell.cell_contents)) for cell in fn.__closure__ or ())
        defaults = tuple(map(self.bind, fn.__defaults__ or ()))
        bound = FunctionType(fn.__code__, space, fn.__name__, defaults, cells)
        bound.__kwdefaults__ = {k: self.bind(v) for k, v in (fn.__kwdefaults__ or {}).items()}
        return bound

    def bind(self, found: object) -> object:
        """Return what a name of the kernel means while it is stepped through."""
        match found:
            case Kernel():
                return _SteppedKernel(self, found)
            case constexpr():
                return found.value
            case ModuleType():
                return _SteppedModule(self, found)
        if found is constexpr:
            return lambda value: value
        if found is tl.static_range:
            return builtins.range
        if any(found is function for function in _RANGES):
            return self.range
        if callable(found) and (is_function(found) or is_builtin(found)):
            name = getattr(found, "__name__", "")
            reference = FunctionReference(found, f"tl.{name}" if is_function(found) else name)
            return _SteppedFunction(self, reference)
        return found

    def range(self, start: Any, end: Any = None, step: Any = 1, **_options: Any) -> Iterator[Any]:
        """Yield what a run-time loop's variable is: scalars of the bounds' promoted dtype."""
        if end is None:
            start, end = 0, start
        dtype = common_dtype(tuple(map(self.unwrap, (start, end, step))), "range")
        for number in builtins.range(int(start), int(end), int(step)):
            yield self.apply(partial(convert.constant, self.scope, number, dtype))

    def call(self, callee: Operand, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the language."""
        if isinstance(callee, FunctionReference) and is_builtin(callee.function):
            operands = [*args, *kwargs.values()]
            if not any(isinstance(leaf, Stepped) for leaf in _leaves(operands)):
                return callee.function(*args, **kwargs)
        positional = tuple(map(self.unwrap, args))
        keywords = {name: self.unwrap(value) for name, value in kwargs.items()}
        return self.apply(lambda: calls.call(self.scope, callee, positional, keywords))

    def apply(self, build: Callable[[], Operand]) -> Any:
        """Build, and so compute; an error gets the line of the kernel that runs."""
        self.scope.builder.location = self.here()
        try:
            return self.wrap(build())
        except CompileError as error:
            if not error.locations:
                error.locations = (self.here(),)
            raise

    def wrap(self, operand: Operand) -> Any:
        """Return an operand as what Python code of a kernel handles."""
        match operand:
            case Constant(value=value):
                return value
            case TupleOperand(items=items):
                return tuple(map(self.wrap, items))
            case KernelReference(kernel=kernel):
                return _SteppedKernel(self, kernel)
            case MethodReference():
                return lambda *args, **kwargs: self.call(operand, args, kwargs)
        return Stepped(self, operand)

    def unwrap(self, value: Any) -> Operand:
        """Return what `wrap` was given."""
        match value:
            case Stepped():
                return value.operand
            case tuple() | list():
                return TupleOperand(tuple(map(self.unwrap, value)))
            case _SteppedKernel():
                return KernelReference(value.kernel)
            case _SteppedFunction():
                return value.reference
            case slice():
                return SliceAll()
            case constexpr():
                return Constant(value.value)
        return Constant(value)

    def compute(self, operation: Operation) -> None:
        """Compute an operation now."""
        inputs = {leaf: self._env[leaf] for leaf in _outside(operation)}
        end = Operation("yield", operation.results, (), {}, (), operation.location)
        block = Block()
        block.operations.extend([operation, end])
        evaluator = BlockEvaluator(self.scope.program.functions)
        run = evaluator.run_block(block, (), inputs, self._batch)
        try:
            while True:
                next(run)
        except StopIteration as stop:
            self._env.update(zip(operation.results, stop.value, strict=True))

    def array(self, value: Value) -> Any:
        """Return the elements of a value, of its shape."""
        held = self._env[value]
        return np.broadcast_to(held, (1, *shape_of(value.type)))[0]

    def here(self) -> SourceLocation:
        """Return the line of a kernel that runs now."""
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code not in self._codes:
            frame = frame.f_back
        kernel = self._codes.get(frame.f_code, self._kernel)
        return SourceLocation(kernel.location.file, frame.f_lineno, 0, 0, kernel.name)


class Stepped:
    """A tile, scalar, pointer or block pointer with the values that it has in this program."""

    __slots__ = ("_stepper", "operand")
    __hash__ = None  # type: ignore[assignment]  # equality is elementwise

    def __init__(self, stepper: _Stepper, operand: Operand) -> None:
        self._stepper = stepper
        self.operand = operand

    @property
    def values(self) -> Any:
        """The elements as NumPy sees them; a pointer's are addresses."""
        if not isinstance(self.operand, Value):
            return tuple(self._stepper.wrap(leaf).values for leaf in flatten(self.operand))
        return self._stepper.array(self.operand)

    def __repr__(self) -> str:
        return f"<{describe(self.operand)}: {self.values}>"

    def __bool__(self) -> bool:
        truth = self._stepper.apply(lambda: operators.truth(self._scope, self.operand, "`if`"))
        return bool(truth.values) if isinstance(truth, Stepped) else bool(truth)

    def __index__(self) -> int:
        return int(self.values)

    def __getattr__(self, name: str) -> Any:
        return self._stepper.apply(lambda: names.attribute(self._scope, self.operand, name))

    def __getitem__(self, index: Any) -> Any:
        position = self._stepper.unwrap(index)
        return self._stepper.apply(
            lambda: subscripts.subscript(self._scope, self.operand, position)
        )

    def __neg__(self) -> Any:
        return self._stepper.apply(lambda: operators.negate(self._scope, self.operand))

    def __pos__(self) -> Any:
        return self._stepper.apply(lambda: operators.plus(self.operand))

    def __invert__(self) -> Any:
        return self._stepper.apply(lambda: operators.invert(self._scope, self.operand))

    @property
    def _scope(self) -> Scope:
        return self._stepper.scope


def _operator(symbol: str, *, is_reversed: bool = False) -> Callable[[Stepped, Any], Any]:
    def apply(self: Stepped, other: Any) -> Any:
        stepper = self._stepper
        pair = self.operand, stepper.unwrap(other)
        left, right = pair[::-1] if is_reversed else pair
        compute = operators.compare if symbol in _COMPARISONS else operators.binary
        return stepper.apply(lambda: compute(stepper.scope, symbol, left, right))

    return apply


for _name, _symbol in _COMPARISONS_BY_NAME.items():
    setattr(Stepped, f"__{_name}__", _operator(_symbol))
for _name, _symbol in _OPERATORS_BY_NAME.items():
    setattr(Stepped, f"__{_name}__", _operator(_symbol))
    setattr(Stepped, f"__r{_name}__", _operator(_symbol, is_reversed=True))


class _SteppedKernel:
    """A kernel that a kernel names: called, its function runs too."""

    def __init__(self, stepper: _Stepper, kernel: Kernel) -> None:
        self._stepper = stepper
        self.kernel = kernel

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stepper.function(self.kernel)(*args, **kwargs)


class _SteppedFunction:
    """A function of the language: called, it is computed; named alone, it is what reduces."""

    def __init__(self, stepper: _Stepper, reference: FunctionReference) -> None:
        self._stepper = stepper
        self.reference = reference

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stepper.call(self.reference, args, kwargs)


class _SteppedModule:
    """A module that a kernel names, with what the language gives a meaning bound."""

    def __init__(self, stepper: _Stepper, module: ModuleType) -> None:
        self._stepper = stepper
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = attribute_of(self._module, name)
        if found is MISSING:
            msg = f"module {self._module.__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return self._stepper.bind(found)


def _outside(operation: Operation) -> Iterator[Value]:
    """Yield the values that an operation reads, its regions included, and does not define."""
    own: set[Value] = set()
    for region in operation.regions:
        own.update(region.arguments)
        for inner in region.walk():
            own.update(inner.results)
            for nested in inner.regions:
                own.update(nested.arguments)
    yield from operation.operands
    for region in operation.regions:
        for inner in region.walk():
            yield from (value for value in inner.operands if value not in own)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        else:
            yield value
