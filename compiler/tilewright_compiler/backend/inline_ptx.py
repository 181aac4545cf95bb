"""PTX of the kernel's author that ptxas refuses, told at the call that it came from.

LLVM puts comments around the text of each inline assembly, and ptxas names lines. A line within
such a text leads to the operation whose template it was made from. What leads to none is ours.
"""

from __future__ import annotations

import re

from tilewright.abi.target import Target
from tilewright.errors import AssemblyError, KernelValueError
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.ops.inline_asm import NAMES

_FAULT = re.compile(r"^ptxas \S+, line (\d+); (?:error|fatal)\s*: (.*)$", re.MULTILINE)
_INLINE = re.compile(r"// begin inline asm\n(.*?)// end inline asm", re.DOTALL)
# `$0`, `${0:t}`: an operand; `$$` is one dollar.
_OPERAND = re.compile(r"\$\$|\$\d+|\$\{[^}]*\}")


def blame_call(error: AssemblyError, module: Module, target: Target) -> KernelValueError | None:
    """Return what to tell the author of a kernel whose PTX ptxas refused; None if it is ours."""
    operations = [each for each in module.kernel.body.walk() if each.name in NAMES]
    for number, fault in _FAULT.findall(error.log):
        text = _inline_text(error.text, int(number))
        if text is None:
            continue
        for operation in operations:
            if _template(operation).fullmatch(_words(text)):
                where = () if operation.location is None else (operation.location,)
                msg = f"ptxas refuses the PTX of this call for {target}: {fault}"
                return KernelValueError(msg, where)
    return None


def _inline_text(ptx: str, number: int) -> str | None:
    """Return the inline assembly that a line, counted from 1, lies in."""
    for found in _INLINE.finditer(ptx):
        first = ptx.count("\n", 0, found.start(1)) + 1
        if first <= number < first + found[1].count("\n"):
            return found[1]
    return None


def _template(operation: Operation) -> re.Pattern[str]:
    """Return what matches the text of an operation, whatever registers its operands got."""
    words = _words(operation.attributes["asm"])
    parts = [re.escape(part) for part in _OPERAND.split(words)]
    operands = [r"\$" if each == "$$" else r"\S+?" for each in _OPERAND.findall(words)]
    joined = parts[0] + "".join(map("".join, zip(operands, parts[1:], strict=True)))
    return re.compile(joined)


def _words(text: str) -> str:
    return " ".join(text.split())
