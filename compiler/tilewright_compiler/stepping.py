"""A kernel run as the Python function it is, one program after the other: pdb can step in it.

The function runs with other globals: names of the language build their operation through the
frontend, as always, and the operation is computed at once by the interpreter. So the meaning of an
operation is written down once, lines and breakpoints are the file's, and a variable shows its
values. Python does the control flow: `if` and `while` ask for a scalar's truth, `range` gives
scalars of its bounds' dtype. Where the compiler makes a number a scalar shows only in a whole `if`
or loop: the function is rewritten to ask for it (`stepped_source`), and the answer is what the
frontend lowers that statement to, from the variables as they are.

What only a whole program can show is not checked here: the types that a loop or a branch must keep,
and names that a compiled kernel may not read. Programs that wait for each other wait for ever.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import prod
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1, int64
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright.errors import CompileError, SourceLocation
from tilewright.language.captures import MISSING, attribute_of
from tilewright.language.kernel import Kernel
from tilewright.language.registry import BUILTINS, is_builtin, is_function
from tilewright.language.types import constexpr
from tilewright_compiler.frontend import calls, convert, names, operators, subscripts
from tilewright_compiler.frontend.constants import convert as as_dtype
from tilewright_compiler.frontend.escapes import escapes_of
from tilewright_compiler.frontend.expressions import evaluate
from tilewright_compiler.frontend.infer_types import common_dtype
from tilewright_compiler.frontend.lower import specialize
from tilewright_compiler.frontend.operands import (
    Constant,
    FunctionReference,
    KernelReference,
    MethodReference,
    Namespace,
    Operand,
    SliceAll,
    TupleOperand,
    describe,
    flatten,
)
from tilewright_compiler.frontend.scope import Program, Rest, Scope, Variable
from tilewright_compiler.frontend.statements import execute
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.memory import Memory
from tilewright_compiler.interpret.tile import Argument, BlockEvaluator, prepare
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import PointerType, ScalarType, shape_of
from tilewright_compiler.stepped_source import STEPPER, rewrite

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
        self._codes: dict[object, Kernel] = {}
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
        fn, source = kernel.fn, rewrite(kernel)
        self._codes[source.code] = kernel
        space = {name: self.bind(getattr(builtins, name)) for name in _BUILTINS}
        space |= {name: self.bind(found) for name, found in fn.__globals__.items()}
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        space |= {name: self.bind(cell.cell_contents) for name, cell in cells}
        space["__builtins__"] = builtins
        space[STEPPER] = _Call(self, kernel, source.nodes, space)
        defaults = tuple(map(self.bind, fn.__defaults__ or ()))
        bound = FunctionType(source.code, space, fn.__name__, defaults)
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
            return _SteppedFunction(self, FunctionReference(constexpr, "tl.constexpr"))
        if callable(found) and (is_function(found) or is_builtin(found)):
            name = getattr(found, "__name__", "")
            reference = FunctionReference(found, f"tl.{name}" if is_function(found) else name)
            return _SteppedFunction(self, reference)
        return found

    def range(self, start: Any, end: Any = None, step: Any = 1, **_options: Any) -> Iterator[Any]:
        """Yield what a run-time loop's variable is: scalars of the bounds' promoted dtype."""
        if end is None:
            start, end = 0, start
        is_reversed = not isinstance(step, Stepped) and step < 0
        bounds = (start, end, -step if is_reversed else step)
        dtype = common_dtype(tuple(map(self.unwrap, bounds)), "range")
        if is_reversed and dtype.kind == "uint":
            dtype = int64  # what a loop that counts downwards counts in
        first, last, stride = (int(as_dtype(int(bound), dtype)) for bound in bounds)
        numbers: Iterable[int] = builtins.range(first, last, stride)
        if is_reversed:
            distance = int(as_dtype(first - last, dtype))
            numbers = (first - passed for passed in builtins.range(0, distance, stride))
        for number in numbers:
            yield self.apply(partial(convert.constant, self.scope, number, dtype))

    def call(self, callee: Operand, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the language."""
        if isinstance(callee, FunctionReference):
            if any(callee.function is function for function in _RANGES):
                return self.range(*args, **kwargs)
            if callee.function is tl.static_range:
                return _static_range(*args, **kwargs)
            leaves = list(_leaves([*args, *kwargs.values()]))
            if is_builtin(callee.function) and not all(
                isinstance(leaf, Stepped) or _is_number(leaf) for leaf in leaves
            ):
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
            case _SteppedModule():
                return Namespace(value.module)
            case slice():
                return SliceAll()
            case constexpr():
                return Constant(value.value)
        return Constant(value)

    def conform(self, value: Any, operand: object) -> Any:
        """Return a number as the scalar that the compiler made of it, `operand`, if it did."""
        match operand:
            case Value(type=type_) if _is_number(value):
                return self.apply(lambda: convert.as_type(self.scope, Constant(value), type_))
            case TupleOperand(items=items) if _is_sequence(value) and len(items) == len(value):
                return tuple(map(self.conform, value, items))
        return value

    def lowering(self, kernel: Kernel, variables: dict[str, Variable]) -> Scope:
        """Return a scope in which a part of a kernel is lowered only to see its types."""
        program, active = self.scope.program, tuple(dict.fromkeys((self._kernel, kernel)))
        return Scope(program, kernel, Builder(Block(), self.here()), variables, active=active)

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
        # What settles the names after a branch or an iteration has no line of its own.
        line = frame.f_lineno or kernel.location.line
        return SourceLocation(kernel.location.file, line, 0, 0, kernel.name)


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

    def __format__(self, spec: str) -> str:
        try:
            return format(self.values.item(), spec) if spec else str(self)
        except (AttributeError, TypeError, ValueError):
            return str(self)  # no scalar, or none that is written so

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
        stepper = self._stepper
        result = stepper.function(self.kernel)(*args, **kwargs)
        if not any(map(_is_number, _leaves([result]))):
            return result
        positional = tuple(map(stepper.unwrap, args))
        keywords = {name: stepper.unwrap(value) for name, value in kwargs.items()}
        scope = stepper.lowering(stepper.scope.kernel, {})
        try:
            returned = calls.call(scope, KernelReference(self.kernel), positional, keywords)
        except CompileError:
            return result
        return stepper.conform(result, returned)


class _SteppedFunction:
    """A function of the language: called, it is computed; named alone, it is what reduces."""

    def __init__(self, stepper: _Stepper, reference: FunctionReference) -> None:
        self._stepper = stepper
        self.reference = reference

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stepper.call(self.reference, args, kwargs)


class _Call:
    """One call of a kernel's function: what its rewritten code asks, as `__stepper__`."""

    def __init__(
        self,
        stepper: _Stepper,
        kernel: Kernel,
        nodes: tuple[ast.stmt | ast.expr, ...],
        space: Mapping[str, Any],
    ) -> None:
        self._stepper = stepper
        self._kernel = kernel
        self._nodes = nodes
        self._space = space
        self._lefts: dict[int, Any] = {}
        self._entered: dict[int, _Entered] = {}
        self.settled: Any = None

    def attribute(self, value: Any, name: str) -> Any:
        """Return `value.name`; a number and a dtype have the language's attributes."""
        is_constant = type(value) in (bool, int, float, DType)
        if is_constant or (name == "value" and (value is None or isinstance(value, str))):
            scope = self._stepper.scope
            return self._stepper.apply(lambda: names.attribute(scope, Constant(value), name))
        return getattr(value, name)

    def logical_not(self, value: Any) -> Any:
        """Return `not value`."""
        if not isinstance(value, Stepped):
            return not value
        scope = self._stepper.scope
        return self._stepper.apply(lambda: operators.logical_not(scope, value.operand))

    def invert(self, value: Any) -> Any:
        """Return `~value`; bools are masks, so that ~True is False."""
        return not value if isinstance(value, bool) else ~value

    def chain(self, symbols: tuple[str, ...], *values: Any) -> Any:
        """Return `a < b < c`: every link is computed."""
        stepper, scope = self._stepper, self._stepper.scope
        operands = tuple(map(stepper.unwrap, values))

        def build() -> Operand:
            result: Operand | None = None
            for symbol, left, right in zip(symbols, operands[:-1], operands[1:], strict=True):
                link = operators.compare(scope, symbol, left, right)
                truth = operators.truth(scope, link, "a chained comparison")
                if result is None:
                    result = truth
                elif isinstance(result, Constant) and isinstance(truth, Constant):
                    result = Constant(bool(result.value and truth.value))
                else:
                    both = result, truth
                    result = operators.elementwise(scope, "and", both, int1, "a comparison")
            assert result is not None, "a comparison has an operator"
            return result

        return stepper.apply(build)

    def left(self, number: int, value: Any) -> bool:
        """Return the truth of the left side of `and` or `or`, or of a conditional expression."""
        self._lefts[number] = value
        return bool(value)

    def decided(self, number: int) -> Any:
        """Return `and` or `or` where the left side decides."""
        left = self._lefts.pop(number)
        return self._truth(left) if isinstance(left, Stepped) else left

    def right(self, number: int, value: Any) -> Any:
        """Return `and` or `or` where the right side decides."""
        return self._truth(value) if isinstance(self._lefts.pop(number), Stepped) else value

    def chosen(self, number: int, value: Any) -> Any:
        """Return a conditional expression's value from that of the branch that was taken."""
        is_run_time = isinstance(self._lefts.pop(number), Stepped)
        if not is_run_time or not any(map(_is_number, _leaves([value]))):
            return value
        node = self._nodes[number]
        assert isinstance(node, ast.expr)
        scope = self._lowering(sys._getframe(1).f_locals)
        try:
            return self._stepper.conform(value, evaluate(scope, node))
        except CompileError:
            return value

    def branch(self, number: int, test: Any) -> bool:
        """Return the truth of an `if`'s test, remembering what there was before the branches."""
        self._entered.pop(number, None)
        if isinstance(test, Stepped):
            self._entered[number] = _Entered(dict(sys._getframe(1).f_locals))
        return bool(test)

    def enter(self, number: int) -> None:
        """Remember what there is before a loop."""
        self._entered[number] = _Entered(dict(sys._getframe(1).f_locals))

    def joins(self, number: int, name: str) -> bool:
        """Return whether a branch ends with a number that is a scalar; `settled` is that."""
        return number in self._entered and self._settle(number, name, sys._getframe(1).f_locals)

    def carries(self, number: int, name: str) -> bool:
        """Return whether a loop carries a number as a scalar; `settled` is that."""
        return self._settle(number, name, sys._getframe(1).f_locals, is_unrolled=False)

    def leaves(self, number: int, name: str) -> bool:
        """Return whether an unrolled loop leaves a number as a scalar; `settled` is that."""
        return self._settle(number, name, sys._getframe(1).f_locals, is_unrolled=True)

    def _settle(
        self,
        number: int,
        name: str,
        variables: Mapping[str, Any],
        *,
        is_unrolled: bool | None = None,
    ) -> bool:
        value = variables.get(name)
        if not any(map(_is_number, _leaves([value]))):
            return False
        entered = self._entered[number]
        if entered.after is None:
            entered.after = self._lower(number, entered)
        if is_unrolled is not None and is_unrolled != entered.is_unrolled:
            return False
        after = entered.after.get(name)
        self.settled = self._stepper.conform(value, None if after is None else after.operand)
        return self.settled is not value

    def _lower(self, number: int, entered: _Entered) -> dict[str, Variable]:
        """Return the variables after a statement as the compiler has them."""
        node = self._nodes[number]
        assert isinstance(node, ast.stmt)
        scope = self._lowering(entered.variables)
        try:
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
                reference = evaluate(scope, node.iter.func)
                entered.is_unrolled = (
                    isinstance(reference, FunctionReference)
                    and reference.function is tl.static_range
                )
                # What one unrolled iteration leaves, the next goes on with, as Python does.
                if entered.is_unrolled and not escapes_of(node.body):
                    return {}
            # Branches that may return meet where something follows.
            scope.pending = (Rest("statements", lambda: None, (node,)),)
            execute(scope, [node])
        except CompileError:
            # Nothing is checked here, and the body may hold Python that the language lacks.
            return {}
        return scope.variables

    def _lowering(self, variables: Mapping[str, Any]) -> Scope:
        globals_ = {
            name: self._space[name]
            for name in self._kernel.fn.__code__.co_names + self._kernel.fn.__code__.co_freevars
            if name in self._space
        }
        found = {
            name: Variable(self._stepper.unwrap(value), self._kernel.location)
            for name, value in (globals_ | dict(variables)).items()
        }
        return self._stepper.lowering(self._kernel, found)

    def _truth(self, value: Any) -> Any:
        stepper, what = self._stepper, "`and` or `or`"
        truth = partial(operators.truth, stepper.scope, stepper.unwrap(value), what)
        return stepper.apply(lambda: convert.as_number(stepper.scope, truth(), int1, what))


class _Entered:
    """An `if` or a loop that was entered: the variables before it, and after it once asked for."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables
        self.after: dict[str, Variable] | None = None
        self.is_unrolled = False


class _SteppedModule:
    """A module that a kernel names, with what the language gives a meaning bound."""

    def __init__(self, stepper: _Stepper, module: ModuleType) -> None:
        self._stepper = stepper
        self.module = module

    def __getattr__(self, name: str) -> Any:
        found = attribute_of(self.module, name)
        if found is MISSING:
            return getattr(self.module, name)  # raises, in the module's words
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


def _static_range(start: int, end: int | None = None, step: int = 1) -> builtins.range:
    return builtins.range(start) if end is None else builtins.range(start, end, step)


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float)


def _is_sequence(value: object) -> bool:
    return isinstance(value, tuple | list)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        else:
            yield value
