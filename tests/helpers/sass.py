"""Reading the disassembly of a cubin: what a loop consists of."""

from __future__ import annotations

import re
from collections import Counter

_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")


def loop_with(sass: str, opcode: str) -> Counter[str]:
    """Count the instructions of the innermost loop that executes `opcode` most often.

    Opcodes are without their modifiers: `HMMA`, `LDSM`.
    """
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    loops: list[tuple[int, int]] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(line):
            opcodes.append(instruction[1].partition(".")[0])
            target = _TARGET.search(instruction[2])
            if opcodes[-1] == "BRA" and target is not None and target[1] in labels:
                loops.append((labels[target[1]], len(opcodes)))
    bodies = [Counter(opcodes[start:end]) for start, end in loops]
    most = max(body[opcode] for body in bodies)
    return min((body for body in bodies if body[opcode] == most), key=Counter.total)
