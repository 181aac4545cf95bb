"""Loads and stores of global memory: as wide as proven, predicated, each element written once.

Masks become predicates. Where a mask may differ inside a vector, whole vectors are accessed under
the predicate that all elements are in, and a thread at the edge then goes on element by element, so
that odd sizes keep full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_plan import SCALAR, AccessPlan, plan_access
from tilewright_compiler.emit import words
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
class Edges:
    """Where the masks of a thread's vectors end.

    `masks` are those of the registers; `full[i]` says that all elements of vector i are in;
    `any_ragged`, that of some vector some are in and some out: None where that cannot be.
    """

    masks: Fragment
    full: tuple[str, ...]
    any_ragged: str | None

    def only(self, text: FunctionText, register: int, is_full: str) -> str:
        """Return the predicate of an element that its vector's access left out."""
        left_out = text.value(f"llvm.xor {is_full}, {text.i1(True)} : i1")
        return text.value(f"llvm.and {left_out}, {self.masks[register]} : i1")


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


def _emit_address(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.elementwise(
        operation, lambda name: emitter.text.value(f"llvm.ptrtoint {name} : {POINTER} to i64")
    )


def _emit_load(emitter: KernelEmitter, operation: Operation) -> None:
    pointer, *rest = operation.operands
    access = _access(emitter, operation, pointer, rest[0] if rest else None)
    others = emitter.fragment(rest[1]) if len(rest) > 1 else None
    text, plan, vector = access.text, access.plan, access.vector
    edges = _edges(emitter, access, rest[0]) if rest else None
    loaded = [
        words.load(
            text,
            vector,
            access.addresses[group[0]],
            predicate=None if edges is None else edges.full[index],
            initial=_initial(access, group, others),
            cache=access.cache,
        )
        for index, group in enumerate(plan.groups)
    ]

    def read_elements(ragged: Edges) -> WordLists:
        result = []
        for group, is_full, vector_words in zip(plan.groups, ragged.full, loaded, strict=True):
            kept = words.unpack(text, vector, vector_words)
            elements = [
                _load_element(access, register, ragged.only(text, register, is_full), element)
                for register, element in zip(group, kept, strict=True)
            ]
            result.append(words.pack(text, vector, elements))
        return result

    if edges is not None and edges.any_ragged is not None:
        loaded = _if_ragged(
            text,
            edges,
            types=[vector.type] * vector.count,
            elements=read_elements,
            otherwise=loaded,
        )
    names: dict[int, str] = {}
    for group, group_words in zip(plan.groups, loaded, strict=True):
        names.update(zip(group, words.unpack(text, vector, group_words), strict=True))
    emitter.define(operation.result, [names[source] for source in plan.sources])


def _emit_store(emitter: KernelEmitter, operation: Operation) -> None:
    pointer, value, *rest = operation.operands
    access = _access(emitter, operation, pointer, rest[0] if rest else None)
    values, owner = emitter.fragment(value), owner_of(emitter, pointer)
    text, plan = access.text, access.plan
    edges = _edges(emitter, access, rest[0]) if rest else None

    def write(group: Sequence[int], form: Words, mask: str | None) -> None:
        words.store(
            text,
            form,
            access.addresses[group[0]],
            words.pack(text, form, [values[register] for register in group]),
            predicate=both(text, owner, mask),
            cache=access.cache,
        )

    def write_elements(ragged: Edges) -> WordLists:
        for group, is_full in zip(plan.groups, ragged.full, strict=True):
            for register in group:
                write((register,), access.single, ragged.only(text, register, is_full))
        return []

    for index, group in enumerate(plan.groups):
        write(group, access.vector, None if edges is None else edges.full[index])
    if edges is not None and edges.any_ragged is not None:
        _if_ragged(text, edges, types=[], elements=write_elements, otherwise=[])


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


def _edges(emitter: KernelEmitter, access: _Access, mask: Value) -> Edges:
    """Find from the masks of each vector whether all, and whether only some, elements are in."""
    text, plan, masks = access.text, access.plan, emitter.fragment(mask)
    if plan.mask_is_uniform:
        return Edges(masks, tuple(masks[group[0]] for group in plan.groups), None)
    is_prefix = emitter.prefix_masks.run(mask, plan.axis) >= plan.vector
    full, ragged = [], []
    for group in plan.groups:
        members = tuple(dict.fromkeys(masks[register] for register in group))
        if is_prefix:
            every, some = members[-1], members[0]
        else:
            every, some = _fold(text, "and", members), _fold(text, "or", members)
        full.append(every)
        if every != some:
            ragged.append(text.value(f"llvm.xor {every}, {some} : i1"))
    return Edges(masks, tuple(full), _fold(text, "or", ragged) if ragged else None)


def _fold(text: FunctionText, name: str, members: Sequence[str]) -> str:
    folded, *others = members
    for member in others:
        folded = text.value(f"llvm.{name} {folded}, {member} : i1")
    return folded


def _initial(access: _Access, group: Sequence[int], others: Fragment | None) -> tuple[str, ...]:
    """Return the words that a masked-off vector leaves."""
    if access.masks is None:
        return ()
    if others is None:
        return access.vector.zeros(access.text)
    return words.pack(access.text, access.vector, [others[register] for register in group])


def _load_element(access: _Access, register: int, mask: str, kept: str) -> str:
    """Return the element where `mask` is true, else what the vector access left."""
    text, single = access.text, access.single
    loaded = words.load(
        text,
        single,
        access.addresses[register],
        predicate=mask,
        initial=words.pack(text, single, [kept]),
        cache=access.cache,
    )
    (element,) = words.unpack(text, single, loaded)
    return element


def owner_of(emitter: KernelEmitter, pointer: Value) -> str | None:
    """Return the predicate of the threads that store, one for each element; None if all do."""
    if not isinstance(pointer.type, TileType):
        return emitter.threads.is_representative(free_lane=NUM_LANES - 1, free_warp=-1)
    free = layout_of(pointer.type).free
    return emitter.threads.is_representative(free_lane=free.lane, free_warp=free.warp)


def both(text: FunctionText, left: str | None, right: str | None) -> str | None:
    """Return where two predicates hold; None is one that holds everywhere."""
    if left is None or right is None:
        return right if left is None else left
    return text.value(f"llvm.and {left}, {right} : i1")


def _if_ragged(
    text: FunctionText,
    edges: Edges,
    *,
    types: Sequence[str],
    elements: Callable[[Edges], WordLists],
    otherwise: WordLists,
) -> WordLists:
    """Emit `elements` for the threads that hold a ragged vector; return its words, or `otherwise`.

    Both are lists of words of `types`.
    """
    left, results = text.reserve(count=len(otherwise) * len(types))
    result_types = ", ".join([*types] * len(otherwise))
    arrow = f" -> ({result_types})" if results else ""
    text.line(f"{left}scf.if {edges.any_ragged}{arrow} {{")
    with text.nested():
        _yield(text, elements(edges), types)
    if results:
        text.line("} else {")
        with text.nested():
            _yield(text, otherwise, types)
    text.line("}")
    return [results[i : i + len(types)] for i in range(0, len(results), max(1, len(types)))]


def _yield(text: FunctionText, lists: WordLists, types: Sequence[str]) -> None:
    names = [name for words_ in lists for name in words_]
    all_types = [*types] * len(lists)
    text.line(f"scf.yield {', '.join(names)} : {', '.join(all_types)}" if names else "scf.yield")


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "addptr": _emit_addptr,
        "address": _emit_address,
        "load": _emit_load,
        "store": _emit_store,
    }
)
