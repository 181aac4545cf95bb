"""Products of tiles: `mma.sync` over the fragments of a warp, or multiply-adds of each thread.

`emit.wgmma` has those of warpgroups.

`layout.atoms` puts an instruction's fragment into the first registers of an operand and repeats it
over the rest, so fragments are slices. The operands of each step along k are read before the step
before is multiplied, so that reads of shared memory are under way meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tilewright.abi.dtypes import DType, float32
from tilewright.errors import InternalCompilerError
from tilewright_compiler.emit.arithmetic import convert
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.mma import Instruction, Parts, to_tf32
from tilewright_compiler.emit.operands import Operand, Steps, operand
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import dtype_text
from tilewright_compiler.emit.wgmma import emit_dot_wait, emit_wgmma
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype, shape_of
from tilewright_compiler.layout.atoms import ATOMS, Atom, DotLayouts, dot_layouts
from tilewright_compiler.layout.linear import LinearLayout, flatten

# Multiply-adds take four elements along k at a time: 16 bytes of f32.
_FMA_STEP = 4

# Registers of one step of both operands, and what adds their product to the accumulators.
Registers = tuple[list[str], list[str]]
Multiply = Callable[[Registers, list[str]], None]


def _emit_dot(emitter: KernelEmitter, operation: Operation) -> None:
    a, b, acc = operation.operands
    atom, layouts = _atom_and_layouts(operation)
    if layout_of(acc.type) != layouts.acc:
        msg = f"accumulator {acc.type} of a dot that takes {layouts.acc}"
        raise InternalCompilerError(msg)
    if atom.is_wgmma:
        emit_wgmma(emitter, operation, atom, layouts)
        return
    extent = atom.k if atom.is_mma else min(_FMA_STEP, shape_of(a.type)[1])
    a_steps = Steps.of(layouts.a, k_axis=1, extent=extent)
    b_steps = Steps.of(layouts.b, k_axis=0, extent=extent)
    sides = operand(emitter, a, layouts.a, a_steps), operand(emitter, b, layouts.b, b_steps)
    dtypes = element_dtype(a.type), element_dtype(b.type)
    takes_words = False
    if atom.is_mma:
        instruction = Instruction.of(atom, dtypes, precision=operation.attributes["precision"])
        takes_words = instruction.takes_words
        multiply = _mma(emitter.text, instruction)
    else:
        acc_dtype = element_dtype(acc.type)
        parts = DotLayouts(a_steps.layout, b_steps.layout, layouts.acc)
        rounds = operation.attributes["precision"] == "tf32"
        multiply = _fma(emitter.text, parts, extent, (*dtypes, acc_dtype), rounds=rounds)
    accumulators = list(emitter.fragment(acc))
    following = _read(sides, 0, takes_words=takes_words)
    for step in range(1, a_steps.count + 1):
        current = following
        if step < a_steps.count:
            following = _read(sides, step, takes_words=takes_words)
        multiply(current, accumulators)
    emitter.define(operation.result, accumulators)


def _atom_and_layouts(operation: Operation) -> tuple[Atom, DotLayouts]:
    a, b, acc = operation.operands
    name, warps = (operation.attributes.get(key) for key in ("atom", "warps"))
    if name not in ATOMS or warps is None:
        msg = f"dot with atom {name} and warps {warps}: the schedule must legalize it first"
        raise InternalCompilerError(msg)
    (m, k), n = shape_of(a.type), shape_of(b.type)[1]
    num_warps = layout_of(acc.type).num_warps
    layouts = dot_layouts(ATOMS[name], shape=(m, n, k), warps=warps, num_warps=num_warps)
    return ATOMS[name], layouts


def _read(sides: tuple[Operand, Operand], step: int, *, takes_words: bool) -> Registers:
    left, right = sides
    if takes_words:
        return left.words(step), right.words(step)
    return left.elements(step), right.elements(step)


def _mma(text: FunctionText, instruction: Instruction) -> Multiply:
    size = instruction.acc_registers

    def multiply(registers: Registers, accumulators: list[str]) -> None:
        a, b = (instruction.prepare(text, side) for side in registers)
        rows = _slices(a, instruction.a_registers)
        columns = _slices(b, instruction.b_registers)
        # Products outermost: instructions that follow each other do not wait for each other.
        for a_part, b_part in instruction.products:
            for index in range(len(rows) * len(columns)):
                row, column = rows[index // len(columns)], columns[index % len(columns)]
                part = slice(index * size, (index + 1) * size)
                accumulators[part] = instruction.emit(
                    text,
                    [parts[a_part] for parts in row],
                    [parts[b_part] for parts in column],
                    accumulators[part],
                )

    return multiply


def _slices(parts: Sequence[Parts], length: int) -> list[Sequence[Parts]]:
    return [parts[first : first + length] for first in range(0, len(parts), length)]


def _fma(
    text: FunctionText,
    layouts: DotLayouts,
    extent: int,
    dtypes: tuple[DType, DType, DType],
    *,
    rounds: bool,
) -> Multiply:
    """Return multiply-adds in ascending order of k, one for each accumulator and index.

    With `rounds`, f32 operands are rounded to tf32, as the instruction for larger tiles does.
    """
    a_dtype, b_dtype, acc_dtype = dtypes
    a_places, b_places = _places(layouts.a), _places(layouts.b)
    targets = [layouts.acc.coordinates(register=r) for r in range(layouts.acc.num_registers)]

    def prepared(name: str, dtype: DType) -> str:
        if rounds and dtype == float32:
            return text.value(f"llvm.bitcast {to_tf32(text, name)} : i32 to f32")
        return convert(text, name, dtype, acc_dtype)

    def multiply(registers: Registers, accumulators: list[str]) -> None:
        a = [prepared(name, a_dtype) for name in registers[0]]
        b = [prepared(name, b_dtype) for name in registers[1]]
        for k in range(extent):
            for register, (m, n) in enumerate(targets):
                left = a[a_places[flatten((m, k), layouts.a.shape)]]
                right = b[b_places[flatten((k, n), layouts.b.shape)]]
                accumulators[register] = _multiply_add(
                    text, left, right, accumulators[register], acc_dtype
                )

    return multiply


def _places(layout: LinearLayout) -> dict[int, int]:
    """Return the register of each element of the first thread: others differ as their tiles do."""
    return {layout.flat_index(register=r): r for r in range(layout.num_registers)}


def _multiply_add(text: FunctionText, left: str, right: str, acc: str, dtype: DType) -> str:
    type_ = dtype_text(dtype)
    if dtype.is_float:
        return text.value(
            f"llvm.intr.fma({left}, {right}, {acc}) : ({type_}, {type_}, {type_}) -> {type_}"
        )
    product = text.value(f"llvm.mul {left}, {right} : {type_}")
    return text.value(f"llvm.add {product}, {acc} : {type_}")


EMITTERS: Mapping[str, Emit] = MappingProxyType({"dot": _emit_dot, "dot_wait": emit_dot_wait})
