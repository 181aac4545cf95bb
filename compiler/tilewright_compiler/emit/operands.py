"""The operands of a dot, cut into steps along k: from registers, or read from shared memory.

A step of an operand is the part of its layout whose register bits lie within the step. The same
plan then reads every step: the offset in shared memory is linear, so another step is an xor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.abi.dtypes import DType
from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.emit import words
from tilewright_compiler.emit.kernel import KernelEmitter, layout_of
from tilewright_compiler.emit.shared_access import (
    ThreadAddresses,
    load_matrices,
    load_registers,
)
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.words import Words
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, SharedType, element_dtype
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, unflatten
from tilewright_compiler.layout.matrix_load import WORD_BYTES, MatrixLoad, plan_matrix_load
from tilewright_compiler.layout.shared import SharedAccess
from tilewright_compiler.layout.shared_access import plan_shared_access
from tilewright_compiler.layout.swizzle import CHUNK_BYTES, SharedLayout


@dataclass(frozen=True, slots=True)
class Steps:
    """A layout of an operand as steps along `k_axis`, each of `extent`.

    Registers are counted within a step, in the order of the whole layout: `layout` is that of the
    first step, register r of step s is `registers[s][r]` of the whole, and `distances[s]` is what
    all flat indices of step s differ by from the first one's.
    """

    layout: LinearLayout
    registers: tuple[tuple[int, ...], ...]
    distances: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.registers)

    @staticmethod
    def of(layout: LinearLayout, *, k_axis: int, extent: int) -> Steps:
        """Cut a layout of a dot's operand, whose lanes and warps all take part in every step."""
        within: list[int] = []
        beyond: list[int] = []
        for bit, basis in enumerate(layout.register):
            is_within = unflatten(basis, layout.shape)[k_axis] < extent
            (within if is_within else beyond).append(bit)
        count = 1 << len(beyond)

        def select(bits: list[int], index: int) -> int:
            return gf2.apply([1 << bit for bit in bits], index)

        return Steps(
            layout=replace(layout, register=tuple(layout.register[bit] for bit in within)),
            registers=tuple(
                tuple(
                    select(beyond, step) | select(within, index)
                    for index in range(1 << len(within))
                )
                for step in range(count)
            ),
            distances=tuple(
                gf2.apply(layout.register, select(beyond, step)) for step in range(count)
            ),
        )


class RegisterOperand:
    """An operand whose elements the threads hold already."""

    def __init__(self, emitter: KernelEmitter, value: Value, steps: Steps) -> None:
        """Take the registers of `value`."""
        self._text = emitter.text
        self._dtype = element_dtype(value.type)
        self._fragment = emitter.fragment(value)
        self._steps = steps

    def elements(self, step: int) -> list[str]:
        """Return the elements of a step by register."""
        return [self._fragment[register] for register in self._steps.registers[step]]

    def words(self, step: int) -> list[str]:
        """Return the elements of a step as i32 of neighbouring registers."""
        return _packed(self._text, self._dtype, self.elements(step))


class SharedOperand:
    """An operand that is read from shared memory, a step at a time."""

    def __init__(self, emitter: KernelEmitter, value: Value, steps: Steps) -> None:
        """Plan the reads of a tile in shared memory."""
        tile = value.type
        assert isinstance(tile, SharedType)
        self._text = emitter.text
        self._dtype = tile.dtype
        self._size_bytes = tile.dtype.size_bytes
        self._shifts = tuple(tile.layout.offset(distance) for distance in steps.distances)
        self._matrices = self._matrix_plan(steps, tile.layout)
        self._vectors = self._vector_plan(steps, tile.layout)
        base = emitter.scalar(value)
        plan = self._vectors if self._matrices is None else self._matrices
        self._addresses = ThreadAddresses.of(
            emitter.text, emitter.threads, base, plan, self._size_bytes
        )

    def _matrix_plan(self, steps: Steps, shared: SharedLayout) -> MatrixLoad | None:
        plan = plan_matrix_load(steps.layout, shared, size_bytes=self._size_bytes)
        chunk = CHUNK_BYTES // self._size_bytes
        if plan is None or any(shift % chunk for shift in self._shifts):
            return None
        neighbours = all(
            word == tuple(range(word[0], word[0] + len(word)))
            for group in plan.groups
            for word in group.words
        )
        return plan if neighbours else None

    def _vector_plan(self, steps: Steps, shared: SharedLayout) -> SharedAccess:
        aligned = CHUNK_BYTES // self._size_bytes
        for shift in self._shifts:
            aligned = min(aligned, shift & -shift or aligned)
        return plan_shared_access(
            steps.layout,
            shared,
            size_bytes=self._size_bytes,
            max_bytes=aligned * self._size_bytes,
        )

    def elements(self, step: int) -> list[str]:
        """Return the elements of a step by register."""
        if self._matrices is None:
            loaded = load_registers(
                self._text,
                self._addresses,
                self._vectors,
                ScalarType(self._dtype),
                shift=self._shifts[step],
            )
            return [loaded[register] for register in sorted(loaded)]
        form = Words.of(self._dtype, WORD_BYTES // self._size_bytes)
        return [
            element
            for word in self.words(step)
            for element in words.unpack(self._text, form, (word,))
        ]

    def words(self, step: int) -> list[str]:
        """Return the elements of a step as i32 of neighbouring registers."""
        if self._matrices is None:
            return _packed(self._text, self._dtype, self.elements(step))
        loaded = load_matrices(
            self._text,
            self._addresses,
            self._matrices,
            size_bytes=self._size_bytes,
            shift=self._shifts[step],
        )
        return [loaded[registers] for registers in sorted(loaded)]


Operand = RegisterOperand | SharedOperand


def operand(emitter: KernelEmitter, value: Value, layout: LinearLayout, steps: Steps) -> Operand:
    """Return an operand of a dot that wants it in `layout`, cut into `steps`."""
    if isinstance(value.type, SharedType):
        return SharedOperand(emitter, value, steps)
    return register_operand(emitter, value, layout, steps)


def register_operand(
    emitter: KernelEmitter, value: Value, layout: LinearLayout, steps: Steps
) -> RegisterOperand:
    """Return an operand in registers; raises InternalCompilerError if its layout is another."""
    if layout_of(value.type) != layout:
        msg = f"operand {value.type} of a dot that takes {layout}: the schedule must convert it"
        raise InternalCompilerError(msg)
    return RegisterOperand(emitter, value, steps)


def _packed(text: FunctionText, dtype: DType, elements: Sequence[str]) -> list[str]:
    form = Words.of(dtype, WORD_BYTES // dtype.size_bytes)
    result: list[str] = []
    for first in range(0, len(elements), form.elements):
        result += words.pack(text, form, elements[first : first + form.elements])
    return result
