"""Loads and stores of global memory: as wide as proven, predicated, each element written once.

Masks become predicates. Where a mask may differ inside a vector, a thread whose elements are all
inside takes the vector accesses, and only one at the edge goes element by element, so that odd
sizes keep full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright_compiler.emit import words
from tilewright_compiler.emit.access import SCALAR, AccessPlan, plan_access
from tilewright_compiler.emit.kernel import Emit, Fragment, KernelEmitter, layout_of
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import POINTER, dtype_text, memory_dtype
from tilewright_compiler.emit.words import Words
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import TileType, element_dtype
from tilewright_compiler.layout.linear import NUM_LANES

# PTX 7.0 has no eviction priorities (they came with 7.4). Streaming is what evict_first asks for,
# and keeping a line is what plain accesses do.
_EVICTION = {"": "", "evict_first": "cs", "evict_last": ""}

WordLists = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Access:
    """What load and store have in common."""

    text: FunctionText
    plan: AccessPlan
    addresses: Fragment
    masks: Fragment | None
    cache: str
    vector: Words
    single: Words


def _emit_addptr(emitter: KernelEmitter, operation: Operation) -> None:
    pointer, offset = operation.operands
    dtype = element_dtype(offset.type)
    stored = dtype_text(memory_dtype(element_dtype(pointer.type)))
    text = emitter.text

    def move(base: str, distance: str) -> str:
        if dtype.bits < 64:
            extend = "sext" if dtype.is_signed else "zext"
            distance = text.value(f"llvm.{extend} {distance} : {dtype_text(dtype)} to i64")
        return text.value(
            f"llvm.getelementptr {base}[{distance}] : ({POINTER}, i64) -> {POINTER}, {stored}"
        )

    emitter.elementwise(operation, move)


def _emit_load(emitter: KernelEmitter, operation: Operation) -> None:
    pointer, *rest = operation.operands
    access = _access(emitter, operation, pointer, rest[0] if rest else None)
    others = emitter.fragment(rest[1]) if len(rest) > 1 else None
    text, plan, vector = access.text, access.plan, access.vector

    def read_vectors(predicates: Fragment | None) -> WordLists:
        return [
            words.load(
                text,
                vector,
                access.addresses[group[0]],
                predicate=None if predicates is None else predicates[group[0]],
                initial=_initial(access, vector, group, others),
                cache=access.cache,
            )
            for group in plan.groups
        ]

    def read_elements(predicates: Fragment) -> WordLists:
        return [
            words.pack(
                text, vector, [_load_element(access, r, predicates[r], others) for r in group]
            )
            for group in plan.groups
        ]

    if access.masks is None or plan.mask_is_uniform:
        loaded = read_vectors(access.masks)
    else:
        masks = access.masks
        loaded = _branch_on_all(
            text,
            masks,
            count=len(plan.groups),
            types=[vector.type] * vector.count,
            fast=lambda: read_vectors(None),
            slow=lambda: read_elements(masks),
        )
    names: dict[int, str] = {}
    for group, group_words in zip(plan.groups, loaded, strict=True):
        names.update(zip(group, words.unpack(text, vector, group_words), strict=True))
    emitter.define(operation.result, [names[source] for source in plan.sources])


def _emit_store(emitter: KernelEmitter, operation: Operation) -> None:
    pointer, value, *rest = operation.operands
    access = _access(emitter, operation, pointer, rest[0] if rest else None)
    values, owner = emitter.fragment(value), _owner(emitter, pointer)
    text, plan = access.text, access.plan

    def write(group: Sequence[int], form: Words, mask: str | None) -> None:
        words.store(
            text,
            form,
            access.addresses[group[0]],
            words.pack(text, form, [values[register] for register in group]),
            predicate=_both(text, owner, mask),
            cache=access.cache,
        )

    def write_vectors(predicates: Fragment | None) -> WordLists:
        for group in plan.groups:
            write(group, access.vector, None if predicates is None else predicates[group[0]])
        return []

    def write_elements(predicates: Fragment) -> WordLists:
        for register in (register for group in plan.groups for register in group):
            write((register,), access.single, predicates[register])
        return []

    if access.masks is None or plan.mask_is_uniform:
        write_vectors(access.masks)
    else:
        masks = access.masks
        _branch_on_all(
            text,
            masks,
            count=0,
            types=[],
            fast=lambda: write_vectors(None),
            slow=lambda: write_elements(masks),
        )


def _access(
    emitter: KernelEmitter, operation: Operation, pointer: Value, mask: Value | None
) -> _Access:
    dtype = element_dtype(pointer.type)
    if isinstance(pointer.type, TileType):
        plan = plan_access(
            layout_of(pointer.type),
            emitter.axis_info[pointer],
            None if mask is None else emitter.axis_info[mask],
            size_bytes=dtype.size_bytes,
        )
    else:
        plan = SCALAR
    cache: str = operation.attributes["cache"]
    return _Access(
        text=emitter.text,
        plan=plan,
        addresses=emitter.fragment(pointer),
        masks=None if mask is None else emitter.fragment(mask),
        cache=cache or _EVICTION[operation.attributes["eviction"]],
        vector=Words.of(dtype, plan.vector),
        single=Words.of(dtype, 1),
    )


def _initial(
    access: _Access, form: Words, group: Sequence[int], others: Fragment | None
) -> tuple[str, ...]:
    """Return the words that a masked-off access leaves."""
    if access.masks is None:
        return ()
    if others is None:
        return form.zeros(access.text)
    return words.pack(access.text, form, [others[register] for register in group])


def _load_element(access: _Access, register: int, mask: str, others: Fragment | None) -> str:
    text, single = access.text, access.single
    loaded = words.load(
        text,
        single,
        access.addresses[register],
        predicate=mask,
        initial=_initial(access, single, (register,), others),
        cache=access.cache,
    )
    (element,) = words.unpack(text, single, loaded)
    return element


def _owner(emitter: KernelEmitter, pointer: Value) -> str | None:
    """Return the predicate of the threads that store, one for each element; None if all do."""
    if not isinstance(pointer.type, TileType):
        return emitter.threads.is_representative(free_lane=NUM_LANES - 1, free_warp=-1)
    free = layout_of(pointer.type).free
    return emitter.threads.is_representative(free_lane=free.lane, free_warp=free.warp)


def _both(text: FunctionText, left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return right if left is None else left
    return text.value(f"llvm.and {left}, {right} : i1")


def _branch_on_all(
    text: FunctionText,
    masks: Fragment,
    *,
    count: int,
    types: Sequence[str],
    fast: Callable[[], WordLists],
    slow: Callable[[], WordLists],
) -> WordLists:
    """Emit `fast` for the threads whose masks are all true, `slow` for the others.

    Both give `count` lists of words of `types`; the joined ones are returned.
    """
    everything, *others = dict.fromkeys(masks)
    for name in others:
        everything = text.value(f"llvm.and {everything}, {name} : i1")
    left, results = text.reserve(count=count * len(types))
    result_types = ", ".join([*types] * count)
    arrow = f" -> ({result_types})" if results else ""
    text.line(f"{left}scf.if {everything}{arrow} {{")
    with text.nested():
        _yield(text, fast(), types)
    text.line("} else {")
    with text.nested():
        _yield(text, slow(), types)
    text.line("}")
    return [results[i : i + len(types)] for i in range(0, len(results), max(1, len(types)))]


def _yield(text: FunctionText, lists: WordLists, types: Sequence[str]) -> None:
    names = [name for words_ in lists for name in words_]
    all_types = [*types] * len(lists)
    text.line(f"scf.yield {', '.join(names)} : {', '.join(all_types)}" if names else "scf.yield")


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {"addptr": _emit_addptr, "load": _emit_load, "store": _emit_store}
)
