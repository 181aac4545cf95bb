"""Axis facts of operands -> axis facts of the result, one rule an operation; see `axis_info`.

Every rule is derived from the definition of the claims, for wrapping integers and truncating
division. `group_divisor` is the workhorse: what divides the elements at multiples of a shorter or
longer group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.abi.dtypes import DType
from tilewright_compiler.analysis.axis_facts import (
    MAX_DIVISOR,
    AxisInfo,
    axis_extents,
    constant,
    nothing,
    num_axes,
    power_divisor,
)
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.evaluate import Constant, evaluate
from tilewright_compiler.ir.ops.math import UNARY
from tilewright_compiler.ir.types import (
    PointerType,
    Type,
    element_dtype,
    element_type,
    shape_of,
)

Rule = Callable[[Operation, Type, Sequence[AxisInfo]], AxisInfo]


def transfer(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    """Return the claims of a result of `type_` of an operation without regions."""
    known = _known(operation, operands)
    if known is not None:
        return constant(known, type_)
    rule = _RULES.get(operation.name)
    return nothing(type_) if rule is None else rule(operation, type_, operands)


def _known(operation: Operation, operands: Sequence[AxisInfo]) -> int | None:
    """Return the integer that all elements of the result are, if the operands tell it."""
    if operation.name == "constant":
        value: Constant = operation.attributes["value"]
        return None if isinstance(value, float) else int(value)
    constants = [info.constant for info in operands if info.constant is not None]
    if not operands or len(constants) != len(operands) or len(operation.results) != 1:
        return None
    if operation.name in _ARRANGING:
        return constants[0]
    result = evaluate(operation, constants)
    return None if result is None or isinstance(result, float) else int(result)


def _arange(operation: Operation, type_: Type, _operands: Sequence[AxisInfo]) -> AxisInfo:
    (extent,) = axis_extents(type_)
    return AxisInfo((extent,), (power_divisor(operation.attributes["start"]),), (1,))


def _splat(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    rank = num_axes(type_)
    return AxisInfo((1,) * rank, (operands[0].divisor,) * rank, axis_extents(type_))


def _expand_dims(operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    axis, source = operation.attributes["axis"], operands[0]

    def inserted(claims: tuple[int, ...], new: int) -> tuple[int, ...]:
        return (*claims[:axis], new, *claims[axis:])

    return AxisInfo(
        inserted(source.contiguity, 1),
        inserted(source.divisibility, source.divisor),
        inserted(source.constancy, 1),
    )


def _broadcast(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    source, before, after = operands[0], shape_of(operation.operands[0].type), shape_of(type_)
    return AxisInfo(
        source.contiguity,
        source.divisibility,
        tuple(
            new if old == 1 else claim
            for old, new, claim in zip(before, after, source.constancy, strict=True)
        ),
    )


def _transpose(operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    source, order = operands[0], operation.attributes["order"]
    return AxisInfo(
        tuple(source.contiguity[axis] for axis in order),
        tuple(source.divisibility[axis] for axis in order),
        tuple(source.constancy[axis] for axis in order),
    )


def _reshape(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    source, before, after = operands[0], shape_of(operation.operands[0].type), shape_of(type_)
    if source.constancy == before:
        return _splat(operation, type_, operands)
    rank = len(after)
    contiguity, divisibility, constancy = [1] * rank, [source.divisor] * rank, [1] * rank
    places_before = [axis for axis, extent in enumerate(before) if extent > 1]
    places_after = [axis for axis, extent in enumerate(after) if extent > 1]
    if [before[axis] for axis in places_before] != [after[axis] for axis in places_after]:
        # Row-major order keeps neighbours on the last axis neighbours, up to the shorter extent.
        places_before, places_after = places_before[-1:], places_after[-1:]
    for old, new in zip(places_before, places_after, strict=True):
        group = min(source.contiguity[old], after[new])
        contiguity[new] = group
        divisibility[new] = source.group_divisor(old, group)
        constancy[new] = min(source.constancy[old], after[new])
    return AxisInfo(tuple(contiguity), tuple(divisibility), tuple(constancy))


def _elementwise(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    """Equal operands give equal results; nothing else is claimed."""
    return _everywhere(type_, 1, _common_constancy(operands))


def _add(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    groups = tuple(
        max(
            min(left.contiguity[axis], right.constancy[axis]),
            min(left.constancy[axis], right.contiguity[axis]),
        )
        for axis in range(num_axes(type_))
    )
    return _sum(left, right, groups)


def _sub(_operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    groups = tuple(map(min, left.contiguity, right.constancy))
    result = _sum(left, right, groups)
    together = map(min, left.contiguity, right.contiguity)  # the difference of two runs is constant
    return AxisInfo(groups, result.divisibility, tuple(map(max, result.constancy, together)))


def _sum(left: AxisInfo, right: AxisInfo, groups: tuple[int, ...]) -> AxisInfo:
    return AxisInfo(
        groups,
        tuple(
            min(left.group_divisor(axis, group), right.group_divisor(axis, group))
            for axis, group in enumerate(groups)
        ),
        tuple(map(min, left.constancy, right.constancy)),
    )


def _mul(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    constancy = _common_constancy(operands)
    for info, other in ((left, right), (right, left)):
        if other.constant == 1:
            return AxisInfo(info.contiguity, info.divisibility, constancy)
    return _everywhere(type_, left.divisor * right.divisor, constancy)


def _div(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    constancy = _common_constancy(operands)
    divisor = right.constant
    if divisor == 1:
        return AxisInfo(left.contiguity, left.divisibility, constancy)
    if divisor is None or power_divisor(divisor) != divisor:
        return _everywhere(type_, 1, constancy)
    dtype = element_dtype(type_)
    if not dtype.is_signed:  # below zero truncation rounds up, and splits the first element off
        constancy = _merged_runs(left, constancy, divisor, dtype)
    # A multiple divides without remainder, and then truncation plays no part.
    return _everywhere(type_, max(1, left.divisor // divisor), constancy)


def _rem(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    constancy, dtype = _common_constancy(operands), element_dtype(type_)
    if right.constant and left.divisor % right.constant == 0:
        return constant(0, type_)
    if dtype.is_signed:
        # The remainder takes the dividend's sign, so a run breaks at a negative multiple.
        return _everywhere(type_, min(left.divisor, right.divisor), constancy)
    groups = tuple(
        min(left.straight_run(axis, dtype), right.constancy[axis], right.divisor)
        for axis in range(num_axes(type_))
    )
    return AxisInfo(groups, _low_divisors(left, groups, right.divisor), constancy)


def _shl(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    amount = right.constant
    if amount is None or not 0 <= amount < element_dtype(type_).bits:
        return _elementwise(operation, type_, operands)
    if amount == 0:
        return left
    return _everywhere(type_, left.divisor << amount, left.constancy)


def _shr(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    amount, dtype = right.constant, element_dtype(type_)
    if amount is None or not 0 <= amount < dtype.bits:
        return _elementwise(operation, type_, operands)
    if amount == 0:
        return left
    constancy = _merged_runs(left, left.constancy, 1 << amount, dtype)  # it rounds down, always
    return _everywhere(type_, max(1, left.divisor >> amount), constancy)


def _and(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    left, right = operands
    for info, mask in ((left, right.constant), (right, left.constant)):
        if mask is not None and mask > 0 and mask & (mask + 1) == 0:
            if info.divisor > mask:
                return constant(0, type_)
            groups = tuple(
                min(run, start, mask + 1)
                for run, start in zip(info.contiguity, info.divisibility, strict=True)
            )
            return AxisInfo(groups, _low_divisors(info, groups, mask + 1), info.constancy)
    return _everywhere(type_, max(left.divisor, right.divisor), _common_constancy(operands))


def _common_divisor(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    """Claim what divides both operands: the result is one of them, or made of their bits."""
    divisor = min(info.divisor for info in operands)
    return _everywhere(type_, divisor, _common_constancy(operands))


def _cmp(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    """A run below (not below) a bound is wholly so if both start at multiples of the group."""
    left, right = operands
    constancy = _common_constancy(operands)
    # `run < bound`, `run >= bound`, and the same with the sides exchanged.
    match operation.attributes["predicate"]:
        case "lt" | "ge":
            run, bound = left, right
        case "gt" | "le":
            run, bound = right, left
        case _:
            return _everywhere(type_, 1, constancy)
    source = operation.operands[0].type
    if isinstance(element_type(source), PointerType) or element_dtype(source).is_float:
        return _everywhere(type_, 1, constancy)
    groups = (
        min(
            run.straight_run(axis, element_dtype(source)),
            bound.constancy[axis],
            bound.group_divisor(axis, bound.constancy[axis]),
        )
        for axis in range(num_axes(type_))
    )
    return _everywhere(type_, 1, tuple(map(max, constancy, groups)))


def _select(_operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    condition, left, right = operands
    groups = tuple(map(min, condition.constancy, left.contiguity, right.contiguity))
    result = _sum(left, right, groups)
    return AxisInfo(groups, result.divisibility, _common_constancy(operands))


def _cast(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    source, target = element_dtype(operation.operands[0].type), element_dtype(type_)
    info = operands[0]
    if source.is_float or target.is_float or 1 in (source.bits, target.bits):
        return _elementwise(operation, type_, operands)
    if target.bits <= source.bits:
        return info
    return _widened(info, source)


def _bitcast(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    source, target = element_dtype(operation.operands[0].type), element_dtype(type_)
    is_kept = source.is_integer and target.is_integer
    return operands[0] if is_kept else _elementwise(operation, type_, operands)


def _addptr(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    pointer, offset = operands
    offset_dtype, size = element_dtype(operation.operands[1].type), element_dtype(type_).size_bytes
    if offset_dtype.bits < 64:
        offset = _widened(offset, offset_dtype)
    groups = _add(operation, type_, (pointer, offset)).contiguity
    divisibility = tuple(
        min(
            pointer.group_divisor(axis, group, unit=size),
            offset.group_divisor(axis, group) * size,
            MAX_DIVISOR,
        )
        for axis, group in enumerate(groups)
    )
    return AxisInfo(groups, divisibility, _common_constancy(operands))


def _address(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    return _everywhere(type_, operands[0].divisor, operands[0].constancy)


def _multiple_of(operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    info, axis = operands[0], operation.attributes["axis"]
    promised: int = operation.attributes["divisor"]
    group, element = info.contiguity[axis], element_type(type_)
    if group < axis_extents(type_)[axis]:
        # Nobody knows which groups begin a run; within one they are so far apart.
        unit = element.dtype.size_bytes if isinstance(element, PointerType) else 1
        promised = min(promised, group * unit)
    known = max(info.divisibility[axis], min(promised, MAX_DIVISOR))
    return replace(info, divisibility=_with(info.divisibility, axis, known))


def _max_contiguous(operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    info, axis = operands[0], operation.attributes["axis"]
    known = max(info.contiguity[axis], operation.attributes["run"])
    return replace(info, contiguity=_with(info.contiguity, axis, known))


def _max_constancy(operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    info, axis = operands[0], operation.attributes["axis"]
    known = max(info.constancy[axis], operation.attributes["run"])
    return replace(info, constancy=_with(info.constancy, axis, known))


def _with(claims: tuple[int, ...], axis: int, claim: int) -> tuple[int, ...]:
    return (*claims[:axis], claim, *claims[axis + 1 :])


def _same(_operation: Operation, _type: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    return operands[0]


def _keeps_divisor(_operation: Operation, type_: Type, operands: Sequence[AxisInfo]) -> AxisInfo:
    return _everywhere(type_, operands[0].divisor, operands[0].constancy)


def _everywhere(type_: Type, divisor: int, constancy: tuple[int, ...]) -> AxisInfo:
    """Return claims of a value without runs whose every element is a multiple of `divisor`."""
    rank = num_axes(type_)
    return AxisInfo((1,) * rank, (min(divisor, MAX_DIVISOR),) * rank, constancy)


def _common_constancy(operands: Sequence[AxisInfo]) -> tuple[int, ...]:
    """Return where all operands repeat: equal operands give equal results."""
    return tuple(min(claims) for claims in zip(*(o.constancy for o in operands), strict=True))


def _merged_runs(
    info: AxisInfo, constancy: tuple[int, ...], divisor: int, dtype: DType
) -> tuple[int, ...]:
    """Return the constancy of a quotient that rounds down: it joins a run of `divisor` elements."""
    runs = (min(info.straight_run(axis, dtype), divisor) for axis in range(len(constancy)))
    return tuple(map(max, constancy, runs))


def _low_divisors(info: AxisInfo, groups: tuple[int, ...], modulus: int) -> tuple[int, ...]:
    """Return what divides the starts of groups of a remainder modulo a multiple of `modulus`."""
    return tuple(min(info.group_divisor(axis, g), modulus) for axis, g in enumerate(groups))


def _widened(info: AxisInfo, source: DType) -> AxisInfo:
    """Cut the runs so short that none crosses a wrap of `source`."""
    groups = tuple(info.straight_run(axis, source) for axis in range(len(info.contiguity)))
    divisibility = tuple(info.group_divisor(axis, group) for axis, group in enumerate(groups))
    return AxisInfo(groups, divisibility, info.constancy)


_ARRANGING = ("splat", "expand_dims", "broadcast", "reshape", "transpose", "convert_layout")

# What has no rule here, such as a load, a reduction or a call, is known nothing of.
_RULES: dict[str, Rule] = {
    "arange": _arange,
    "splat": _splat,
    "expand_dims": _expand_dims,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "convert_layout": _same,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "shl": _shl,
    "shr": _shr,
    "and": _and,
    "or": _common_divisor,
    "xor": _common_divisor,
    "min": _common_divisor,
    "max": _common_divisor,
    "neg": _keeps_divisor,
    "abs": _keeps_divisor,
    "cmp": _cmp,
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "addptr": _addptr,
    "address": _address,
    "multiple_of": _multiple_of,
    "max_contiguous": _max_contiguous,
    "max_constancy": _max_constancy,
    "fma": _elementwise,
    "fdiv": _elementwise,
    **dict.fromkeys(UNARY, _elementwise),
}
