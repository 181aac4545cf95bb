"""How `wgmma` finds an operand in shared memory: the constants of its descriptor, and the steps.

The operand of one instruction is a grid of core matrices, 8 rows of 16 bytes; a descriptor gives
the distances between them along both axes and the swizzle (PTX ISA, "Matrix descriptor").
"""

from __future__ import annotations

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout.panels import Panels, panels_of
from tilewright_compiler.layout.swizzle import SharedLayout

_SWIZZLE_MODE = {128: 1, 64: 2, 32: 3}
_CORE_ROWS = 8


@dataclass(frozen=True, slots=True)
class WgmmaOperand:
    """The descriptor of an operand, but for its address, and where its parts lie. Bytes.

    `is_k_major` says that the reduced axis is the contiguous one. The part that starts at `k` (a
    multiple of the instruction's) and at `mn` (of 64 rows of A, of any step of B) is at
    `offset(mn=, k=)` from the start of the tile.
    """

    is_k_major: bool
    leading_bytes: int
    stride_bytes: int
    swizzle_mode: int
    size_bytes: int
    panels: Panels

    @property
    def descriptor(self) -> int:
        """The constant bits of the descriptor; the address, divided by 16, is its lowest 14."""
        return (
            self.leading_bytes >> 4 << 16 | self.stride_bytes >> 4 << 32 | self.swizzle_mode << 62
        )

    def offset(self, *, mn: int, k: int) -> int:
        """Return the bytes from the start of the tile to the part at `mn` and `k`."""
        along, across = (k, mn) if self.is_k_major else (mn, k)
        panel, within = divmod(along * self.size_bytes, self.panels.line_bytes)
        return panel * self.panels.panel_bytes + across * self.panels.line_bytes + within


def plan_wgmma_operand(
    layout: SharedLayout, *, k_axis: int, size_bytes: int
) -> WgmmaOperand | None:
    """Return how `wgmma` reads a tile whose reduced axis is `k_axis`; None if it cannot.

    Only 16-bit elements may be contiguous along the other axis.
    """
    panels = panels_of(layout, size_bytes=size_bytes)
    if panels is None or len(layout.shape) != 2:
        return None
    is_k_major = panels.axis == k_axis
    if not is_k_major and size_bytes != 2:
        return None
    return WgmmaOperand(
        is_k_major=is_k_major,
        # Not used along k, where an instruction reads no more than a line: 1 by convention.
        leading_bytes=16 if is_k_major else panels.panel_bytes,
        stride_bytes=_CORE_ROWS * panels.line_bytes,
        swizzle_mode=_SWIZZLE_MODE[panels.line_bytes],
        size_bytes=size_bytes,
        panels=panels,
    )
