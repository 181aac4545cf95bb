"""What a worker and its parent say to each other: frames of JSON, each led by its length.

A module of its own, because a worker imports nothing else of ours: a compilation waits for it.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

from tilewright.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One translation: MLIR text, LLVM's chip, features and level, and where libdevice is."""

    text: str
    chip: str
    features: str
    libdevice: str
    level: int = 3


def frame(message: dict[str, Any]) -> bytes:
    """Return a message as bytes: length, then JSON."""
    payload = json.dumps(message).encode()
    return struct.pack(">I", len(payload)) + payload


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one message; None when the stream ends."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack(">I", head)
    message: dict[str, Any] = json.loads(stream.read(length))
    return message
