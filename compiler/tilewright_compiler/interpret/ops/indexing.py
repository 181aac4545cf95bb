"""Elements found by their values: looked up by index, and counted."""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import shape_of


def _gather(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    source, index = operands
    axis: int = operation.attributes["axis"]
    programs = max(source.shape[0], index.shape[0])
    source = np.broadcast_to(source, (programs, *shape_of(operation.operands[0].type)))
    index = np.broadcast_to(index, (programs, *shape_of(operation.operands[1].type)))
    # The extent is a power of two, so that the low bits are the remainder, of negative ones too.
    places = index.astype(np.int64) & (source.shape[axis + 1] - 1)
    return np.take_along_axis(source, places, axis + 1)


def _histogram(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    source, *masks = operands
    (bins,) = shape_of(operation.result.type)
    programs = max(array.shape[0] for array in operands)
    full = (programs, *shape_of(operation.operands[0].type))
    source = np.broadcast_to(source, full).reshape(programs, -1)
    is_counted = (source >= 0) & (source < bins)
    for mask in masks:
        is_counted &= np.broadcast_to(mask, full).reshape(programs, -1)
    places = source.astype(np.int64) + np.arange(programs)[:, None] * bins
    counts = np.bincount(places[is_counted], minlength=programs * bins)
    result: Array = counts.reshape(programs, bins).astype(np.int32)
    return result


COMPUTE: dict[str, Compute] = {"gather": _gather, "histogram": _histogram}
