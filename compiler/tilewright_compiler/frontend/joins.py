"""Where two run-time branches meet: which variables differ, and the one type that each then has.

A variable that both branches leave alone keeps its value (a constant stays a constant). Otherwise
each leaf is converted at the end of its own branch and becomes a result of the `if`. A variable
that only one branch assigned has no value afterwards, and says so when it is used.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import KernelTypeError, SourceLocation
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.infer_types import describe_mismatch, join_leaves
from tilewright_compiler.frontend.operands import (
    Operand,
    describe,
    flatten,
    have_same_structure,
    is_same,
    rebuild,
)
from tilewright_compiler.frontend.scope import Branch, Retype, Scope, Undefined, Variable
from tilewright_compiler.ir.core import Block, Value
from tilewright_compiler.ir.ops import SPECS, Effect
from tilewright_compiler.ir.types import TileType, Type

# Pure, but with a meaning only where they stand: a divisor may be 0, a promise false elsewhere.
_CONDITIONAL = ("div", "rem", "multiple_of", "max_contiguous", "max_constancy", "assume")


def merge_variables(scope: Scope, condition: Value, then: Branch, otherwise: Branch) -> None:
    """Build the `if` of two lowered branches and rebind every variable that they left different."""
    location = scope.builder.location
    assert location is not None, "statements are lowered at their location"
    differing: list[tuple[str, Variable, Variable]] = []
    for name in dict.fromkeys((*then.variables, *otherwise.variables)):
        left, right = then.variables.get(name), otherwise.variables.get(name)
        if left is None or right is None:
            present = left or right
            assert present is not None, "the name is in one of the two"
            reason = (
                f"has a value only in one branch of the `if` at line {location.line}; assign it "
                "before"
            )
            scope.variables[name] = Variable(Undefined(reason), present.location)
        elif isinstance(left.operand, Undefined) or isinstance(right.operand, Undefined):
            scope.variables[name] = left if isinstance(left.operand, Undefined) else right
        elif is_same(left.operand, right.operand):
            scope.variables[name] = left
        else:
            differing.append((name, left, right))
    pairs: list[tuple[Operand, Operand]] = []
    types: list[Type | None] = []
    for name, left, right in differing:
        assert not isinstance(left.operand, Undefined)
        assert not isinstance(right.operand, Undefined)
        if not have_same_structure(left.operand, right.operand):
            raise _mismatch(name, left, right, "give the tuples one length")
        leaves = list(zip(flatten(left.operand), flatten(right.operand), strict=True))
        for a, b in leaves:
            type_ = None if is_same(a, b) else join(scope, a, b)
            if type_ is None and not is_same(a, b):
                raise _mismatch(name, left, right, describe_mismatch(a, b))
            types.append(type_)
        if left.is_constexpr or right.is_constexpr:
            raise _mismatch(
                name, left, right, "a name annotated tl.constexpr may not depend on a run-time `if`"
            )
        pairs.extend(leaves)
    joined = iter(build_if(scope, condition, then.block, otherwise.block, pairs, types))
    for name, left, _right in differing:
        assert not isinstance(left.operand, Undefined)
        scope.assign(name, rebuild(left.operand, joined))


def merge_expressions(
    scope: Scope,
    condition: Value,
    then: tuple[Block, Operand],
    otherwise: tuple[Block, Operand],
    differing: Callable[[str, str, str], KernelTypeError],
) -> Operand:
    """Build the value of a conditional expression from its two lowered branches.

    `differing` makes the error for branches without a common type from what they are and a remedy.
    """
    left, right = then[1], otherwise[1]
    fitting = have_same_structure(left, right)
    pairs = list(zip(flatten(left), flatten(right), strict=True)) if fitting else [(left, right)]
    types: list[Type | None] = []
    for a, b in pairs:
        type_ = None if is_same(a, b) else join(scope, a, b)
        if not fitting or (type_ is None and not is_same(a, b)):
            raise differing(describe(left), describe(right), describe_mismatch(a, b))
        types.append(type_)
    if is_speculatable(then[0]) and is_speculatable(otherwise[0]) and not _has_tiles(types):
        return rebuild(left, iter(_select(scope, condition, then[0], otherwise[0], pairs, types)))
    return rebuild(left, iter(build_if(scope, condition, then[0], otherwise[0], pairs, types)))


def join(scope: Scope, left: Operand, right: Operand) -> Type | None:
    """Return the one type of two values, or None.

    Where one is a number that a loop carries with a guessed type, and the other shows the right
    one, raises Retype.
    """
    joined = join_leaves(left, right)
    if joined is None:
        for value, other in ((left, right), (right, left)):
            guessed = scope.program.guessed(value)
            if guessed is None:
                continue
            wanted = join_leaves(scope.program.guesses[guessed], other)
            if wanted is not None:
                raise Retype(guessed, wanted)
    return joined


def build_if(
    scope: Scope,
    condition: Value,
    then: Block,
    otherwise: Block,
    pairs: list[tuple[Operand, Operand]],
    types: list[Type | None],
) -> list[Operand]:
    """Close two blocks into an `if`; a pair without a type is one value in both and stays."""
    for block, side in ((then, 0), (otherwise, 1)):
        with scope.filling(block):
            yielded = [
                convert.as_type(scope, pair[side], type_)
                for pair, type_ in zip(pairs, types, strict=True)
                if type_ is not None
            ]
            scope.builder.create("yield", yielded)
    result_types = [type_ for type_ in types if type_ is not None]
    results = iter(
        scope.builder.create("if", (condition,), result_types, (then, otherwise)).results
    )
    joined: list[Operand] = []
    for pair, type_ in zip(pairs, types, strict=True):
        if type_ is None:
            joined.append(pair[0])
            continue
        result = next(results)
        scope.program.derive(result, pair)
        joined.append(result)
    return joined


def is_speculatable(block: Block) -> bool:
    """Return whether a block without its terminator may run although its condition is false."""
    return all(
        SPECS[operation.name].effect is Effect.PURE and operation.name not in _CONDITIONAL
        for operation in block.walk()
    )


def _has_tiles(types: list[Type | None]) -> bool:
    return any(isinstance(type_, TileType) for type_ in types)


def _select(
    scope: Scope,
    condition: Value,
    then: Block,
    otherwise: Block,
    pairs: list[tuple[Operand, Operand]],
    types: list[Type | None],
) -> list[Operand]:
    scope.builder.block.operations.extend(then.operations)
    scope.builder.block.operations.extend(otherwise.operations)
    chosen: list[Operand] = []
    for (a, b), type_ in zip(pairs, types, strict=True):
        if type_ is None:
            chosen.append(a)
            continue
        left, right = convert.as_type(scope, a, type_), convert.as_type(scope, b, type_)
        value = scope.builder.value("select", (condition, left, right), type_)
        scope.program.derive(value, (a, b))
        chosen.append(value)
    return chosen


def _mismatch(name: str, left: Variable, right: Variable, remedy: str) -> KernelTypeError:
    assert not isinstance(left.operand, Undefined)
    assert not isinstance(right.operand, Undefined)
    msg = (
        f"`{name}` is {describe(left.operand)} after one branch ({_line(left.location)}) and "
        f"{describe(right.operand)} after the other ({_line(right.location)}); it must have one "
        f"type: {remedy}"
    )
    return KernelTypeError(msg)


def _line(location: SourceLocation) -> str:
    return f"line {location.line}"
