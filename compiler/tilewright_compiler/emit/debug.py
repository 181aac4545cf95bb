"""Checks: one thread calls `__assertfail`, which CUDA's driver links, prints and traps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.errors import SourceLocation
from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.layout.linear import NUM_LANES

_GENERIC = "!llvm.ptr"
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


EMITTERS: Mapping[str, Emit] = MappingProxyType({"assert": _emit_assert})
