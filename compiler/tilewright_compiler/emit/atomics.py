"""Atomic operations as inline PTX: LLVM's `atomicrmw` drops order and scope on the way to PTX.

One thread does the operation of an element and tells the others that hold it of the result, through
shared memory. What nobody asks for is `red`. Floats are compared as integers: those of positive
numbers are ordered like signed ones, those of negative numbers the other way round. What sm_80 has
no instruction for, elements of 16 bits but the sum of f16, is a loop around `cas`, which compares
bits, so that a NaN ends it too. Two halves that lie together are added at once, and on sm_90a so
are up to four f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tilewright.abi.dtypes import DType, float16, float32
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_plan import plan_atomic, register_sources
from tilewright_compiler.emit import arithmetic, words
from tilewright_compiler.emit.kernel import Emit, Fragment, KernelEmitter, layout_of
from tilewright_compiler.emit.memory import both, owner_of
from tilewright_compiler.emit.shared_access import (
    ThreadAddresses,
    load_registers,
    store_fragment,
    symbol_address,
)
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import POINTER, dtype_text
from tilewright_compiler.emit.words import Words
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import ATOMICS, BITWISE, elements_at_once, mask_index
from tilewright_compiler.ir.types import TileType, element_bytes, element_dtype, element_type
from tilewright_compiler.layout.share import plan_share

_EXTREMA = ("max", "min")
_OPPOSITE = {"max": "min", "min": "max"}
# `red` takes no other, since there is nothing to acquire from (PTX ISA, red).
_REDUCING_SEM = ("relaxed", "release")


@dataclass(frozen=True, slots=True)
class _Form:
    """How the elements of one operation are worked on. `how` is order, scope and state space."""

    text: FunctionText
    operation: Operation
    dtype: DType
    words: Words

    @property
    def how(self) -> str:
        attributes = self.operation.attributes
        return f"{attributes['sem']}.{attributes['scope']}.global"

    @property
    def may_reduce(self) -> bool:
        """Whether nobody asks for the old element, and nothing is to be acquired."""
        return not self.operation.results and self.operation.attributes["sem"] in _REDUCING_SEM

    @property
    def zero(self) -> str:
        return self.words.zeros(self.text)[0]

    def word(self, *elements: str) -> str:
        """Return elements as an integer."""
        return words.pack(self.text, self.words, elements)[0]

    def elements(self, word: str) -> tuple[str, ...]:
        """Return the elements that an integer holds."""
        return words.unpack(self.text, self.words, [word])


def _emit(emitter: KernelEmitter, operation: Operation) -> None:
    index = mask_index(operation)
    pointer, *values = operation.operands[:index]
    mask = operation.operands[index] if len(operation.operands) > index else None
    text, dtype = emitter.text, element_dtype(pointer.type)
    addresses, owner = emitter.fragment(pointer), owner_of(emitter, pointer)
    masks = None if mask is None else emitter.fragment(mask)
    fragments = [emitter.fragment(value) for value in values]
    groups, sources = _groups(emitter, operation)
    # Several f32 are so many words, two halves are one.
    is_vector = dtype == float32 and len(groups[0]) > 1
    form = _Form(text, operation, dtype, Words.of(dtype, 1 if is_vector else len(groups[0])))
    found: dict[int, str] = {}
    for group in groups:
        first = group[0]
        predicate = both(text, owner, None if masks is None else masks[first])
        if is_vector:
            added = [form.word(fragments[0][register]) for register in group]
            opcode = f"red.{form.how}.add.v{len(group)}.f32"
            _instruction(form, opcode, addresses[first], added, predicate, gives=False)
            continue
        given = [form.word(*(fragment[register] for register in group)) for fragment in fragments]
        old = _EMIT_WORD[operation.name](form, addresses[first], given, predicate)
        if operation.results:
            found.update(zip(group, form.elements(old), strict=True))
    if operation.results:
        fragment = tuple(found[source] for source in sources)
        emitter.define(operation.result, _told(emitter, operation, fragment, owner, sources))


def _groups(
    emitter: KernelEmitter, operation: Operation
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return the registers of each instruction, and the register that stands for each one."""
    pointer = operation.operands[0]
    if not isinstance(pointer.type, TileType):
        return ((0,),), (0,)
    sources = register_sources(layout_of(pointer.type))
    plan = plan_atomic(operation, emitter.axis_info)
    if plan is None:
        return tuple((register,) for register in dict.fromkeys(sources)), sources
    size = min(plan.vector, elements_at_once(operation))
    parts = tuple(
        group[first : first + size] for group in plan.groups for first in range(0, len(group), size)
    )
    return parts, sources


def _emit_load(form: _Form, address: str, _given: list[str], predicate: str | None) -> str:
    return _instruction(form, f"ld.{form.how}{form.words.ptx_type}", address, [], predicate)


def _emit_cas(form: _Form, address: str, given: list[str], predicate: str | None) -> str:
    opcode = f"atom.{form.how}.cas.b{form.dtype.bits}"
    return _instruction(form, opcode, address, given, predicate)


def _emit_rmw(form: _Form, address: str, given: list[str], predicate: str | None) -> str:
    kind: str = form.operation.attributes["kind"]
    (value,) = given
    if form.dtype.is_float and kind in _EXTREMA:
        value = _nan_that_wins(form, kind, value)
        if form.dtype.bits > 16:
            return _float_extremum(form, kind, address, value, predicate)
    suffix = _suffix(kind, form.dtype, form.words.elements)
    if suffix is None:
        return _loop(form, address, value, predicate)
    if form.may_reduce and kind != "xchg":
        opcode = f"red.{form.how}.{suffix}"
        return _instruction(form, opcode, address, [value], predicate, gives=False)
    return _instruction(form, f"atom.{form.how}.{suffix}", address, [value], predicate)


_EMIT_WORD: Mapping[str, Callable[[_Form, str, list[str], str | None], str]] = MappingProxyType(
    {"atomic_load": _emit_load, "atomic_rmw": _emit_rmw, "atomic_cas": _emit_cas}
)


def _suffix(kind: str, dtype: DType, elements: int) -> str | None:
    """Return operation and type of the instruction that sm_80 has; None if it has none."""
    if dtype == float16 and kind == "add":
        return "add.noftz.f16x2" if elements == 2 else "add.noftz.f16"
    if dtype.bits == 16:
        return None
    if kind == "xchg":
        return f"exch.b{dtype.bits}"
    if kind in BITWISE:
        return f"{kind}.b{dtype.bits}"
    if kind == "add":
        return f"add.{'f' if dtype.is_float else 'u'}{dtype.bits}"
    return f"{kind}.{'s' if dtype.is_signed else 'u'}{dtype.bits}"


def _instruction(
    form: _Form,
    opcode: str,
    address: str,
    given: list[str],
    predicate: str | None,
    *,
    initial: str | None = None,
    gives: bool = True,
) -> str:
    """Emit one instruction; return the old word, or `initial` (0) where `predicate` is false."""
    text, form_words = form.text, form.words
    type_, letter = form_words.register_type, form_words.constraint
    first = int(gives)
    operands, types = [address, *given], [POINTER, *[type_] * len(given)]
    constraints = [*[f"={letter}"] * first, "l", *[letter] * len(given)]
    guard = ""
    if predicate is not None:
        guard = f"@${first + len(operands)} "
        operands.append(predicate)
        types.append("i1")
        constraints.append("b")
        if gives:
            zero = text.raw_constant(f"0 : {type_}", type_)
            operands.append(zero if initial is None else initial)
            types.append(type_)
            constraints.append("0")
    listed = "".join(f", ${first + 1 + index}" for index in range(len(given)))
    if ".v" in opcode:
        listed = f", {{{listed.removeprefix(', ')}}}"
    target = "$0, " if gives else ""
    instruction = f"{guard}{opcode} {target}[${first}]{listed};"
    results = words.inline_ptx(
        text, instruction, constraints, operands, types, [type_] if gives else []
    )
    if not results:
        return form.zero
    (old,) = results
    return text.value(f"llvm.trunc {old} : i16 to i8") if form_words.bits == 8 else old


def _float_extremum(form: _Form, kind: str, address: str, value: str, predicate: str | None) -> str:
    """Compare as signed integers what is positive; what is negative as unsigned, turned round."""
    text, bits = form.text, form.dtype.bits
    zero = form.zero
    is_positive = text.value(f'llvm.icmp "sge" {value}, {zero} : i{bits}')
    is_negative = text.value(f'llvm.icmp "slt" {value}, {zero} : i{bits}')
    name = "red" if form.may_reduce else "atom"
    old: str | None = None
    for suffix, where in (
        (f"{kind}.s{bits}", is_positive),
        (f"{_OPPOSITE[kind]}.u{bits}", is_negative),
    ):
        old = _instruction(
            form,
            f"{name}.{form.how}.{suffix}",
            address,
            [value],
            both(text, predicate, where),
            initial=old,
            gives=not form.may_reduce,
        )
    assert old is not None, "one of the two is done"
    return old


def _nan_that_wins(form: _Form, kind: str, word: str) -> str:
    """Return the word of a float; a NaN with the sign that makes it the greatest, or the least."""
    text, type_, bits = form.text, form.words.type, form.dtype.bits
    (number,) = form.elements(word)
    is_nan = text.value(f'llvm.fcmp "uno" {number}, {number} : {dtype_text(form.dtype)}')
    if kind == "max":
        magnitude = text.raw_constant(f"{(1 << bits - 1) - 1} : {type_}", type_)
        nan = text.value(f"llvm.and {word}, {magnitude} : {type_}")
    else:
        sign = text.raw_constant(f"{-1 << bits - 1} : {type_}", type_)
        nan = text.value(f"llvm.or {word}, {sign} : {type_}")
    return text.value(f"llvm.select {is_nan}, {nan}, {word} : i1, {type_}")


def _loop(form: _Form, address: str, value: str, predicate: str | None) -> str:
    """Emit a loop around `cas`, for the threads that the predicate lets in; return the old word."""
    if predicate is None:
        return _exchanges(form, address, value)
    text, type_ = form.text, form.words.type
    left, (result,) = text.reserve(count=1)
    text.line(f"{left}scf.if {predicate} -> ({type_}) {{")
    with text.nested():
        old = _exchanges(form, address, value)
        text.line(f"scf.yield {old} : {type_}")
    text.line("} else {")
    with text.nested():
        text.line(f"scf.yield {form.zero} : {type_}")
    text.line("}")
    return result


def _exchanges(form: _Form, address: str, value: str) -> str:
    """Try to exchange what was found for what comes of it, until nobody came in between."""
    text, type_, bits = form.text, form.words.type, form.words.bits
    scope: str = form.operation.attributes["scope"]
    first = _instruction(form, f"ld.relaxed.{scope}.global.b{bits}", address, [], None)
    left, (result,) = text.reserve(count=1)
    expected, passed = text.fresh(), text.fresh()
    text.line(f"{left}scf.while ({expected} = {first}) : ({type_}) -> ({type_}) {{")
    with text.nested():
        new = _advanced(form, expected, value)
        old = _instruction(form, f"atom.{form.how}.cas.b{bits}", address, [expected, new], None)
        failed = text.value(f'llvm.icmp "ne" {old}, {expected} : {type_}')
        text.line(f"scf.condition({failed}) {old} : {type_}")
    text.line("} do {")
    text.line(f"^bb0({passed}: {type_}):")
    with text.nested():
        text.line(f"scf.yield {passed} : {type_}")
    text.line("}")
    return result


def _advanced(form: _Form, old: str, value: str) -> str:
    """Return the word that an operation on 16-bit elements makes of an old one and a value."""
    text, type_, dtype = form.text, form.words.type, form.dtype
    kind: str = form.operation.attributes["kind"]
    if kind == "xchg":
        return value
    if kind in BITWISE:
        return text.value(f"llvm.{kind} {old}, {value} : {type_}")
    if dtype.is_float and kind in _EXTREMA:
        keys = [_ordered(form, word) for word in (value, old)]
        predicate = "sgt" if kind == "max" else "slt"
        wins = text.value(f'llvm.icmp "{predicate}" {keys[0]}, {keys[1]} : {type_}')
        return text.value(f"llvm.select {wins}, {value}, {old} : i1, {type_}")
    pairs = zip(form.elements(old), form.elements(value), strict=True)
    return form.word(
        *(
            arithmetic.binary(text, kind, left, right, dtype, contract=False)
            for left, right in pairs
        )
    )


def _ordered(form: _Form, word: str) -> str:
    """Return a signed integer that is ordered as the floats are: negative ones turned round."""
    text, type_, bits = form.text, form.words.type, form.dtype.bits
    last = text.raw_constant(f"{bits - 1} : {type_}", type_)
    magnitude = text.raw_constant(f"{(1 << bits - 1) - 1} : {type_}", type_)
    sign = text.value(f"llvm.ashr {word}, {last} : {type_}")
    turned = text.value(f"llvm.and {sign}, {magnitude} : {type_}")
    return text.value(f"llvm.xor {word}, {turned} : {type_}")


def _told(
    emitter: KernelEmitter,
    operation: Operation,
    fragment: Fragment,
    owner: str | None,
    sources: tuple[int, ...],
) -> Fragment:
    """Return the result in all threads that hold it, from those that did the operation."""
    type_ = operation.result.type
    element, size_bytes = element_type(type_), element_bytes(type_)
    layout = layout_of(type_) if isinstance(type_, TileType) else None
    plan = plan_share(layout, size_bytes=size_bytes)
    if plan is None or owner is None:
        return fragment
    text = emitter.text
    base = symbol_address(text, operation.attributes["shared_offset"])
    written = ThreadAddresses.of(text, emitter.threads, base, plan.write, size_bytes)
    text.line(f"scf.if {owner} {{")
    with text.nested():
        store_fragment(text, written, plan.write, fragment, element)
        text.line("scf.yield")
    text.line("}")
    emitter.shared.barrier()
    read = ThreadAddresses.of(text, emitter.threads, base, plan.read, size_bytes)
    loaded = load_registers(text, read, plan.read, element)
    return tuple(loaded[source] for source in sources)


EMITTERS: Mapping[str, Emit] = MappingProxyType(dict.fromkeys(ATOMICS, _emit))
