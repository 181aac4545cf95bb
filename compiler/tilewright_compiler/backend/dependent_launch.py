"""PTX -> PTX that waits by itself for the kernels before it in its stream, where the hardware can.

A launch that may begin while the kernel before it ends (CUDA programming guide, "Programmatic
Dependent Launch") costs the host less, and the device no pause between the two. It is right only of
a kernel that lets nothing pass before `griddepcontrol.wait` (PTX ISA), which returns when the
kernels before have ended and what they wrote can be seen; launched in the usual way, it does
nothing. So it is the first instruction, of every thread.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.capabilities import OWN_TEXTS
from tilewright_compiler.ir.stages import Ptx

WAIT = "griddepcontrol.wait;"

_HEAD = re.compile(r"^\.version \S+\n\.target \S+", re.MULTILINE)
# The body of the entry with what it declares, up to its first instruction.
_BODY = re.compile(
    r"^\.visible \.entry [\w$]+\([^)]*\)\n(?:\.[^\n]*\n)*\{\n(?:\t\.[^\n]*\n)*", re.MULTILINE
)


def with_wait(ptx: Ptx, target: Target) -> Ptx:
    """Return the text to assemble for `target`: with the wait if that has an own text, else as is.

    Raises InternalCompilerError for a text without an entry.
    """
    flavor = OWN_TEXTS.get(target)
    if flavor is None:
        return ptx
    version = ".".join(map(str, flavor.version))
    text = _HEAD.sub(f".version {version}\n.target {flavor.target}", ptx.text, count=1)
    body = _BODY.search(text)
    if body is None:
        msg = f"the PTX of {ptx.entry} has no entry that a wait could begin"
        raise InternalCompilerError(msg)
    text = f"{text[: body.end()]}\t{WAIT}\n{text[body.end() :]}"
    return replace(ptx, text=text, target=flavor.target, version=flavor.version)
