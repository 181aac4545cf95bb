"""Linear layouts over GF(2): which element of a tile each (register, lane, warp) holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """placeholder; owned by the layout helper"""

    shape: tuple[int, ...]
