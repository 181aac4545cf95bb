"""Reductions along one axis, as a tree: the first half of the elements is combined with the second.

The halving repeats until one element is left, so element i meets i + n/2 first, then i + n/4 and so
on. The order does not depend on NumPy, and its rounding error grows with log n only.
"""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.reduction import COMBINE
from tilewright_compiler.ir.types import element_dtype, shape_of


def _reduce(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    axis: int = operation.attributes["axis"]
    dtype = element_dtype(operation.result.type)
    combine = COMBINE[operation.attributes["kind"]]
    extent = shape_of(operation.operands[0].type)[axis]
    (source,) = operands
    # Equal elements may be held once; the reduced axis comes first.
    source = np.moveaxis(source, axis + 1, 0)
    source = np.broadcast_to(source, (extent, *source.shape[1:]))
    while extent > 1:
        extent //= 2
        source = numerics.binary(combine, source[:extent], source[extent:], dtype)
    result: Array = source[0]
    return result


COMPUTE: dict[str, Compute] = {"reduce": _reduce}
