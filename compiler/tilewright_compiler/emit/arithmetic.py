"""Elementwise arithmetic, comparison, selection and conversion, element by element.

Floats: every operation of f16 and bf16 gives one rounding of the exact result. add, sub and mul
do so in their own type (bf16 through fma on sm_80); div and rem go through f32, whose 24 bits are
enough for the second rounding to be harmless. Only f32 and f64 multiply-adds may contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64
from tilewright_compiler.emit import eight_bit_floats
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import dtype_text, register_type
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.arithmetic import BINARY
from tilewright_compiler.ir.types import PointerType, TileType, element_dtype, element_type
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import unflatten

CONTRACT = " {fastmathFlags = #llvm.fastmath<contract>}"

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_MIN_MAX = {"min": "minimum", "max": "maximum"}
_FOLLOWED = 32  # elements a thread: the depth of a network grows with the logarithm of its length
_FMOD = {32: "__nv_fmodf", 64: "__nv_fmod"}
_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}

# Conversions that one instruction does as the IR wants: saturating, NaN to 0.
_NATIVE_TO_INTEGER = {
    (float32, "int", 32): "llvm.nvvm.f2i.rz",
    (float32, "uint", 32): "llvm.nvvm.f2ui.rz",
}
_ROUND_TO_ZERO = {
    ("int", 32): "llvm.nvvm.i2f.rz",
    ("uint", 32): "llvm.nvvm.ui2f.rz",
    ("int", 64): "llvm.nvvm.ll2f.rz",
    ("uint", 64): "llvm.nvvm.ull2f.rz",
}


_HIGH_PRODUCT = {
    ("int", 32): "llvm.nvvm.mulhi.i",
    ("uint", 32): "llvm.nvvm.mulhi.ui",
    ("int", 64): "llvm.nvvm.mulhi.ll",
    ("uint", 64): "llvm.nvvm.mulhi.ull",
}


def binary(
    text: FunctionText, name: str, left: str, right: str, dtype: DType, *, contract: bool
) -> str:
    """Return the name of `left <name> right` for one element."""
    type_ = dtype_text(dtype)
    if dtype.is_float:
        return _float_binary(text, name, left, right, dtype, contract=contract)
    if name in _MIN_MAX:
        sign = "s" if dtype.is_signed else "u"
        return text.value(
            f"llvm.intr.{sign}{name}({left}, {right}) : ({type_}, {type_}) -> {type_}"
        )
    if name == "mulhi":
        return text.intrinsic(
            _HIGH_PRODUCT[dtype.kind, dtype.bits], (left, right), (type_,) * 2, type_
        )
    if name in ("div", "rem"):
        name = ("s" if dtype.is_signed else "u") + name
        if not text.is_constant(right):
            right = _unknown(text, right, dtype)
    elif name == "shr":
        name = "ashr" if dtype.is_signed else "lshr"
    return text.value(f"llvm.{name} {left}, {right} : {type_}")


def _unknown(text: FunctionText, name: str, dtype: DType) -> str:
    """Return an integer of which LLVM knows nothing, at no cost: nor what it was made of.

    A divisor that is 0 divides to some value here, but is undefined there: LLVM would conclude that
    it is not 0, and drop the comparison by which a kernel leaves such lanes out.
    """
    if dtype.bits == 8:
        extension = "sext" if dtype.is_signed else "zext"
        wide = text.value(f"llvm.{extension} {name} : i8 to i16")
        return text.value(f"llvm.trunc {_passed(text, wide, 'i16')} : i16 to i8")
    return _passed(text, name, dtype_text(dtype))


def _passed(text: FunctionText, name: str, type_: str) -> str:
    letter = {"i16": "h", "i32": "r", "i64": "l"}[type_]
    return text.value(
        f'llvm.inline_asm asm_dialect = att "", "={letter},0" {name} : ({type_}) -> {type_}'
    )


def convert(text: FunctionText, name: str, source: DType, target: DType) -> str:
    """Return the name of one element converted as the IR's `cast` does."""
    if source == target:
        return name
    if not source.has_arithmetic:
        (half,) = eight_bit_floats.widen(text, (name,), source)
        return convert(text, half, float16, target)
    if target.bits == 1:
        return _to_bool(text, name, source)
    if source.is_float and target.is_float:
        return _float_to_float(text, name, source, target)
    if source.is_float:
        return _float_to_integer(text, name, source, target)
    if target.is_float:
        return _integer_to_float(text, name, source, target)
    return _resize(text, name, source, target)


def truncate(text: FunctionText, name: str, source: DType, target: DType) -> str:
    """Return the name of one float made narrower towards zero; two truncations are one."""
    if source == float64:
        name = text.intrinsic("llvm.nvvm.d2f.rz", (name,), ("f64",), "f32")
    if target == float32:
        return name
    bits = text.value(
        f'llvm.inline_asm asm_dialect = att "cvt.rz.{target.name}.f32 $0, $1;", "=h,f" {name} : '
        "(f32) -> i16"
    )
    return text.value(f"llvm.bitcast {bits} : i16 to {target.name}")


def _float_binary(
    text: FunctionText, name: str, left: str, right: str, dtype: DType, *, contract: bool
) -> str:
    type_ = dtype.name
    if name in _MIN_MAX:
        return _float_min_max(text, name, left, right, dtype)
    if name in ("div", "rem") and dtype.bits == 16:
        wide = [convert(text, operand, dtype, float32) for operand in (left, right)]
        result = _float_binary(text, name, wide[0], wide[1], float32, contract=False)
        return convert(text, result, float32, dtype)
    if name == "rem":
        return text.call(_FMOD[dtype.bits], (left, right), (type_, type_), type_)
    # A contracted f16 multiply-add would skip the rounding of the product, which other types show
    # only in the last place; kernels round on purpose there.
    flags = CONTRACT if contract and name != "div" and dtype.bits >= 32 else ""
    return text.value(f"llvm.{_FLOAT[name]} {left}, {right}{flags} : {type_}")


def _float_min_max(text: FunctionText, name: str, left: str, right: str, dtype: DType) -> str:
    type_ = dtype.name
    if dtype.bits == 64:  # no max.NaN.f64: a NaN is selected by hand
        picked = text.value(f"llvm.intr.{name}num({left}, {right}) : ({type_}, {type_}) -> {type_}")
        unordered = text.value(f'llvm.fcmp "uno" {left}, {right} : {type_}')
        quiet = text.value(f"llvm.fadd {left}, {right} : {type_}")
        return text.value(f"llvm.select {unordered}, {quiet}, {picked} : i1, {type_}")
    return text.value(
        f"llvm.intr.{_MIN_MAX[name]}({left}, {right}) : ({type_}, {type_}) -> {type_}"
    )


def _to_bool(text: FunctionText, name: str, source: DType) -> str:
    type_ = dtype_text(source)
    zero = text.constant(0, source)
    if source.is_float:
        return text.value(f'llvm.fcmp "une" {name}, {zero} : {type_}')
    return text.value(f'llvm.icmp "ne" {name}, {zero} : {type_}')


def _float_to_float(text: FunctionText, name: str, source: DType, target: DType) -> str:
    if not target.has_arithmetic:
        is_exact = source != float64
        single = convert(text, name, source, float32) if is_exact else _round_float64(text, name)
        return eight_bit_floats.narrow(text, single, target)
    if {source, target} == {float16, bfloat16}:
        wide = convert(text, name, source, float32)
        return convert(text, wide, float32, target)
    if source == bfloat16 and target == float32 and name in text.halves:
        return _upper_half(text, *text.halves[name])
    operation = "fpext" if target.bits > source.bits else "fptrunc"
    return text.value(f"llvm.{operation} {name} : {source.name} to {target.name}")


def _round_float64(text: FunctionText, name: str) -> str:
    """Return an f32 whose later rounding to 8 bits equals a direct one: see `_round_to_odd`."""
    truncated = text.intrinsic("llvm.nvvm.d2f.rz", (name,), ("f64",), "f32")
    back = text.value(f"llvm.fpext {truncated} : f32 to f64")
    return _with_sticky_bit(text, truncated, text.value(f'llvm.fcmp "une" {back}, {name} : f64'))


def _upper_half(text: FunctionText, word: str, is_upper: bool) -> str:
    """Return the f32 that a half of a word is the upper bits of: what bf16 is."""
    if is_upper:
        bits = text.value(f"llvm.and {word}, {text.i32(-0x10000)} : i32")
    else:
        bits = text.value(f"llvm.shl {word}, {text.i32(16)} : i32")
    return text.value(f"llvm.bitcast {bits} : i32 to f32")


def _float_to_integer(text: FunctionText, name: str, source: DType, target: DType) -> str:
    if source.bits == 16:
        name, source = convert(text, name, source, float32), float32
    type_ = dtype_text(target)
    native = _NATIVE_TO_INTEGER.get((source, target.kind, target.bits))
    if native is None:
        sign = "s" if target.is_signed else "u"
        native = f"llvm.fpto{sign}i.sat.{type_}.{source.name}"
    return text.intrinsic(native, (name,), (source.name,), type_)


def _integer_to_float(text: FunctionText, name: str, source: DType, target: DType) -> str:
    type_ = dtype_text(source)
    operation = "sitofp" if source.kind == "int" else "uitofp"
    if target.bits >= 32:
        return text.value(f"llvm.{operation} {name} : {type_} to {target.name}")
    if source.bits <= 16:
        exact = text.value(f"llvm.{operation} {name} : {type_} to f32")
    else:
        exact = _round_to_odd(text, name, source)
    return convert(text, exact, float32, target)


def _round_to_odd(text: FunctionText, name: str, source: DType) -> str:
    """Return an f32 whose later rounding to 16 bits equals a direct one.

    Truncated, with the last bit set where that lost anything (Boldo and Melquiond, "When double
    rounding is odd").
    """
    type_ = dtype_text(source)
    truncated = text.intrinsic(_ROUND_TO_ZERO[source.kind, source.bits], (name,), (type_,), "f32")
    # What was truncated towards 0 always fits the integer again.
    operation = "fptosi" if source.kind == "int" else "fptoui"
    back = text.value(f"llvm.{operation} {truncated} : f32 to {type_}")
    inexact = text.value(f'llvm.icmp "ne" {back}, {name} : {type_}')
    return _with_sticky_bit(text, truncated, inexact)


def _with_sticky_bit(text: FunctionText, truncated: str, inexact: str) -> str:
    """Return the f32 with its last bit set where what was cut off is not zero."""
    sticky = text.value(f"llvm.zext {inexact} : i1 to i32")
    bits = text.value(f"llvm.bitcast {truncated} : f32 to i32")
    odd = text.value(f"llvm.or {bits}, {sticky} : i32")
    return text.value(f"llvm.bitcast {odd} : i32 to f32")


def _resize(text: FunctionText, name: str, source: DType, target: DType) -> str:
    from_type, to_type = dtype_text(source), dtype_text(target)
    if source.bits == target.bits:
        return name
    if source.bits > target.bits:
        return text.value(f"llvm.trunc {name} : {from_type} to {to_type}")
    operation = "sext" if source.kind == "int" else "zext"
    return text.value(f"llvm.{operation} {name} : {from_type} to {to_type}")


def _emit_binary(emitter: KernelEmitter, operation: Operation) -> None:
    text, dtype = emitter.text, element_dtype(operation.result.type)
    hides = _hides_flip(emitter, operation, dtype)

    def compute(left: str, right: str) -> str:
        right = _unknown(text, right, dtype) if hides else right
        return binary(text, operation.name, left, right, dtype, contract=emitter.contracts)

    emitter.elementwise(operation, compute)


def _hides_flip(emitter: KernelEmitter, operation: Operation, dtype: DType) -> bool:
    """Whether LLVM must not follow the minimum or maximum of a tile and its flip.

    Its analysis of integer minima of maxima of minima, as networks that sort have them, takes time
    exponential in their depth.
    """
    if operation.name not in _MIN_MAX or dtype.kind not in ("int", "uint"):
        return False
    right = operation.operands[1]
    return right in emitter.flips and len(emitter.fragment(right)) > _FOLLOWED


def _emit_cmp(emitter: KernelEmitter, operation: Operation) -> None:
    element = element_type(operation.operands[0].type)
    predicate: str = operation.attributes["predicate"]
    type_ = register_type(operation.operands[0].type)
    if isinstance(element, PointerType):
        code = f'llvm.icmp "{_integer_predicate(predicate, is_signed=False)}"'
    elif element.dtype.is_float:
        code = f'llvm.fcmp "{_FLOAT_PREDICATES[predicate]}"'
    else:
        signed = element.dtype.is_signed
        code = f'llvm.icmp "{_integer_predicate(predicate, is_signed=signed)}"'
    left, right = (emitter.fragment(value) for value in operation.operands)
    same = _sources_by_constancy(emitter, operation)
    computed = {
        register: emitter.text.value(f"{code} {left[register]}, {right[register]} : {type_}")
        for register in sorted(set(same))
    }
    emitter.define(operation.result, [computed[register] for register in same])


def _sources_by_constancy(emitter: KernelEmitter, operation: Operation) -> tuple[int, ...]:
    """Return for each register of a result the first one that is known to hold the same.

    A mask of whole vectors costs one comparison a vector.
    """
    result = operation.result
    if not isinstance(result.type, TileType):
        return (0,)
    layout, constancy = layout_of(result.type), emitter.axis_info[result].constancy
    operands = list(zip(*(emitter.fragment(value) for value in operation.operands), strict=True))
    first: dict[object, int] = {}
    sources = []
    for register in range(layout.num_registers):
        place = unflatten(gf2.apply(layout.register, register), layout.shape)
        # Lanes and warps move whole aligned groups or bits within one: both are alike for all
        # registers of a group.
        group = tuple(index // run for index, run in zip(place, constancy, strict=True))
        known = first.setdefault(operands[register], register)
        sources.append(first.setdefault(group, known))
    return tuple(sources)


def _integer_predicate(predicate: str, *, is_signed: bool) -> str:
    if predicate in ("eq", "ne"):
        return predicate
    return ("s" if is_signed else "u") + predicate


def _emit_select(emitter: KernelEmitter, operation: Operation) -> None:
    type_ = register_type(operation.result.type)
    emitter.elementwise(
        operation,
        lambda condition, left, right: emitter.text.value(
            f"llvm.select {condition}, {left}, {right} : i1, {type_}"
        ),
    )


def _emit_cast(emitter: KernelEmitter, operation: Operation) -> None:
    source = element_dtype(operation.operands[0].type)
    target = element_dtype(operation.result.type)
    if source != target and not source.has_arithmetic:
        names = tuple(dict.fromkeys(emitter.fragment(operation.operands[0])))
        halves = dict(zip(names, eight_bit_floats.widen(emitter.text, names, source), strict=True))
        emitter.elementwise(
            operation, lambda name: convert(emitter.text, halves[name], float16, target)
        )
        return
    emitter.elementwise(operation, lambda name: convert(emitter.text, name, source, target))


def _emit_truncate(emitter: KernelEmitter, operation: Operation) -> None:
    source = element_dtype(operation.operands[0].type)
    target = element_dtype(operation.result.type)
    emitter.elementwise(operation, lambda name: truncate(emitter.text, name, source, target))


def _emit_bitcast(emitter: KernelEmitter, operation: Operation) -> None:
    source = register_type(operation.operands[0].type)
    target = register_type(operation.result.type)
    if source == target:
        emitter.define(operation.result, emitter.fragment(operation.operands[0]))
        return
    emitter.elementwise(
        operation, lambda name: emitter.text.value(f"llvm.bitcast {name} : {source} to {target}")
    )


def _emit_neg(emitter: KernelEmitter, operation: Operation) -> None:
    dtype = element_dtype(operation.result.type)
    type_ = dtype_text(dtype)
    if dtype.is_float:
        emitter.elementwise(
            operation, lambda name: emitter.text.value(f"llvm.fneg {name} : {type_}")
        )
        return
    zero = emitter.text.constant(0, dtype)
    emitter.elementwise(
        operation, lambda name: emitter.text.value(f"llvm.sub {zero}, {name} : {type_}")
    )


def _emit_abs(emitter: KernelEmitter, operation: Operation) -> None:
    dtype = element_dtype(operation.result.type)
    type_ = dtype_text(dtype)
    if dtype.is_float:
        code = f"llvm.intr.fabs({{}}) : ({type_}) -> {type_}"
    elif dtype.kind == "int":
        code = f'"llvm.intr.abs"({{}}) <{{{{is_int_min_poison = false}}}}> : ({type_}) -> {type_}'
    else:
        emitter.define(operation.result, emitter.fragment(operation.operands[0]))
        return
    emitter.elementwise(operation, lambda name: emitter.text.value(code.format(name)))


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        **dict.fromkeys(
            BINARY,
            _emit_binary,
        ),
        "cmp": _emit_cmp,
        "select": _emit_select,
        "cast": _emit_cast,
        "truncate": _emit_truncate,
        "bitcast": _emit_bitcast,
        "neg": _emit_neg,
        "abs": _emit_abs,
    }
)
