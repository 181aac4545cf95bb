"""Where the rows of a row kernel lie: shared by softmax, norm and reduce.

Rows form an index space `[size0, size1]`, to which the caller has collapsed the leading axes of its array.
"""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def row_offsets(rows, size0, size1, stride0, stride1):
    """Return the element offset of the start of each row; `rows` counts over `[size0, size1]`."""
    offsets = rows * stride1
    if size0 > 1:  # 64-bit division is slow, and most arrays collapse to one leading axis
        offsets = rows // size1 * stride0 + rows % size1 * stride1
    return offsets
