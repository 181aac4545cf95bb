"""Products by warpgroups: `wgmma`, asynchronous, whose accumulators never leave their registers.

A dot is one piece of inline PTX from its fence to its commit, and each accumulator is tied to the
register that it comes in. So LLVM can put nothing between the fence and the instructions, and
ptxas sees no move that it would have to wait for. Waiting ties them once more, which keeps whatever
reads a result behind the wait.

Operands in shared memory are named by descriptors: an address that is equal in all lanes, and
constants of the layout (`layout.wgmma_operand`). Steps along k are immediates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int8,
    uint8,
)
from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.emit.kernel import KernelEmitter
from tilewright_compiler.emit.mma import to_tf32
from tilewright_compiler.emit.operands import RegisterOperand, Steps, register_operand
from tilewright_compiler.emit.text import AssemblyOperand
from tilewright_compiler.emit.types import SHARED_POINTER, register_type
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import SharedType, element_dtype, shape_of
from tilewright_compiler.layout.atoms import GROUP_WARPS, Atom, DotLayouts
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout, log2, unflatten
from tilewright_compiler.layout.wgmma_operand import WgmmaOperand, plan_wgmma_operand

_NAMES = {
    float16: "f16",
    bfloat16: "bf16",
    float32: "tf32",
    float8e4nv: "e4m3",
    float8e5: "e5m2",
    int8: "s8",
    uint8: "u8",
}
# A lane's part of A in one instruction.
_A_REGISTERS = 4
# Descriptors count addresses in units of 16 bytes.
_UNIT_BITS = 4

_DECLARE = ".reg .pred adds, starts; .reg .b32 low; .reg .b64 a, b;"
_PREDICATES = "setp.ne.b32 adds, 1, 0; setp.ne.b32 starts, 0, 0;"


def emit_wgmma(
    emitter: KernelEmitter, operation: Operation, atom: Atom, layouts: DotLayouts
) -> None:
    """Start the products of a dot; the result is in the registers of its accumulator."""
    a, b, acc = operation.operands
    fragment, type_ = emitter.fragment(acc), register_type(acc.type)
    zero = emitter.text.constant(0, element_dtype(acc.type))
    # A product that starts from zero need not read it, nor anyone write it.
    starts_at_zero = all(name == zero for name in fragment)
    tied = () if starts_at_zero else fragment
    operands = _Operands(first=len(fragment) + len(tied))
    left = _left(emitter, a, atom, layouts.a, operands)
    right = _shared_side(emitter, b, layouts.b, operands, register="b", k_axis=0)
    per_tile = atom.m * atom.n // (NUM_LANES * GROUP_WARPS)
    columns = shape_of(b.type)[1] // operation.attributes["warps"][1] // atom.n
    form = _form(atom, (element_dtype(a.type), element_dtype(b.type)), type_)
    lines = [_DECLARE, _PREDICATES, "wgmma.fence.sync.aligned;"]
    for tile in range(len(fragment) // per_tile):
        row, column = divmod(tile, columns)
        accumulators = ", ".join(f"${tile * per_tile + index}" for index in range(per_tile))
        for step in range(shape_of(a.type)[1] // atom.k):
            k = step * atom.k
            predicate = "starts" if starts_at_zero and step == 0 else "adds"
            lines += left.prepare(row * atom.m, k)
            lines += right.prepare(column * atom.n, k)
            flags = [] if type_ == "i32" else ["1", "1"]
            if atom.operand_bits == 16:
                flags += [*left.transposed, *right.transposed]
            arguments = [left.name(row * atom.m, k), right.name(column * atom.n, k), predicate]
            lines.append(f"{form} {{{accumulators}}}, {', '.join([*arguments, *flags])};")
    lines.append("wgmma.commit_group.sync.aligned;")
    results = emitter.text.assembly(
        f"{{ {' '.join(lines)} }}", operands.taken, results=[type_] * len(fragment), tied=tied
    )
    emitter.define(operation.result, results)


def emit_dot_wait(emitter: KernelEmitter, operation: Operation) -> None:
    """Wait until at most so many dots are under way; the results are the operands again."""
    registers = [
        (name, register_type(value.type))
        for value in operation.operands
        for name in emitter.fragment(value)
    ]
    names = emitter.text.assembly(
        f"wgmma.wait_group.sync.aligned {operation.attributes['pending']};",
        results=[type_ for _, type_ in registers],
        tied=[name for name, _ in registers],
    )
    position = 0
    for operand, result in zip(operation.operands, operation.results, strict=True):
        count = len(emitter.fragment(operand))
        emitter.define(result, names[position : position + count])
        position += count


def _form(atom: Atom, dtypes: tuple[DType, DType], accumulator: str) -> str:
    a, b = (_NAMES[dtype] for dtype in dtypes)
    acc = "s32" if accumulator == "i32" else accumulator
    return f"wgmma.mma_async.sync.aligned.m{atom.m}n{atom.n}k{atom.k}.{acc}.{a}.{b}"


@dataclass(slots=True)
class _Operands:
    """The operands of the inline PTX, numbered from `first`."""

    first: int
    taken: list[AssemblyOperand] = field(default_factory=list)

    def take(self, name: str) -> str:
        """Take an i32; return what the PTX calls it."""
        self.taken.append((name, "i32", "r"))
        return f"${self.first + len(self.taken) - 1}"


@dataclass(frozen=True, slots=True)
class _SharedSide:
    """An operand in shared memory: its descriptors take turns in a register of the PTX.

    `address` is that of the tile in units of 16 bytes, an operand of the PTX.
    """

    plan: WgmmaOperand
    register: str
    address: str

    @property
    def transposed(self) -> tuple[str, ...]:
        """Return what the instruction takes for an operand that is not contiguous along k."""
        return ("0" if self.plan.is_k_major else "1",)

    def prepare(self, mn: int, k: int) -> list[str]:
        """Return what puts the descriptor of the part at `mn` and `k` into the register."""
        high, low = divmod(self.plan.descriptor, 1 << 32)
        low += self.plan.offset(mn=mn, k=k) >> _UNIT_BITS
        return [
            f"add.s32 low, {self.address}, {low};",
            f"mov.b64 {self.register}, {{low, {high}}};",
        ]

    def name(self, mn: int, k: int) -> str:
        """Return what the instruction takes."""
        del mn, k  # `prepare` has put it there
        return self.register


@dataclass(frozen=True, slots=True)
class _RegisterSide:
    """A in registers: `parts` has those of each instruction by row and k."""

    parts: dict[tuple[int, int], str]
    transposed: tuple[str, ...] = ()

    def prepare(self, mn: int, k: int) -> list[str]:
        """Return nothing: the registers are there."""
        del mn, k
        return []

    def name(self, mn: int, k: int) -> str:
        """Return what the instruction takes."""
        return self.parts[mn, k]


def _left(
    emitter: KernelEmitter, a: Value, atom: Atom, layout: LinearLayout, operands: _Operands
) -> _SharedSide | _RegisterSide:
    if isinstance(a.type, SharedType):
        return _shared_side(emitter, a, layout, operands, register="a", k_axis=1)
    steps = Steps.of(layout, k_axis=1, extent=atom.k)
    source = register_operand(emitter, a, layout, steps)
    parts = {}
    for step in range(steps.count):
        names = _words(emitter, source, step, element_dtype(a.type))
        for row in range(len(names) // _A_REGISTERS):
            taken = names[row * _A_REGISTERS : (row + 1) * _A_REGISTERS]
            part = ", ".join(operands.take(name) for name in taken)
            parts[row * atom.m, step * atom.k] = f"{{{part}}}"
    return _RegisterSide(parts)


def _words(
    emitter: KernelEmitter, source: RegisterOperand, step: int, dtype: DType
) -> Sequence[str]:
    if dtype == float32:
        return [to_tf32(emitter.text, name) for name in source.elements(step)]
    return source.words(step)


def _shared_side(
    emitter: KernelEmitter,
    value: Value,
    layout: LinearLayout,
    operands: _Operands,
    *,
    register: str,
    k_axis: int,
) -> _SharedSide:
    tile = value.type
    assert isinstance(tile, SharedType), f"{tile} is not in shared memory"
    plan = plan_wgmma_operand(tile.layout, k_axis=k_axis, size_bytes=tile.dtype.size_bytes)
    if plan is None:
        msg = f"wgmma does not read {tile} reduced along axis {k_axis}: the schedule must place it"
        raise InternalCompilerError(msg)
    text = emitter.text
    address = text.value(f"llvm.ptrtoint {emitter.scalar(value)} : {SHARED_POINTER} to i32")
    # The rows of a warpgroup's own four warps are the instruction's matter.
    starts = [
        0
        if bit < log2(GROUP_WARPS)
        else plan.offset(mn=unflatten(basis, layout.shape)[1 - k_axis], k=0)
        for bit, basis in enumerate(layout.warp)
    ]
    start = emitter.threads.warp_uniform(warp=starts)
    if start is not None:
        address = text.value(f"llvm.add {address}, {start} overflow<nsw, nuw> : i32")
    unit = text.value(f"llvm.lshr {address}, {text.i32(_UNIT_BITS)} : i32")
    return _SharedSide(plan, register, operands.take(unit))
