"""The forms of `mma.sync`: what a lane gives of each operand, and the instruction itself.

f32 operands are rounded to tf32, which the instruction would otherwise truncate. With "tf32x3" each
is split into a high and a low tf32, and the three products that matter are added, small ones first.
The instructions are LLVM's intrinsics, not inline assembly, which LLVM might move into a branch
that not all lanes of a warp take.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64, int8, uint8
from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.vectors import extract
from tilewright_compiler.layout.atoms import MMA_8, MMA_16, MMA_F64, MMA_TF32, Atom
from tilewright_compiler.layout.linear import NUM_LANES

# An operand's register, or with tf32x3 its high and its low part.
Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Form:
    """The dtypes an atom multiplies with their PTX names, and the MLIR types of its registers."""

    dtypes: dict[DType, str]
    operand: str
    accumulator: str
    attributes: str = ""


_F16 = _Form({float16: ""}, "vector<2xf16>", "f32")
_FORMS: dict[Atom, tuple[_Form, ...]] = {
    MMA_16: (_F16, _Form({bfloat16: "bf16"}, "i32", "f32")),
    MMA_TF32: (_Form({float32: "tf32"}, "i32", "f32"),),
    MMA_8: (
        _Form(
            {int8: "s8", uint8: "u8"},
            "i32",
            "i32",
            ", intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>",
        ),
    ),
    MMA_F64: (_Form({float64: ""}, "f64", "f64"),),
}
_PRODUCTS = {
    "ieee": ((0, 0),),
    "tf32": ((0, 0),),
    "tf32x3": ((1, 0), (0, 1), (0, 0)),
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One form of `mma.sync`. `products` names the parts of the operands to multiply, in order."""

    atom: Atom
    types: tuple[DType, DType]
    products: tuple[tuple[int, int], ...]
    _form: _Form

    @staticmethod
    def of(atom: Atom, types: tuple[DType, DType], *, precision: str) -> Instruction:
        """Return the instruction of an atom for operands of these dtypes.

        Raises InternalCompilerError if there is none.
        """
        for form in _FORMS[atom]:
            fits = atom != MMA_TF32 or precision != "ieee"
            if fits and all(dtype in form.dtypes for dtype in types):
                return Instruction(atom, types, _PRODUCTS[precision], form)
        msg = f"{atom.name} does not multiply {types[0].name} and {types[1].name} as {precision}"
        raise InternalCompilerError(msg)

    @property
    def takes_words(self) -> bool:
        """Whether a register holds neighbouring elements, not one."""
        return self.atom in (MMA_16, MMA_8)

    @property
    def a_registers(self) -> int:
        """Registers of a lane's fragment of the first operand."""
        return self.atom.m * self.atom.k // NUM_LANES // self._per_register

    @property
    def b_registers(self) -> int:
        """Registers of a lane's fragment of the second operand."""
        return self.atom.k * self.atom.n // NUM_LANES // self._per_register

    @property
    def acc_registers(self) -> int:
        """Registers of a lane's fragment of the accumulator."""
        return self.atom.m * self.atom.n // NUM_LANES

    @property
    def _per_register(self) -> int:
        return 32 // self.atom.operand_bits if self.takes_words else 1

    def prepare(self, text: FunctionText, registers: Sequence[str]) -> list[Parts]:
        """Return what the instruction takes for words (i32) or elements of an operand."""
        return [self._parts(text, register) for register in registers]

    def _parts(self, text: FunctionText, register: str) -> Parts:
        if self._form is _F16:
            return (text.value(f"llvm.bitcast {register} : i32 to vector<2xf16>"),)
        if self.atom != MMA_TF32:
            return (register,)
        high = to_tf32(text, register)
        if len(self.products) == 1:
            return (high,)
        rounded = text.value(f"llvm.bitcast {high} : i32 to f32")
        rest = text.value(f"llvm.fsub {register}, {rounded} : f32")
        return high, to_tf32(text, rest)

    def emit(
        self, text: FunctionText, a: Sequence[str], b: Sequence[str], acc: Sequence[str]
    ) -> list[str]:
        """Return the fragment `acc + a @ b` of a warp."""
        form, atom = self._form, self.atom
        names = [form.dtypes[dtype] for dtype in self.types]
        ptx_types = "".join(
            f", multiplicand{side}PtxType = #nvvm.mma_type<{name}>"
            for side, name in zip("AB", names, strict=True)
            if name
        )
        result = f"!llvm.struct<({', '.join([form.accumulator] * len(acc))})>"
        value = text.value(
            f"nvvm.mma.sync A[{', '.join(a)}] B[{', '.join(b)}] C[{', '.join(acc)}] "
            "{layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, "
            f"shape = #nvvm.shape<m = {atom.m}, n = {atom.n}, k = {atom.k}>"
            f"{ptx_types}{form.attributes}}} : "
            f"({form.operand}, {form.operand}, {form.accumulator}) -> {result}"
        )
        return [extract(text, value, index, result) for index in range(len(acc))]


def to_tf32(text: FunctionText, name: str) -> str:
    """Return an f32 rounded to tf32, as the i32 that instructions take."""
    return text.intrinsic("llvm.nvvm.f2tf32.rna", (name,), ("f32",), "i32")
