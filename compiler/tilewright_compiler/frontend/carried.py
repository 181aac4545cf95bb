"""Loop-carried variables: which change in a body, with what type, and how the body closes.

The type of a carried variable is that of its value before the loop, and the body must keep it. A
number before the loop has no dtype yet: it first gets the one it would take alone, and if the body
gives another one that the number can take, the body is lowered again with that (`total = 0` becomes
f32 when the body adds floats). A number that is assigned only under an `if` is first taken to stay
as it is, because the `if` may be decided at compile time; if it changes, the body is lowered again.
So the body's last lowering is the one in which every guess held.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import field

from tilewright.errors import KernelTypeError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.constants import weak_dtype
from tilewright_compiler.frontend.infer_types import describe_mismatch, takes_dtype
from tilewright_compiler.frontend.joins import join
from tilewright_compiler.frontend.operands import (
    Constant,
    Operand,
    describe,
    flatten,
    have_same_structure,
    is_same,
    rebuild,
)
from tilewright_compiler.frontend.scope import Retype, Scope, Undefined, Variable
from tilewright_compiler.ir.core import Block, Value
from tilewright_compiler.ir.types import ScalarType, Type

# A number may go from i32 to i64, to a float, to a tile; a type that still changes never settles.
_MAX_TYPE_CHANGES = 3


@dataclass(slots=True)
class Leaf:
    """One value carried around the loop.

    `changes` counts how often a number got another type; `must_stay` says that an earlier lowering
    has shown it to change.
    """

    initial: Operand
    type: Type
    changes: int = 0
    must_stay: bool = False


@dataclass(slots=True)
class Carried:
    """The carried variables of one loop.

    A name maps to one entry for each leaf of its operand, None for a leaf that stays as it is.
    """

    entries: dict[str, Variable]
    leaves: dict[str, list[Leaf | None]]
    lost: dict[str, str] = field(default_factory=dict)

    def carry_all(self) -> bool:
        """Carry also the numbers that were taken to stay as they are; tell if there were any."""
        before = len(self.all_leaves())
        for name, leaves in self.leaves.items():
            entry = self.entries[name]
            assert not isinstance(entry.operand, Undefined)
            if not entry.is_constexpr:
                leaves[:] = [
                    _leaf(operand, must_stay=True) if leaf is None else leaf
                    for leaf, operand in zip(leaves, flatten(entry.operand), strict=True)
                ]
        return len(self.all_leaves()) != before

    def all_leaves(self) -> list[Leaf]:
        """Return the leaves that are carried, in order."""
        return [leaf for leaves in self.leaves.values() for leaf in leaves if leaf is not None]

    def arguments(self, scope: Scope) -> tuple[Value, ...]:
        """Return fresh block arguments, named after their variables."""
        arguments = []
        for name, leaves in self.leaves.items():
            for leaf in leaves:
                if leaf is not None:
                    arguments.append(Value(leaf.type, name))
                    if isinstance(leaf.initial, Constant) and leaf.changes < _MAX_TYPE_CHANGES:
                        scope.program.guesses[arguments[-1]] = leaf.initial
                    scope.program.derive(arguments[-1], (leaf.initial,))
        return tuple(arguments)

    def retype(self, retype: Retype, arguments: Sequence[Value]) -> None:
        """Give the leaf of an argument another type; passes on what concerns an outer loop."""
        if retype.value not in arguments:
            raise retype
        leaf = self.all_leaves()[list(arguments).index(retype.value)]
        leaf.type = retype.type
        leaf.changes += 1

    def initial_values(self, scope: Scope) -> list[Value]:
        """Build the values with which the loop is entered."""
        return [convert.as_type(scope, leaf.initial, leaf.type) for leaf in self.all_leaves()]

    def name(self, values: Sequence[Value]) -> None:
        """Name values after the variables that they are, where they have no name yet."""
        remaining = iter(values)
        for name, leaves in self.leaves.items():
            for leaf in leaves:
                value = None if leaf is None else next(remaining)
                if value is not None and not value.name:
                    value.name = name

    def bind(self, scope: Scope, values: Iterable[Value]) -> None:
        """Give each carried variable its value in a region, or after the loop."""
        remaining = iter(values)
        for name, leaves in self.leaves.items():
            entry = self.entries[name]
            assert not isinstance(entry.operand, Undefined)
            items = [
                original if leaf is None else next(remaining)
                for original, leaf in zip(flatten(entry.operand), leaves, strict=True)
            ]
            operand = rebuild(entry.operand, iter(items))
            scope.variables[name] = Variable(operand, entry.location, entry.is_constexpr)
        for name, reason in self.lost.items():
            scope.undefine(name, reason)

    def close(self, scope: Scope, arguments: Sequence[Value]) -> list[Value] | None:
        """Return what the body yields, or None if types changed and it must be lowered again."""
        leaves = self.all_leaves()
        own_argument = {id(leaf): value for leaf, value in zip(leaves, arguments, strict=True)}
        changes = [leaf.changes for leaf in leaves]
        finals: list[tuple[Leaf, Operand]] = []
        for name in list(self.leaves):
            final = scope.variables[name]
            if isinstance(final.operand, Undefined):
                self.lost[name] = final.operand.reason
                del self.leaves[name]
            else:
                finals.extend(self._pair(scope, name, final))
        # Numbers that the body left alone are not carried, so that they stay known at compile time.
        constant = {
            id(leaf)
            for leaf, operand in finals
            if operand is own_argument.get(id(leaf))
            and isinstance(leaf.initial, Constant)
            and not leaf.must_stay
        }
        for entry in self.leaves.values():
            entry[:] = [None if id(leaf) in constant else leaf for leaf in entry]
        remaining = self.all_leaves()
        if len(remaining) != len(leaves) or [leaf.changes for leaf in remaining] != changes:
            return None
        return [convert.as_type(scope, operand, leaf.type) for leaf, operand in finals]

    def _pair(self, scope: Scope, name: str, final: Variable) -> list[tuple[Leaf, Operand]]:
        entry = self.entries[name]
        assert not isinstance(entry.operand, Undefined)
        assert not isinstance(final.operand, Undefined)
        if not have_same_structure(entry.operand, final.operand):
            remedy = describe_mismatch(entry.operand, final.operand)
            raise _mismatch(name, entry, final, remedy)
        pairs = []
        leaves = self.leaves[name]
        operands = zip(flatten(entry.operand), flatten(final.operand), strict=True)
        for index, (original, operand) in enumerate(operands):
            leaf = leaves[index]
            if leaf is None and not is_same(original, operand):
                if entry.is_constexpr:
                    remedy = "a name annotated tl.constexpr changes only in tl.static_range"
                    raise _mismatch(name, entry, final, remedy)
                leaf = leaves[index] = _leaf(original, must_stay=True)
                if leaf is None:
                    raise _mismatch(name, entry, final, describe_mismatch(original, operand))
            if leaf is not None:
                _settle(scope, name, leaf, entry, final, operand)
                pairs.append((leaf, operand))
        return pairs


def carried_variables(
    scope: Scope,
    body: Sequence[ast.stmt],
    loop_variable: str | None,
    hidden: Sequence[str] = (),
) -> Carried:
    """Return the variables that have a value here and that a statement of the body assigns.

    `hidden` are those of the loop itself, which no statement names.
    """
    entries: dict[str, Variable] = {}
    leaves: dict[str, list[Leaf | None]] = {}
    certain = set(assigned_names(body, under_if=False))
    for name in (*assigned_names(body), *hidden):
        variable = scope.variables.get(name)
        if variable is None or isinstance(variable.operand, Undefined) or name == loop_variable:
            continue
        entries[name] = variable
        leaves[name] = [
            None
            if variable.is_constexpr or (isinstance(operand, Constant) and name not in certain)
            else _leaf(operand)
            for operand in flatten(variable.operand)
        ]
    return Carried(entries, leaves)


def assigned_names(statements: Sequence[ast.stmt], *, under_if: bool = True) -> list[str]:
    """Return the names that statements assign, in order, with or without those inside an `if`."""
    names: dict[str, None] = {}

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if under_if:
                self.generic_visit(node)

        def visit_Name(self, node: ast.Name) -> None:
            if isinstance(node.ctx, ast.Store):
                names.setdefault(node.id)

    for statement in statements:
        Visitor().visit(statement)
    return list(names)


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a loop still carries, and the values that took the place of what it does not."""

    initial: list[Value]
    yielded: list[Value]
    replaced: dict[Value, Value]
    dropped: tuple[Value | None, ...]

    def after(self, results: Sequence[Value]) -> list[Value]:
        """Return the value after the loop of each variable that was to be carried."""
        remaining = iter(results)
        return [next(remaining) if value is None else value for value in self.dropped]


def drop_unchanged(
    regions: Sequence[Block], yielded: Sequence[Value], initial: Sequence[Value]
) -> Remaining:
    """Stop carrying values that the last region yields as it got them: the initial ones serve as
    well.

    The regions have no terminators yet, and the carried values are the last arguments of each.
    """
    arguments = [region.arguments[len(region.arguments) - len(initial) :] for region in regions]
    stays = [a is not y for a, y in zip(arguments[-1], yielded, strict=True)]
    replaced: dict[Value, Value] = {}
    for region, carried in zip(regions, arguments, strict=True):
        replaced.update(
            (a, i) for a, i, stay in zip(carried, initial, stays, strict=True) if not stay
        )
        region.arguments = tuple(a for a in region.arguments if a not in replaced)
    for region in regions:
        for operation in region.walk():
            operation.operands = tuple(replaced.get(value, value) for value in operation.operands)
    return Remaining(
        [i for i, stay in zip(initial, stays, strict=True) if stay],
        [replaced.get(y, y) for y, stay in zip(yielded, stays, strict=True) if stay],
        replaced,
        tuple(None if stay else i for i, stay in zip(initial, stays, strict=True)),
    )


def _leaf(operand: Operand, *, must_stay: bool = False) -> Leaf | None:
    if isinstance(operand, Value):
        return Leaf(operand, operand.type)
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return Leaf(operand, ScalarType(weak_dtype(operand.value)), must_stay=must_stay)
    return None


def _settle(
    scope: Scope, name: str, leaf: Leaf, entry: Variable, final: Variable, operand: Operand
) -> None:
    """Check that the body keeps a leaf's type, or give a number the type that the body wants."""
    if isinstance(operand, Value) and operand.type == leaf.type:
        return
    if (
        isinstance(operand, Constant)
        and isinstance(operand.value, bool | int | float)
        and takes_dtype(operand.value, leaf.type)
    ):
        return
    joined = join(scope, leaf.initial, operand)
    if isinstance(leaf.initial, Value) or joined is None or leaf.changes == _MAX_TYPE_CHANGES:
        raise _mismatch(name, entry, final, describe_mismatch(leaf.initial, operand))
    leaf.type = joined
    leaf.changes += 1


def _mismatch(name: str, entry: Variable, final: Variable, remedy: str) -> KernelTypeError:
    assert not isinstance(entry.operand, Undefined)
    assert not isinstance(final.operand, Undefined)
    msg = (
        f"`{name}` is {describe(entry.operand)} before the loop (line {entry.location.line}) and "
        f"{describe(final.operand)} at the end of its body (line {final.location.line}); "
        f"it must keep one type: {remedy}"
    )
    return KernelTypeError(msg)
