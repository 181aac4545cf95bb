"""`for` over a range, unrolled `tl.static_range`, and `while`.

A run-time `for` counts upwards in one integer type; a negative step, which must be known at compile
time, counts the distance from the start instead. A run-time step is taken to be positive. The loop
variable has no value after the loop, because the loop may not have run.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1, int64, uint64
from tilewright.errors import KernelSyntaxError, KernelTypeError, KernelValueError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments, registry
from tilewright_compiler.frontend.carried import (
    Carried,
    assigned_names,
    carried_variables,
    drop_unchanged,
)
from tilewright_compiler.frontend.escapes import branch, escapes_of
from tilewright_compiler.frontend.expressions import evaluate, evaluate_arguments, short_circuit
from tilewright_compiler.frontend.infer_types import common_dtype, shape_of_operand
from tilewright_compiler.frontend.operands import (
    NONE,
    Constant,
    FunctionReference,
    Operand,
    describe,
    is_number,
)
from tilewright_compiler.frontend.scope import Rest, Retype, Scope, Undefined, Variable
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType

Execute = Callable[[Scope, Sequence[ast.stmt]], None]

MAX_UNROLLED = 4096
_HINTS = ("flatten", "warp_specialize", "disallow_acc_multi_buffer", "disable_licm")


@dataclass(frozen=True, slots=True)
class _Range:
    start: Operand
    end: Operand
    step: Operand
    attributes: dict[str, int]


def execute_for(scope: Scope, node: ast.For, execute: Execute) -> None:
    """Lower a `for` statement."""
    if not isinstance(node.target, ast.Name):
        with scope.at(node.target):
            msg = f"the variable of a `for` is one name, got `{ast.unparse(node.target)}`"
            raise KernelSyntaxError(msg)
    with scope.at(node.iter):
        function, bounds = _range(scope, node.iter)
    if function is tl.static_range:
        _unroll(scope, node, node.target.id, bounds, execute)
    elif "break" in escapes_of(node.body):
        _count_until(scope, node, node.target.id, bounds, execute)
    else:
        _count(scope, node, node.target.id, bounds, execute)


def _range(scope: Scope, node: ast.expr) -> tuple[object, _Range]:
    callee = evaluate(scope, node.func) if isinstance(node, ast.Call) else None
    ranges = (builtins.range, tl.range, tl.static_range)
    if not isinstance(callee, FunctionReference) or callee.function not in ranges:
        msg = (
            "a `for` runs over range(...), tl.range(...) or tl.static_range(...), got "
            f"`{ast.unparse(node)}`; to go through a tuple, index it with the variable of a "
            "tl.static_range"
        )
        raise KernelSyntaxError(msg)
    assert isinstance(node, ast.Call)
    positional, keywords = evaluate_arguments(scope, node)
    if callee.function is builtins.range and keywords:
        msg = "range takes no keyword arguments; tl.range has options"
        raise KernelTypeError(msg)
    # Python's range means tl.range, and has no signature to ask for.
    stub = tl.static_range if callee.function is tl.static_range else tl.range
    given = registry.bind(stub, callee.name, positional, keywords)
    start, end = given["start"], given["end"]
    if end == NONE:
        start, end = Constant(0), start
    bounds = _Range(start, end, given["step"], _options(given))
    for operand, what in ((start, "start"), (end, "end"), (bounds.step, "step")):
        dtype = common_dtype((operand,), f"the {what} of {callee.name}")
        if dtype.is_float or dtype == int1 or shape_of_operand(operand):
            msg = f"the {what} of {callee.name} is an integer, got {describe(operand)}"
            raise KernelTypeError(msg)
    if "unroll" in bounds.attributes and not isinstance(bounds.step, Constant):
        msg = (
            "`loop_unroll_factor` of tl.range needs a step that is known at compile time, got "
            f"{describe(bounds.step)}; make it tl.constexpr, or leave the factor out"
        )
        raise KernelValueError(msg)
    if isinstance(bounds.step, Constant) and bounds.step.value == 0:
        msg = f"the step of {callee.name} is 0; the loop would not end"
        raise KernelValueError(msg)
    return stub, bounds


def _options(given: dict[str, Operand]) -> dict[str, int]:
    """Return the attributes that the options of tl.range give a loop."""
    attributes: dict[str, int] = {}
    for option, attribute in (("num_stages", "num_stages"), ("loop_unroll_factor", "unroll")):
        if given.get(option, NONE) == NONE:
            continue
        number = arguments.integer(given[option], f"`{option}` of tl.range")
        if number < 1:
            msg = f"`{option}` of tl.range is at least 1, got {number}"
            raise KernelValueError(msg)
        if number > 1 or option == "num_stages":
            attributes[attribute] = number
    if attributes.get("unroll", 1) > MAX_UNROLLED:
        msg = f"`loop_unroll_factor` of tl.range is at most {MAX_UNROLLED}"
        raise KernelValueError(msg)
    for option in _HINTS:
        if option in given:
            arguments.flag(given[option], f"`{option}` of tl.range")
    return attributes


def _unroll(scope: Scope, node: ast.For, name: str, bounds: _Range, execute: Execute) -> None:
    with scope.at(node.iter):
        indices = _static_indices(bounds)
    pending, flag, ways_out = scope.pending, _flag(node), escapes_of(node.body)

    def iterate(position: int) -> None:
        while position < len(indices):
            rest = Rest("statements", partial(resume, position + 1), node.body)
            scope.pending = (*pending, rest, Rest("iteration", flag=flag))
            with scope.at(node.target):
                scope.assign(name, Constant(indices[position]))
                scope.assign(flag, Constant(False))
            execute(scope, node.body)
            scope.pending, scope.leaving = pending, False
            position += 1
            if scope.result is not None or not goes_on(position):
                return

    def goes_on(position: int) -> bool:
        """Tell whether the loop goes on; where that shows at run time, go on under an `if`."""
        broken = scope.lookup(flag)
        if isinstance(broken, Value) and position < len(indices):
            bodies = (lambda: None), partial(iterate, position)
            branch(scope, broken, ways_out & {"return"}, bodies, "a loop with a `break`")
            return False
        return broken == Constant(False)

    def resume(position: int) -> None:
        if goes_on(position):
            iterate(position)

    iterate(0)
    scope.variables.pop(flag, None)


def _flag(node: ast.For | ast.While) -> str:
    """Return the name, which no kernel can spell, of what says that a loop was left by `break`."""
    return f"break of line {node.lineno}"


def _static_indices(bounds: _Range) -> builtins.range:
    numbers = []
    for operand, what in ((bounds.start, "start"), (bounds.end, "end"), (bounds.step, "step")):
        if not isinstance(operand, Constant) or not isinstance(operand.value, int):
            msg = (
                f"the {what} of tl.static_range is known at compile time, got {describe(operand)}; "
                "use range"
            )
            raise KernelTypeError(msg)
        numbers.append(operand.value)
    indices = builtins.range(*numbers)
    if len(indices) > MAX_UNROLLED:
        msg = (
            f"tl.static_range of {len(indices)} iterations; at most {MAX_UNROLLED} are unrolled, "
            "use range"
        )
        raise KernelValueError(msg)
    return indices


def _count(scope: Scope, node: ast.For, name: str, bounds: _Range, execute: Execute) -> None:
    description = f"the `for` loop at line {node.lineno}"
    with scope.at(node.iter):
        counter = _counter(scope, bounds)
    carried = carried_variables(scope, node.body, name)
    copies = scope.copies
    while True:
        scope.copies = copies
        index = Value(counter.lower.type, name if counter.start is None else f"{name}_distance")
        arguments = carried.arguments(scope)
        try:
            with scope.nested(description, (index, *arguments)) as body:
                carried.bind(scope, arguments)
                with scope.at(node.target):
                    scope.assign(name, _counted(scope, counter, index))
                execute(scope, node.body)
                yielded = carried.close(scope, arguments)
        except Retype as retype:
            carried.retype(retype, arguments)
            continue
        except KernelTypeError:
            # A number that was taken to stay as it is may be what does not fit.
            if carried.carry_all():
                continue
            raise
        if yielded is not None:
            break
    initial = carried.initial_values(scope)
    remaining = drop_unchanged((body.block,), yielded, initial)
    with scope.filling(body.block):
        scope.builder.create("yield", remaining.yielded)
    loop = scope.builder.create(
        "for",
        (counter.lower, counter.upper, counter.step, *remaining.initial),
        [value.type for value in remaining.initial],
        (body.block,),
    )
    loop.attributes.update(bounds.attributes)
    _leave(scope, node.body, carried, remaining.after(loop.results), description)
    _forget(scope, node, name, description)


def _forget(scope: Scope, node: ast.For, name: str, description: str) -> None:
    """Leave the variable of a run-time loop without a value."""
    with scope.at(node.target) as location:
        reason = (
            f"is the variable of {description} and has no value after it; copy it to a variable "
            "set before"
        )
        scope.variables[name] = Variable(Undefined(reason), location)


def _count_until(scope: Scope, node: ast.For, name: str, bounds: _Range, execute: Execute) -> None:
    """Lower a `for` with a `break` as a `while` over the number of iterations done."""
    description = f"the `for` loop at line {node.lineno}"
    if "unroll" in bounds.attributes:
        with scope.at(node.iter):
            msg = (
                "`loop_unroll_factor` of tl.range does not go with a `break`: how often the loop "
                "runs is not known before; leave one of them out"
            )
            raise KernelValueError(msg)
    done = f"iterations of line {node.lineno}"
    with scope.at(node.iter):
        counter = _counter(scope, bounds)
        count = _trip_count(scope, counter)
        scope.assign(done, convert.constant(scope, 0, uint64))
    dtype = common_dtype((counter.lower,), "range")

    def test() -> Operand:
        return operators.compare(scope, "<", _local(scope, done), count)

    def begin() -> None:
        position = _local(scope, done)
        moved = operators.elementwise(
            scope, "mul", (convert.cast(scope, position, dtype), counter.step), dtype, "range"
        )
        index = operators.elementwise(scope, "add", (counter.lower, moved), dtype, "range")
        scope.assign(name, _counted(scope, counter, index))
        one = Constant(1)
        scope.assign(done, operators.elementwise(scope, "add", (position, one), uint64, "range"))

    _repeat(scope, node, description, test, begin, (done,), execute)
    scope.variables.pop(done)
    _forget(scope, node, name, description)


def _local(scope: Scope, name: str) -> Value:
    value = scope.lookup(name)
    assert isinstance(value, Value)
    return value


def _trip_count(scope: Scope, counter: _Counter) -> Value:
    """Build how often a `for` iterates, in unsigned 64 bits, which hold every distance."""
    runs = operators.compare(scope, "<", counter.lower, counter.upper)
    lower, upper, step = (
        _unsigned(scope, value) for value in (counter.lower, counter.upper, counter.step)
    )
    one = Constant(1)
    distance = operators.elementwise(scope, "sub", (upper, lower), uint64, "range")
    before_last = operators.elementwise(scope, "sub", (distance, one), uint64, "range")
    whole = operators.elementwise(scope, "div", (before_last, step), uint64, "range")
    count = operators.elementwise(scope, "add", (whole, one), uint64, "range")
    assert isinstance(runs, Value)
    zero = convert.constant(scope, 0, uint64)
    return scope.builder.value("select", (runs, count, zero), count.type)


def _unsigned(scope: Scope, value: Value) -> Value:
    dtype = common_dtype((value,), "range")
    if not dtype.is_signed:
        return convert.cast(scope, value, uint64)
    wide = convert.cast(scope, value, int64)
    return scope.builder.value("bitcast", (wide,), ScalarType(uint64))


@dataclass(frozen=True, slots=True)
class _Counter:
    """What the operation counts. With a `start`, the distance from there downwards."""

    lower: Value
    upper: Value
    step: Value
    start: Value | None = None


def _counter(scope: Scope, bounds: _Range) -> _Counter:
    is_reversed = is_number(bounds.step) and _is_negative(bounds.step)
    # A negative step would not fit the dtype of unsigned bounds; its negation does.
    step = operators.negate(scope, bounds.step) if is_reversed else bounds.step
    dtype = common_dtype((bounds.start, bounds.end, step), "range")
    if is_reversed and dtype.kind == "uint":
        dtype = int64  # the distance is negative when there is nothing to do
    start, end = _bound(scope, bounds.start, dtype), _bound(scope, bounds.end, dtype)
    if not is_reversed:
        return _Counter(start, end, _bound(scope, step, dtype))
    distance = operators.elementwise(scope, "sub", (start, end), dtype, "range")
    return _Counter(convert.constant(scope, 0, dtype), distance, _bound(scope, step, dtype), start)


def _counted(scope: Scope, counter: _Counter, index: Value) -> Value:
    if counter.start is None:
        return index
    dtype = common_dtype((index,), "range")
    return operators.elementwise(scope, "sub", (counter.start, index), dtype, "range")


def _bound(scope: Scope, operand: Operand, dtype: DType) -> Value:
    return convert.as_number(scope, operand, dtype, "range")


def _is_negative(operand: Operand) -> bool:
    return isinstance(operand, Constant) and isinstance(operand.value, int) and operand.value < 0


def execute_while(scope: Scope, node: ast.While, execute: Execute) -> None:
    """Lower a `while` statement."""
    description = f"the `while` loop at line {node.lineno}"

    def test() -> Operand:
        return evaluate(scope, node.test)

    _repeat(scope, node, description, test, lambda: None, (), execute)


def _repeat(
    scope: Scope,
    node: ast.For | ast.While,
    description: str,
    test: Callable[[], Operand],
    begin: Callable[[], None],
    hidden: tuple[str, ...],
    execute: Execute,
) -> None:
    """Build a loop that runs `begin` and the body while `test` is true and no `break` was met."""
    place = node.test if isinstance(node, ast.While) else node.iter
    flag = _flag(node)
    if "break" in escapes_of(node.body):
        scope.assign(flag, Constant(False))
        hidden = (*hidden, flag)
    carried = carried_variables(scope, node.body, None, hidden)
    copies = scope.copies
    while True:
        scope.copies = copies
        tested, passed = carried.arguments(scope), carried.arguments(scope)
        try:
            with scope.nested(description, tested) as before:
                carried.bind(scope, tested)
                with scope.at(place):
                    condition = _goes_on(scope, flag, test)
            if isinstance(condition, Constant):
                if condition.value and not carried.carry_all():
                    _refuse_endless(scope, place)
                if not condition.value:
                    scope.variables.pop(flag, None)
                    return
                continue
            with scope.nested(description, passed) as after:
                scope.pending = (Rest("iteration", flag=flag),)
                carried.bind(scope, passed)
                with scope.at(place):
                    begin()
                execute(scope, node.body)
                yielded = carried.close(scope, passed)
        except Retype as retype:
            carried.retype(retype, tested if retype.value in tested else passed)
            continue
        except KernelTypeError:
            if carried.carry_all():
                continue
            raise
        if yielded is not None:
            break
    initial = carried.initial_values(scope)
    remaining = drop_unchanged((before.block, after.block), yielded, initial)
    with scope.filling(before.block):
        scope.builder.create(
            "condition", (remaining.replaced.get(condition, condition), *before.block.arguments)
        )
    with scope.filling(after.block):
        scope.builder.create("yield", remaining.yielded)
    loop = scope.builder.create(
        "while",
        remaining.initial,
        [value.type for value in remaining.initial],
        (before.block, after.block),
    )
    _leave(scope, node.body, carried, remaining.after(loop.results), description)
    scope.variables.pop(flag, None)


def _goes_on(scope: Scope, flag: str, test: Callable[[], Operand]) -> Constant | Value:
    """Build whether a loop goes on; after a `break` its condition is not asked again."""
    broken = scope.lookup(flag)
    if not isinstance(broken, Value):
        return operators.truth(scope, test(), "`while`")
    whole = operators.logical_not(scope, broken)
    assert isinstance(whole, Value)
    return short_circuit(scope, True, whole, test, "`while`")


def _refuse_endless(scope: Scope, test: ast.expr) -> NoReturn:
    with scope.at(test):
        msg = "this `while` never ends: its condition is true at compile time"
        raise KernelValueError(msg)


def _leave(
    scope: Scope,
    body: Sequence[ast.stmt],
    carried: Carried,
    values: Sequence[Value],
    description: str,
) -> None:
    """Set the variables after a loop: results for the carried ones, no value for the body's own."""
    carried.bind(scope, values)
    carried.name(values)
    for name in assigned_names(body):
        if name not in carried.entries:
            reason = (
                f"has a value only inside {description}, which may not run; assign it before the "
                "loop"
            )
            location = scope.builder.location
            assert location is not None, "statements are lowered at their location"
            scope.variables[name] = Variable(Undefined(reason), location)
