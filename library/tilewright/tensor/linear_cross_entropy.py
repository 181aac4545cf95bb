"""Cross entropy of what a linear layer gives, with the gradients of its factors, in bounded memory.

The logits of all rows are never there at once: some rows at a time they are multiplied out, turned
into their own gradient where they lie, and multiplied on. So many rows take as many bytes as the
layer's weight, or 16 MiB if that is more, and no more rows than that are held. Unless all rows are,
the gradient of a weight of 2-byte elements is summed in f32, which takes twice its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.abi.dtypes import DType, float32, float64
from tilewright.errors import ArgumentError
from tilewright.runtime.geometry import row_major
from tilewright.tensor.addition import convert
from tilewright.tensor.arrays import Array, as_array, check_is_float, dtype_of, new_array
from tilewright.tensor.axes import transposed, viewed
from tilewright.tensor.cross_entropy_launches import LossOptions, Rows, part_of
from tilewright.tensor.elementwise import add
from tilewright.tensor.geometry import check_one_dtype, geometry_of, operands
from tilewright.tensor.matmul import matmul
from tilewright.tensor.movement import contiguous

# The fewest bytes of logits that are held at once; the rows that tiles of a product divide.
_LEAST_BYTES = 1 << 24
_ROWS_STEP = 128
# Elements from row to row of logits: products read aligned rows faster.
_PITCH_STEP = 64


def linear_cross_entropy(
    x: object,
    linear_weight: object,
    target: object,
    *,
    weight: object | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
) -> Array:
    """Return the cross entropy of the logits `x @ linear_weight.T` for `target` `[...]`.

    `x` is `[..., K]` and `linear_weight` `[classes, K]`, of one dtype, in which logits are rounded.
    The rest is as in `cross_entropy`, and so is what this raises.
    """
    options = LossOptions.of(ignore_index, label_smoothing, z_loss, reduction, check=check)
    arrays, _ = operands(x=x, linear_weight=linear_weight, target=target, weight=weight)
    inputs, matrix, targets, weights = arrays
    layer = Layer.of(inputs, matrix)
    rows = Rows.placed_for(layer.x, layer.classes, targets, weights, options)
    losses = rows.new_losses()
    room = layer.room()
    for first, part in layer.parts():
        rows.run(layer.multiplied(part, room), losses, None, None, first=first)
    return rows.reduced(losses)


def linear_cross_entropy_backward(
    x: object,
    linear_weight: object,
    target: object,
    dloss: object | None = None,
    *,
    weight: object | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
) -> tuple[Array, Array, Array]:
    """Return the gradients of `x` and of the weight, and the loss, as `linear_cross_entropy` does.

    `dloss` is the gradient of the loss, as in `cross_entropy_backward`. Both gradients have the
    dtype of `x`; sums over rows are in f32, of f64 in f64, in a fixed order, and rounded once.
    """
    options = LossOptions.of(ignore_index, label_smoothing, z_loss, reduction, check=check)
    arrays, _ = operands(
        x=x, linear_weight=linear_weight, target=target, dloss=dloss, weight=weight
    )
    inputs, matrix, targets, upstream, weights = arrays
    layer = Layer.of(inputs, matrix)
    rows = Rows.placed_for(layer.x, layer.classes, targets, weights, options)
    rows.check_dloss(upstream)
    losses = rows.new_losses()
    dx = new_array(layer.rows.shape, dtype_of(layer.x), layer.x)
    dtype = dtype_of(layer.x)
    count = layer.rows.shape[0]
    # Sums over the rows of several parts are in the working type, and rounded at the end.
    working = dtype if dtype == float64 or count <= layer.rows_at_once else float32
    total = new_array(layer.weight.shape, working, layer.x, zeroed=not count)
    room = layer.room()
    for first, part in layer.parts():
        logits = layer.multiplied(part, room)
        rows.run(logits, losses, logits, upstream, first=first)
        matmul(logits, layer.weight, out=part_of(dx, first, part.shape[0]))
        _add_product(total, transposed(logits, (1, 0)), part, is_first=not first)
    shape = layer.x.shape
    return viewed(dx, shape, row_major(shape)), _rounded(total, dtype), rows.reduced(losses)


@dataclass(frozen=True, slots=True)
class Layer:
    """The factors of logits: rows `[rows, K]` of `x`, row-major, and the weight."""

    x: Array
    rows: Array
    weight: Array
    rows_at_once: int

    @staticmethod
    def of(x: object, weight: object) -> Layer:
        """Check the factors of a call; raises ArgumentError where they do not fit."""
        x, weight = as_array(x, name="x"), as_array(weight, name="linear_weight")
        check_is_float(x)
        check_one_dtype({"x": geometry_of(x), "linear_weight": geometry_of(weight)})
        if not x.shape or len(weight.shape) != 2 or weight.shape[1] != x.shape[-1]:
            msg = (
                f"x has shape {x.shape}, linear_weight {weight.shape}; they are [..., K] and "
                "[classes, K]"
            )
            raise ArgumentError(msg)
        count, size = prod(x.shape[:-1]), dtype_of(x).size_bytes
        classes, width = weight.shape
        least = -(-_LEAST_BYTES // max(classes * size, 1))
        at_once = -(-max(width, least) // _ROWS_STEP) * _ROWS_STEP
        rows = viewed(contiguous(x), (count, width), (width, 1))
        return Layer(x, rows, weight, at_once)

    @property
    def classes(self) -> int:
        """How many logits a row has."""
        return self.weight.shape[0]

    def parts(self) -> Iterator[tuple[int, Array]]:
        """Yield the rows whose logits are held at once, with the number of the first."""
        count = self.rows.shape[0]
        for first in range(0, count, self.rows_at_once):
            yield first, part_of(self.rows, first, min(self.rows_at_once, count - first))

    def room(self) -> Array:
        """Return memory for the logits of as many rows as are held at once.

        Each row begins at a multiple of 16 bytes, for products that read them.
        """
        pitch = -(-self.classes // _PITCH_STEP) * _PITCH_STEP
        count = min(self.rows_at_once, self.rows.shape[0])
        return new_array((count, pitch), dtype_of(self.x), self.x)

    def multiplied(self, part: Array, room: Array) -> Array:
        """Return the logits of some rows."""
        shape, pitch = (part.shape[0], self.classes), room.shape[1]
        return matmul(part, transposed(self.weight, (1, 0)), out=viewed(room, shape, (pitch, 1)))


def _add_product(total: Array, left: Array, right: Array, *, is_first: bool) -> None:
    """Write a product to `total`, or add it to what is there."""
    if is_first:
        matmul(left, right, out=total, out_dtype=dtype_of(total))
    elif dtype_of(total) == float64:  # whose products take no residual
        add(total, matmul(left, right), out=total)
    else:
        matmul(left, right, residual=total, out=total, out_dtype=dtype_of(total))


def _rounded(total: Array, dtype: DType) -> Array:
    if dtype_of(total) == dtype:
        return total
    result = new_array(total.shape, dtype, total)
    count = prod(total.shape)
    if count:
        convert(*(viewed(array, (count,), (1,)) for array in (total, result)))
    return result
