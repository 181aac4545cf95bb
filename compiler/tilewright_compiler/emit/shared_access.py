"""Accesses of shared memory as `layout` plans them: addresses, vectors in, vectors out.

An address is the tile's place, a part of the thread and a constant. The thread's part is linear and
the same all along the kernel; a constant is an immediate of the instruction wherever it shares no
bits with that part. There are few xors of the two where it does, and LLVM takes them out of loops:
a loop over a ring is left with one addition for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.emit.indices import ThreadIndices, add_or_xor
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import POINTER, SHARED_POINTER, dtype_text, memory_dtype
from tilewright_compiler.emit.vectors import extract, extract_elements, insert_elements
from tilewright_compiler.ir.types import ElementType, PointerType
from tilewright_compiler.layout.matrix_load import MatrixLoad
from tilewright_compiler.layout.shared import SharedAccess

SYMBOL = "tilewright_shared"

_MATRIX_FORM = (
    "shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>"
)


@dataclass(frozen=True, slots=True)
class ThreadAddresses:
    """The addresses at which a thread reaches a tile that starts at `base`, offsets in bytes."""

    text: FunctionText
    threads: ThreadIndices
    base: str
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    _made: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(
        text: FunctionText,
        threads: ThreadIndices,
        base: str,
        plan: SharedAccess | MatrixLoad,
        size_bytes: int,
    ) -> ThreadAddresses:
        """Return the addresses of a plan for elements of `size_bytes`."""
        lane, warp = (
            tuple(column * size_bytes for column in columns) for columns in (plan.lane, plan.warp)
        )
        return ThreadAddresses(text, threads, base, lane, warp)

    def at(self, offset: int) -> str:
        """Return the address `offset ^ thread`, where `thread` is the thread's part."""
        moving = 0
        for column in (*self.lane, *self.warp):
            moving |= column
        crossing = offset & moving
        if crossing not in self._made:
            self._made[crossing] = self._based(crossing)
        return advanced(self.text, self._made[crossing], offset & ~moving)

    def _based(self, crossing: int) -> str:
        thread = self.threads.linear(lane=self.lane, warp=self.warp)
        if thread is None:
            return self.base
        if crossing:
            thread = add_or_xor(self.text, thread, self.text.i32(crossing), disjoint=False)
        return moved(self.text, self.base, thread)


def symbol_address(text: FunctionText, offset: int) -> str:
    """Return the address of byte `offset` of the program's shared memory."""
    base = text.value(f"llvm.mlir.addressof @{SYMBOL} : {SHARED_POINTER}")
    return advanced(text, base, offset)


def moved(text: FunctionText, base: str, distance: str) -> str:
    """Return an address in shared memory an i32 of bytes further on."""
    return text.value(
        f"llvm.getelementptr {base}[{distance}] : ({SHARED_POINTER}, i32) -> {SHARED_POINTER}, i8"
    )


def advanced(text: FunctionText, base: str, distance: int) -> str:
    """Return an address in shared memory a constant number of bytes further on."""
    if distance == 0:
        return base
    return text.value(
        f"llvm.getelementptr {base}[{distance}] : ({SHARED_POINTER}) -> {SHARED_POINTER}, i8"
    )


def store_fragment(
    text: FunctionText,
    addresses: ThreadAddresses,
    plan: SharedAccess,
    fragment: Sequence[str],
    element: ElementType,
) -> None:
    """Write the registers of a fragment that the plan names."""
    size_bytes, type_ = _memory_form(element)
    for group in plan.groups:
        names = [_to_memory(text, fragment[register], element) for register in group.registers]
        vector, vector_type = insert_elements(text, names, type_)
        text.line(
            f"llvm.store {vector}, {addresses.at(group.offset * size_bytes)} "
            f"{{alignment = {plan.vector * size_bytes} : i64}} : {vector_type}, {SHARED_POINTER}"
        )


def load_registers(
    text: FunctionText,
    addresses: ThreadAddresses,
    plan: SharedAccess,
    element: ElementType,
    *,
    shift: int = 0,
) -> dict[int, str]:
    """Read what the plan names; return the element of each register.

    With `shift`, the elements whose offsets differ from those by an xor with it.
    """
    size_bytes, type_ = _memory_form(element)
    count = plan.vector
    vector_type = type_ if count == 1 else f"vector<{count}x{type_}>"
    loaded: dict[int, str] = {}
    for group in plan.groups:
        vector = text.value(
            f"llvm.load {addresses.at((group.offset ^ shift) * size_bytes)} "
            f"{{alignment = {count * size_bytes} : i64}} : {SHARED_POINTER} -> {vector_type}"
        )
        elements = extract_elements(text, vector, type_, count)
        names = [_from_memory(text, name, element) for name in elements]
        loaded.update(zip(group.registers, names, strict=True))
    return loaded


def load_element(text: FunctionText, address: str, element: ElementType) -> str:
    """Read the element at an address."""
    size_bytes, type_ = _memory_form(element)
    loaded = text.value(
        f"llvm.load {address} {{alignment = {size_bytes} : i64}} : {SHARED_POINTER} -> {type_}"
    )
    return _from_memory(text, loaded, element)


def load_matrices(
    text: FunctionText,
    addresses: ThreadAddresses,
    plan: MatrixLoad,
    *,
    size_bytes: int,
    shift: int = 0,
) -> dict[tuple[int, ...], str]:
    """Read what the plan names with `ldmatrix`; return the i32 that holds each word's registers.

    With `shift`, the elements whose offsets differ from those by an xor with it.
    """
    count = plan.matrices
    layout = "col" if plan.is_transposed else "row"
    type_ = "i32" if count == 1 else f"!llvm.struct<({', '.join(['i32'] * count)})>"
    words: dict[tuple[int, ...], str] = {}
    for group in plan.groups:
        loaded = text.value(
            f"nvvm.ldmatrix {addresses.at((group.offset ^ shift) * size_bytes)} "
            f"{{num = {count} : i32, layout = #nvvm.mma_layout<{layout}>, {_MATRIX_FORM}}} : "
            f"({SHARED_POINTER}) -> {type_}"
        )
        for index, registers in enumerate(group.words):
            words[registers] = loaded if count == 1 else extract(text, loaded, index, type_)
    return words


def store_matrices(
    text: FunctionText,
    addresses: ThreadAddresses,
    plan: MatrixLoad,
    words: Mapping[tuple[int, ...], str],
    *,
    size_bytes: int,
) -> None:
    """Write with `stmatrix` the i32 of each word's registers to where `ldmatrix` would find it."""
    count = plan.matrices
    layout = "col" if plan.is_transposed else "row"
    for group in plan.groups:
        names = ", ".join(words[registers] for registers in group.words)
        text.line(
            f"nvvm.stmatrix {addresses.at(group.offset * size_bytes)}, {names} "
            f"{{layout = #nvvm.mma_layout<{layout}>, {_MATRIX_FORM}}} : "
            f"{SHARED_POINTER}{', i32' * count}"
        )


def _memory_form(element: ElementType) -> tuple[int, str]:
    """Return the bytes and the MLIR type of an element in memory."""
    if isinstance(element, PointerType):
        return 8, "i64"
    return element.dtype.size_bytes, dtype_text(memory_dtype(element.dtype))


def _to_memory(text: FunctionText, name: str, element: ElementType) -> str:
    if isinstance(element, PointerType):
        return text.value(f"llvm.ptrtoint {name} : {POINTER} to i64")
    return text.value(f"llvm.zext {name} : i1 to i8") if element.dtype.bits == 1 else name


def _from_memory(text: FunctionText, name: str, element: ElementType) -> str:
    if isinstance(element, PointerType):
        return text.value(f"llvm.inttoptr {name} : i64 to {POINTER}")
    return text.value(f"llvm.trunc {name} : i8 to i1") if element.dtype.bits == 1 else name
