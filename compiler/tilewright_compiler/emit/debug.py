"""Checks and prints, by the functions that CUDA's driver links: `__assertfail` and `vprintf`.

One thread checks; of the threads that hold an element, one prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.errors import SourceLocation
from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.emit.memory import owner_of
from tilewright_compiler.emit.types import dtype_text
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype
from tilewright_compiler.layout.linear import NUM_LANES

_GENERIC = "!llvm.ptr"
_FORMATS = {"float": "%f", "int": "%lld", "uint": "%llu"}
_UNKNOWN = SourceLocation("?", 0, 0, 0, "?")


def _emit_assert(emitter: KernelEmitter, operation: Operation) -> None:
    text, place = emitter.text, operation.location or _UNKNOWN
    broken = text.value(
        f"llvm.xor {emitter.scalar(operation.operands[0])}, {text.i1(value=True)} : i1"
    )
    first = emitter.threads.is_representative(free_lane=NUM_LANES - 1, free_warp=-1)
    if first is not None:
        broken = text.value(f"llvm.and {broken}, {first} : i1")
    # The file's name without its folder: a path must not decide what a kernel's text is.
    file = place.file.replace("\\", "/").rpartition("/")[2]
    words = [text.string(word) for word in (operation.attributes["message"], file, place.function)]
    arguments = (words[0], words[1], text.i32(place.line), words[2], text.i64(1))
    types = (_GENERIC, _GENERIC, "i32", _GENERIC, "i64")
    text.line(f"scf.if {broken} {{")
    with text.nested():
        text.call_nothing("__assertfail", arguments, types)
    text.line("}")


def _emit_print(emitter: KernelEmitter, operation: Operation) -> None:
    text = emitter.text
    value, *places = (emitter.fragment(operand) for operand in operation.operands)
    dtype = element_dtype(operation.result.type)
    count = len(places)
    indices = ", ".join(["%lld"] * (count - 3))
    where = "pid (%lld, %lld, %lld)" + (f" idx ({indices})" if indices else "")
    digits: int = operation.attributes["digits"]
    shown = f"0x%0{digits}llx" if digits else _FORMATS[dtype.kind]
    prefix = operation.attributes["prefix"].replace("%", "%%")
    words = text.string(f"{where} {prefix} {shown}\n")
    with text.at_top():
        # As C passes them: every argument here has 8 bytes.
        slots = text.value(
            f"llvm.alloca {text.i32(1)} x !llvm.array<{count + 1} x i64> {{alignment = 8 : i64}} : "
            f"(i32) -> {_GENERIC}"
        )
    owner = owner_of(emitter, operation.operands[0])
    if owner is not None:
        text.line(f"scf.if {owner} {{")
    types = ["i64"] * count + [dtype_text(dtype)]
    for row in dict.fromkeys(zip(*places, value, strict=True)):
        for slot, (name, type_) in enumerate(zip(row, types, strict=True)):
            place = text.value(
                f"llvm.getelementptr {slots}[{slot}] : ({_GENERIC}) -> {_GENERIC}, i64"
            )
            text.line(f"llvm.store {name}, {place} : {type_}, {_GENERIC}")
        text.call("vprintf", (words, slots), (_GENERIC, _GENERIC), "i32")
    if owner is not None:
        text.line("}")
    emitter.define(operation.result, value)


EMITTERS: Mapping[str, Emit] = MappingProxyType({"assert": _emit_assert, "print": _emit_print})
