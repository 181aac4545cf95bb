"""Where two run-time branches meet that may have returned: what was returned, and what goes on.

If only one branch goes on, the variables are its own, also those that the other never assigned:
what it made becomes a result of the `if`, for which the branch that has returned yields what the
variable was before, or anything.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend.joins import (
    Join,
    Pair,
    build_joins,
    join_operands,
    join_variables,
)
from tilewright_compiler.frontend.operands import (
    Operand,
    flatten,
    have_same_structure,
    is_same,
    rebuild,
)
from tilewright_compiler.frontend.scope import ALWAYS, NEVER, Branch, Returned, Scope, Undefined
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import Type


def merge_returns(
    scope: Scope,
    condition: Value,
    then: tuple[Branch, tuple[Returned, ...]],
    otherwise: tuple[Branch, tuple[Returned, ...]],
) -> tuple[Returned, ...]:
    """Build the `if` of two branches of which each may have returned, and bind the variables.

    Gives what was returned, and where. A number stays one: numbers that differ, and values of
    different types, come with a flag each. The variables are those of the branch that goes on, if
    only one does; of the other nobody asks for them.
    """
    (left, lefts), (right, rights) = then, otherwise
    flags: list[Join] = []
    values: list[Join] = []
    remaining = list(rights)
    for returned in lefts:
        other = next((r for r in remaining if _is_alike(returned.value, r.value)), None)
        if other is None:
            flags.append(join_operands(scope, returned.where, NEVER, _cannot_differ))
            values.append(_one_sided(returned.value, None, left, 0))
            continue
        remaining.remove(other)
        flags.append(join_operands(scope, returned.where, other.where, _cannot_differ))
        values.append(join_operands(scope, returned.value, other.value, _cannot_differ))
    for returned in remaining:
        flags.append(join_operands(scope, NEVER, returned.where, _cannot_differ))
        values.append(_one_sided(returned.value, None, right, 1))
    variables = _variables(scope, then, otherwise)
    asked = (*flags, *values, *variables.values())
    joined = iter(build_joins(scope, condition, left.block, right.block, asked))
    places = [next(joined) for _ in flags]
    results = [next(joined) for _ in values]
    for name, operand in zip(variables, joined, strict=True):
        scope.assign(name, operand)
    return tuple(map(Returned, results, places))


def _variables(
    scope: Scope,
    then: tuple[Branch, tuple[Returned, ...]],
    otherwise: tuple[Branch, tuple[Returned, ...]],
) -> dict[str, Join]:
    """Return what joins the variables of the branches that go on; the others are bound now."""
    (left, lefts), (right, rights) = then, otherwise
    left_returned, right_returned = (
        any(r.where == ALWAYS for r in several) for several in (lefts, rights)
    )
    if left_returned and right_returned:
        return {}
    if left_returned:
        return _kept_variables(scope, right, 1)
    if right_returned:
        return _kept_variables(scope, left, 0)
    return join_variables(scope, left, right)


def _kept_variables(scope: Scope, branch: Branch, side: int) -> dict[str, Join]:
    """Return what keeps the variables of the one branch that goes on; the rest is bound now."""
    joins: dict[str, Join] = {}
    for name, variable in branch.variables.items():
        before = scope.variables.get(name)
        if before is variable:
            continue
        if isinstance(variable.operand, Undefined):
            scope.variables[name] = variable
            continue
        earlier = (
            None if before is None or isinstance(before.operand, Undefined) else before.operand
        )
        kept = _one_sided(variable.operand, earlier, branch, side)
        if any(kept.types):
            joins[name] = kept
        else:
            # A descriptor is made anew: the branch may have made the one it has.
            operand = rebuild(variable.operand, flatten(variable.operand))
            scope.variables[name] = replace(variable, operand=operand)
    return joins


def _one_sided(operand: Operand, earlier: Operand | None, branch: Branch, side: int) -> Join:
    """Return what makes the operand of one branch known after it.

    What the branch did not make is known already. The other one yields in its place what the
    variable was before, or anything.
    """
    made = {result for operation in branch.block.operations for result in operation.results}
    leaves = list(flatten(operand))
    others: list[Operand | None] = [None for _ in leaves]
    if earlier is not None and have_same_structure(operand, earlier):
        others = list(flatten(earlier))
    pairs: list[Pair] = []
    types: list[Type | None] = []
    for leaf, other in zip(leaves, others, strict=True):
        if not isinstance(leaf, Value) or leaf not in made:
            pairs.append((leaf, leaf))
            types.append(None)
            continue
        fits = isinstance(other, Value) and other.type == leaf.type
        pair = (leaf, other if fits else None)
        pairs.append(pair if side == 0 else pair[::-1])
        types.append(leaf.type)
    return Join(operand, pairs, types)


def _is_alike(left: Operand, right: Operand) -> bool:
    """Return whether operands join without changing: numbers that are equal, values of one type."""
    return have_same_structure(left, right) and all(
        is_same(a, b) or (isinstance(a, Value) and isinstance(b, Value) and a.type == b.type)
        for a, b in zip(flatten(left), flatten(right), strict=True)
    )


def _cannot_differ(remedy: str) -> KernelTypeError:
    raise AssertionError(remedy)
