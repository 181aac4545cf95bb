"""Replaces what is known at compile time: constants, identities, decided branches and masks.

One forward walk; an operand is already folded when its user is looked at, so one walk reaches
everything but facts carried around a loop. A tile is known if it is a splat of a constant, or, for
the low bits of what is aligned, if axis analysis says so. Every rule gives the same bits as the
operation that it replaces, NaN and -0 included: `x * 1` folds for all types, `x * 0` and `x + 0`
for integers only. What cannot be decided exactly is `ir.evaluate`'s to refuse. Operations that lose
their users are left to `dce`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.abi.dtypes import SATURATED
from tilewright.abi.signature import KernelSignature, Scalar
from tilewright_compiler.analysis.axis_info import AxisInfo, analyze
from tilewright_compiler.ir.builder import Builder, ValueMap, copy_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.evaluate import Constant, convert, evaluate, is_exact_cast, wrap
from tilewright_compiler.ir.ops.atomics import mask_index
from tilewright_compiler.ir.types import ScalarType, TileType, Type, element_dtype, shape_of

# Operations that only arrange elements: what they make of a splat is a splat.
_ARRANGING = ("expand_dims", "broadcast", "reshape", "transpose")
# What alignment may decide.
_BITWISE = ("and", "rem")


def fold(module: Module) -> Module:
    """Return the module with everything known at compile time replaced."""
    axis_info = analyze(module)
    functions = {
        name: _Folder(axis_info).function(function, module.signature)
        for name, function in module.functions.items()
    }
    return Module(functions, module.signature, dict(module.attributes))


class _Folder:
    """Copies one function. Constants and definitions are those of the copy's values."""

    def __init__(self, axis_info: Mapping[Value, AxisInfo]) -> None:
        self._axis_info = axis_info
        self._values: ValueMap = {}
        self._constants: dict[Value, Constant] = {}
        self._definitions: dict[Value, Operation] = {}

    def function(self, function: Function, signature: KernelSignature) -> Function:
        body, builder = self._start(function.body)
        if function.is_kernel:
            builder.location = function.location
            for argument, (_, parameter) in zip(
                function.body.arguments, signature.runtime, strict=True
            ):
                if isinstance(parameter, Scalar) and parameter.unit:
                    self._values[argument] = self._constant(1, argument.type, builder)
        self._operations(function.body.operations, builder)
        return Function(
            function.name, body, function.result_types, function.is_kernel, function.location
        )

    def _start(self, block: Block) -> tuple[Block, Builder]:
        copy = Block(tuple(Value(argument.type, argument.name) for argument in block.arguments))
        self._values.update(zip(block.arguments, copy.arguments, strict=True))
        return copy, Builder(copy)

    def _operations(self, operations: Sequence[Operation], builder: Builder) -> None:
        for operation in operations:
            builder.location = operation.location
            results = self._folded(operation, builder)
            if results is not None:
                for old, new in zip(operation.results, results, strict=True):
                    self._values[old] = new
                    new.name = new.name or old.name
                continue
            regions = []
            for region in operation.regions:
                copy, inner = self._start(region)
                self._operations(region.operations, inner)
                regions.append(copy)
            self._note(copy_operation(operation, self._values, builder, regions))

    def _folded(self, operation: Operation, builder: Builder) -> Sequence[Value] | None:
        """Return what to use instead of the operation's results, or None to keep it."""
        operands = [self._values[value] for value in operation.operands]
        match operation.name:
            case "if":
                return self._fold_if(operation, operands[0], builder)
            case "for":
                return self._fold_for(operation, operands, builder)
            case "load" | "store":
                return self._fold_access(operation, operands, builder)
            case "atomic_load" | "atomic_rmw" | "atomic_cas":
                return self._fold_atomic(operation, operands, builder)
        if len(operation.results) != 1 or operation.regions:
            return None
        type_ = operation.result.type
        constant = self._evaluated(operation, operands)
        if constant is None and operation.name in _BITWISE:
            constant = self._axis_info[operation.result].constant
        if constant is not None:
            return [self._constant(constant, type_, builder)]
        if operation.name in _ARRANGING:
            return self._fold_arranging(operands[0], type_, operation, builder)
        if operation.name == "cast":
            return self._fold_cast(operands[0], type_, builder)
        same = _identity(operation, operands, [self._constants.get(value) for value in operands])
        if same is None or isinstance(same, Value):
            return None if same is None else [same]
        return [self._constant(same, type_, builder)]

    def _evaluated(self, operation: Operation, operands: list[Value]) -> Constant | None:
        """Return the one element of the result, where all operands are known."""
        if operation.name == "arange" and shape_of(operation.result.type) == (1,):
            start: int = operation.attributes["start"]
            return start
        known = [self._constants[value] for value in operands if value in self._constants]
        if not operands or len(known) != len(operands):
            return None
        if operation.name == "reduce":
            return _reduced(operation, known[0])
        return evaluate(operation, known)

    def _fold_arranging(
        self, operand: Value, type_: Type, operation: Operation, builder: Builder
    ) -> Sequence[Value] | None:
        order = operation.attributes.get("order", ())
        if operand.type == type_ and order == tuple(sorted(order)):
            return [operand]
        definition = self._definitions.get(operand)
        if definition is None or definition.name != "splat":
            return None
        return [self._splat(definition.operands[0], type_, builder)]

    def _fold_cast(self, operand: Value, type_: Type, builder: Builder) -> Sequence[Value] | None:
        """Drop casts to the same type, and the first of two if it loses nothing."""
        if operand.type == type_:
            return [operand]
        definition = self._definitions.get(operand)
        if definition is None or definition.name != "cast":
            return None
        origin = definition.operands[0]
        first, middle, last = map(element_dtype, (origin.type, operand.type, type_))
        # An integer by way of a float saturates where the direct way wraps.
        changes_rule = middle.is_float and not first.is_float and not last.is_float
        if not is_exact_cast(first, middle) or (changes_rule and last.bits > 1):
            return None
        if origin.type == type_:
            # There and back is no identity where infinity saturates.
            return None if last in SATURATED else [origin]
        operation = builder.create("cast", (origin,), (type_,))
        self._note(operation)
        return [operation.result]

    def _fold_access(
        self, operation: Operation, operands: list[Value], builder: Builder
    ) -> Sequence[Value] | None:
        """Decide a load or a store whose mask is the same constant everywhere."""
        is_load = operation.name == "load"
        mask_index = 1 if is_load else 2
        if len(operands) <= mask_index:
            return None
        mask = self._constants.get(operands[mask_index])
        if mask is None:
            return None
        if mask:
            types = [result.type for result in operation.results]
            kept = operands[:mask_index]
            return builder.create(operation.name, kept, types, **operation.attributes).results
        if not is_load:
            return []
        if len(operands) > 2:
            return [operands[2]]
        type_ = operation.result.type
        return [self._constant(convert(0, element_dtype(type_)), type_, builder)]

    def _fold_atomic(
        self, operation: Operation, operands: list[Value], builder: Builder
    ) -> Sequence[Value] | None:
        """Decide an atomic operation whose mask is the same constant everywhere."""
        index = mask_index(operation)
        mask = self._constants.get(operands[index]) if len(operands) > index else None
        if mask is None:
            return None
        types = [result.type for result in operation.results]
        if not mask:
            return [self._constant(convert(0, element_dtype(t)), t, builder) for t in types]
        kept = operands[:index]
        return builder.create(operation.name, kept, types, **operation.attributes).results

    def _fold_if(
        self, operation: Operation, condition: Value, builder: Builder
    ) -> Sequence[Value] | None:
        constant = self._constants.get(condition)
        if constant is None:
            return None
        return self._spliced(operation.regions[0 if constant else 1], (), builder)

    def _fold_for(
        self, operation: Operation, operands: list[Value], builder: Builder
    ) -> Sequence[Value] | None:
        """Decide a loop that runs no iteration or exactly one."""
        lower, upper, step = (self._constants.get(value) for value in operands[:3])
        if lower is None or upper is None:
            return None
        if lower >= upper:
            return operands[3:]
        if step is None or lower + step < upper:
            return None
        return self._spliced(operation.regions[0], (operands[0], *operands[3:]), builder)

    def _spliced(
        self, region: Block, arguments: Sequence[Value], builder: Builder
    ) -> Sequence[Value]:
        """Copy a region's operations to where its owner stood; return what it yields."""
        self._values.update(zip(region.arguments, arguments, strict=True))
        self._operations(region.operations[:-1], builder)
        return [self._values[value] for value in region.terminator.operands]

    def _constant(self, value: Constant, type_: Type, builder: Builder) -> Value:
        scalar = ScalarType(element_dtype(type_))
        operation = builder.create("constant", (), (scalar,), value=value)
        self._note(operation)
        return self._splat(operation.result, type_, builder)

    def _splat(self, scalar: Value, type_: Type, builder: Builder) -> Value:
        if not isinstance(type_, TileType):
            return scalar
        operation = builder.create("splat", (scalar,), (type_,))
        self._note(operation)
        return operation.result

    def _note(self, operation: Operation) -> None:
        """Remember what an operation of the copy defines, and its constant."""
        for result in operation.results:
            self._definitions[result] = operation
        if operation.name == "constant":
            value, dtype = operation.attributes["value"], element_dtype(operation.result.type)
            if not (isinstance(value, float) and math.isnan(value)):
                self._constants[operation.result] = convert(value, dtype)
        if operation.name == "splat" and operation.operands[0] in self._constants:
            self._constants[operation.result] = self._constants[operation.operands[0]]


def _reduced(operation: Operation, element: Constant) -> Constant | None:
    """Reduce a tile of equal elements. Float sums round on the way, so they are not ours."""
    source = operation.operands[0].type
    dtype = element_dtype(source)
    kind = operation.attributes["kind"]
    if kind == "xor":
        is_odd = shape_of(source)[operation.attributes["axis"]] == 1
        return element if is_odd else wrap(0, dtype)
    if kind != "sum":
        return element
    if dtype.is_float or dtype.bits == 1:
        return None
    return wrap(int(element) * shape_of(source)[operation.attributes["axis"]], dtype)


def _identity(
    operation: Operation, operands: Sequence[Value], constants: Sequence[Constant | None]
) -> Value | Constant | None:
    """Return the operand or the constant that the operation always equals, or None."""
    match operation.name, operands, constants:
        case "select", [_, left, right], [condition, *_]:
            if condition is not None:
                return left if condition else right
            return left if left is right else None
        case "addptr", [pointer, _], [_, 0]:
            return pointer
        case "cmp", [left, right], _:
            if left is not right or element_dtype(left.type).is_float:
                return None  # a NaN differs from itself
            return operation.attributes["predicate"] in ("eq", "le", "ge")
        case name, [left, right], [known_left, known_right]:
            dtype = element_dtype(left.type)
            if name in ("min", "max", "and", "or") and left is right:
                return left
            if dtype.is_float:
                return _float_identity(name, (left, right), (known_left, known_right))
            if name in ("and", "or", "xor"):
                return _bit_identity(name, (left, right), (known_left, known_right))
            if dtype.bits > 1:
                return _integer_identity(name, (left, right), (known_left, known_right))
    return None


_Pair = tuple[Value, Value]
_Known = tuple[Constant | None, Constant | None]


def _float_identity(name: str, operands: _Pair, known: _Known) -> Value | None:
    match name, known:
        case "mul" | "div", (_, 1):
            return operands[0]
        case "mul", (1, _):
            return operands[1]
    return None


def _integer_identity(name: str, operands: _Pair, known: _Known) -> Value | int | None:
    left, right = operands
    match name, known:
        case "add" | "sub" | "shl" | "shr", (_, 0):
            return left
        case "add", (0, _):
            return right
        case "sub", _ if left is right:
            return 0
        case "mul" | "div", (_, 1):
            return left
        case "mul", (1, _):
            return right
        case "mul", (0, _) | (_, 0):
            return 0
        case "rem", (_, 1):
            return 0
    return None


def _bit_identity(name: str, operands: _Pair, known: _Known) -> Value | Constant | None:
    left, right = operands
    dtype = element_dtype(left.type)
    if name == "xor" and left is right:
        return wrap(0, dtype)
    ones = wrap(-1, dtype)
    for other, constant in ((left, known[1]), (right, known[0])):
        if constant == 0:
            return constant if name == "and" else other
        if constant == ones and name != "xor":
            return other if name == "and" else constant
    return None
