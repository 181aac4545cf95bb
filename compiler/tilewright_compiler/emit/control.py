"""Structured control flow as scf operations: a carried tile is one value for each register."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tilewright_compiler.emit.kernel import Emit, KernelEmitter, num_registers
from tilewright_compiler.emit.types import register_type
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.types import element_dtype

# Bounds of this width are taken as they are: no kernel counts to their end.
_WIDEST = 64

EmitBlock = Callable[[KernelEmitter, Block], None]


def emitters(emit_block: EmitBlock) -> Mapping[str, Emit]:
    """Return the emitters of control flow; `emit_block` emits the operations of a region."""

    def emit_for(emitter: KernelEmitter, operation: Operation) -> None:
        _emit_for(emitter, operation, emit_block)

    def emit_while(emitter: KernelEmitter, operation: Operation) -> None:
        _emit_while(emitter, operation, emit_block)

    def emit_if(emitter: KernelEmitter, operation: Operation) -> None:
        _emit_if(emitter, operation, emit_block)

    return MappingProxyType(
        {
            "for": emit_for,
            "while": emit_while,
            "if": emit_if,
            "yield": _emit_yield,
            "condition": _emit_condition,
            "return": _emit_return,
        }
    )


def _emit_for(emitter: KernelEmitter, operation: Operation, emit_block: EmitBlock) -> None:
    text, (body,) = emitter.text, operation.regions
    bounds = [emitter.scalar(value) for value in operation.operands[:3]]
    initial = operation.operands[3:]
    induction, *carried = body.arguments
    dtype = element_dtype(induction.type)
    type_ = counted = register_type(induction.type)
    # The last step may lead beyond what a narrow type holds; a step of 1 stops at the end.
    if dtype.bits < _WIDEST and bounds[2] != text.constant(1, dtype):
        extend, counted = "sext" if dtype.is_signed else "zext", f"i{_WIDEST}"
        bounds = [text.value(f"llvm.{extend} {bound} : {type_} to {counted}") for bound in bounds]
    lower, upper, step = bounds
    sign = "" if dtype.is_signed else "unsigned "
    types = _flat_types(initial)
    left, results = text.reserve(count=len(types))
    counter = text.fresh()
    inner = _define_arguments(emitter, carried)
    header = f"{left}scf.for {sign}{counter} = {lower} to {upper} step {step}"
    if types:
        assignments = _assignments(inner, _flat_names(emitter, initial))
        header += f" iter_args({assignments}) -> ({', '.join(types)})"
    text.line(f"{header} : {counted} {{")
    with text.nested():
        if counted != type_:
            counter = text.value(f"llvm.trunc {counter} : {counted} to {type_}")
        emitter.define(induction, [counter])
        emit_block(emitter, body)
    text.line("}")
    _define_results(emitter, operation, results)


def _emit_while(emitter: KernelEmitter, operation: Operation, emit_block: EmitBlock) -> None:
    text, (before, after) = emitter.text, operation.regions
    before_types = _flat_types(before.arguments)
    after_types = _flat_types(after.arguments)
    left, results = text.reserve(count=len(after_types))
    inner = _define_arguments(emitter, before.arguments)
    assignments = _assignments(inner, _flat_names(emitter, operation.operands))
    carried = f" ({assignments})" if before_types else ""
    text.line(
        f"{left}scf.while{carried} : ({', '.join(before_types)}) -> ({', '.join(after_types)}) {{"
    )
    with text.nested():
        emit_block(emitter, before)
    text.line("} do {")
    passed = _define_arguments(emitter, after.arguments)
    pairs = zip(passed, after_types, strict=True)
    text.line(f"^bb0({', '.join(f'{name}: {type_}' for name, type_ in pairs)}):")
    with text.nested():
        emit_block(emitter, after)
    text.line("}")
    _define_results(emitter, operation, results)


def _emit_if(emitter: KernelEmitter, operation: Operation, emit_block: EmitBlock) -> None:
    text, (then, otherwise) = emitter.text, operation.regions
    types = _flat_types(operation.results)
    left, results = text.reserve(count=len(types))
    arrow = f" -> ({', '.join(types)})" if types else ""
    text.line(f"{left}scf.if {emitter.scalar(operation.operands[0])}{arrow} {{")
    with text.nested():
        emit_block(emitter, then)
    text.line("} else {")
    with text.nested():
        emit_block(emitter, otherwise)
    text.line("}")
    _define_results(emitter, operation, results)


def _emit_yield(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.text.line(f"scf.yield{_typed(emitter, operation.operands)}")


def _emit_condition(emitter: KernelEmitter, operation: Operation) -> None:
    condition, *values = operation.operands
    emitter.text.line(f"scf.condition({emitter.scalar(condition)}){_typed(emitter, values)}")


def _emit_return(emitter: KernelEmitter, operation: Operation) -> None:
    assert not operation.operands, "a kernel returns nothing"
    emitter.text.line("llvm.return")


def _typed(emitter: KernelEmitter, values: Sequence[Value]) -> str:
    names = _flat_names(emitter, values)
    return f" {', '.join(names)} : {', '.join(_flat_types(values))}" if names else ""


def _flat_types(values: Sequence[Value]) -> list[str]:
    return [register_type(v.type) for v in values for _ in range(num_registers(v.type))]


def _flat_names(emitter: KernelEmitter, values: Sequence[Value]) -> list[str]:
    return [name for value in values for name in emitter.fragment(value)]


def _assignments(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))


def _define_arguments(emitter: KernelEmitter, arguments: Sequence[Value]) -> list[str]:
    names = []
    for argument in arguments:
        fragment = [emitter.text.fresh() for _ in range(num_registers(argument.type))]
        emitter.define(argument, fragment)
        names += fragment
    return names


def _define_results(emitter: KernelEmitter, operation: Operation, names: Sequence[str]) -> None:
    position = 0
    for result in operation.results:
        count = num_registers(result.type)
        emitter.define(result, names[position : position + count])
        position += count
