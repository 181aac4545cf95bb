"""Where two run-time branches meet: which variables differ, and the one type that each then has.

A variable that both branches leave alone keeps its value (a constant stays a constant). Otherwise
each leaf is converted at the end of its own branch and becomes a result of the `if`. A variable
that only one branch assigned has no value afterwards, and says so when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from tilewright.errors import KernelTypeError, SourceLocation
from tilewright.lazy_dataclass import dataclass
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
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.ops import SPECS, Effect
from tilewright_compiler.ir.types import PointerType, TileType, Type, element_type, shape_of

Pair = tuple[Operand | None, Operand | None]

# Pure, but with a meaning only where they stand: a divisor may be 0, a promise false elsewhere.
_CONDITIONAL = ("div", "rem", "multiple_of", "max_contiguous", "max_constancy", "assume")


@dataclass(frozen=True, slots=True)
class Join:
    """An operand at the end of two branches: its form, its leaves in both and their types.

    A leaf without a type is one value in both. None is a leaf that the other branch does not have,
    and nobody asks for.
    """

    template: Operand
    pairs: list[Pair]
    types: list[Type | None]


def merge_variables(scope: Scope, condition: Value, then: Branch, otherwise: Branch) -> None:
    """Build the `if` of two lowered branches and rebind every variable that they left different."""
    joins = join_variables(scope, then, otherwise)
    operands = build_joins(scope, condition, then.block, otherwise.block, joins.values())
    for name, operand in zip(joins, operands, strict=True):
        scope.assign(name, operand)


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
    mismatch = partial(differing, describe(then[1]), describe(otherwise[1]))
    joined = join_operands(scope, then[1], otherwise[1], mismatch)
    if is_speculatable(then[0]) and is_speculatable(otherwise[0]) and not _has_tiles(joined.types):
        leaves = _select(scope, condition, then[0], otherwise[0], joined)
        return rebuild(joined.template, iter(leaves))
    (result,) = build_joins(scope, condition, then[0], otherwise[0], (joined,))
    return result


def join_variables(scope: Scope, then: Branch, otherwise: Branch) -> dict[str, Join]:
    """Return what joins the variables that differ; the others are bound now."""
    location = scope.builder.location
    assert location is not None, "statements are lowered at their location"
    joins: dict[str, Join] = {}
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
            mismatch = partial(_mismatch, name, left, right)
            joins[name] = join_operands(scope, left.operand, right.operand, mismatch)
            if left.is_constexpr or right.is_constexpr:
                remedy = "a name annotated tl.constexpr may not depend on a run-time `if`"
                raise mismatch(remedy)
    return joins


def join_operands(
    scope: Scope, left: Operand, right: Operand, mismatch: Callable[[str], KernelTypeError]
) -> Join:
    """Return what joins two operands; `mismatch` makes an error of a remedy."""
    if not have_same_structure(left, right):
        raise mismatch(describe_mismatch(left, right))
    pairs = list(zip(flatten(left), flatten(right), strict=True))
    types: list[Type | None] = []
    for a, b in pairs:
        type_ = None if is_same(a, b) else join(scope, a, b)
        if type_ is None and not is_same(a, b):
            raise mismatch(describe_mismatch(a, b))
        types.append(type_)
    return Join(left, list(pairs), types)


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
    pairs: Sequence[Pair],
    types: Sequence[Type | None],
) -> list[Operand]:
    """Close two blocks into an `if`; a pair without a type is one value in both and stays."""
    blocks = then, otherwise
    for side, block in enumerate(blocks):
        with scope.filling(block):
            yielded = [
                _as_type(scope, pair[side], type_, pair[1 - side], blocks[1 - side])
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
            assert pair[0] is not None, "what has no type is in both branches"
            joined.append(pair[0])
            continue
        result = next(results)
        scope.program.derive(result, pair)
        joined.append(result)
    return joined


def build_joins(
    scope: Scope, condition: Value, then: Block, otherwise: Block, joins: Iterable[Join]
) -> list[Operand]:
    """Close two blocks into an `if` and return the operands that it joins."""
    joins = list(joins)
    pairs = [pair for joined in joins for pair in joined.pairs]
    types = [type_ for joined in joins for type_ in joined.types]
    leaves = iter(build_if(scope, condition, then, otherwise, pairs, types))
    return [rebuild(joined.template, leaves) for joined in joins]


def _as_type(
    scope: Scope, operand: Operand | None, type_: Type, other: Operand | None, block: Block
) -> Value:
    """Return an operand as a value of `type_`.

    For None, a zero, or a pointer from before `block` that `other` is made of.
    """
    if operand is not None:
        return convert.as_type(scope, operand, type_)
    element = element_type(type_)
    if not isinstance(element, PointerType):
        return convert.filled(scope, 0, type_)
    assert isinstance(other, Value)
    for pointer in _sources(other, block):
        if pointer.type in (element, type_):
            return convert.broadcast(scope, pointer, shape_of(type_))
    msg = (
        f"a {describe(other)} is made between the ways out of this `if`; make it before, or in "
        "what follows"
    )
    raise KernelTypeError(msg)


def _sources(pointer: Value, block: Block) -> Iterator[Value]:
    """Yield the pointers from before a block of which a pointer in it is made."""
    origins: dict[Value, Operation] = {}
    for operation in block.walk():
        for value in (*operation.results, *(a for r in operation.regions for a in r.arguments)):
            origins[value] = operation
    pending, seen = [pointer], {pointer}
    while pending:
        value = pending.pop()
        if value not in origins:
            yield value
            continue
        operation = origins[value]
        ends = (r.operations[-1] for r in operation.regions)
        for source in (*operation.operands, *(y for end in ends for y in end.operands)):
            if isinstance(element_type(source.type), PointerType) and source not in seen:
                seen.add(source)
                pending.append(source)


def is_speculatable(block: Block) -> bool:
    """Return whether a block without its terminator may run although its condition is false."""
    return all(
        SPECS[operation.name].effect is Effect.PURE and operation.name not in _CONDITIONAL
        for operation in block.walk()
    )


def _has_tiles(types: list[Type | None]) -> bool:
    return any(isinstance(type_, TileType) for type_ in types)


def _select(
    scope: Scope, condition: Value, then: Block, otherwise: Block, joined: Join
) -> list[Operand]:
    scope.builder.block.operations.extend(then.operations)
    scope.builder.block.operations.extend(otherwise.operations)
    chosen: list[Operand] = []
    for (a, b), type_ in zip(joined.pairs, joined.types, strict=True):
        assert a is not None, "an expression has a value in both branches"
        assert b is not None, "an expression has a value in both branches"
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
