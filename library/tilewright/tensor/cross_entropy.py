"""Cross entropy along the last axis, and its gradient in one pass over the logits."""

from __future__ import annotations

from tilewright.tensor.arrays import Array, dtype_of, new_array
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.cross_entropy_launches import LossOptions, Rows, is_direct
from tilewright.tensor.geometry import geometry_of, operands, result_geometry, result_of
from tilewright.tensor.movement import copy, copy_elements


def cross_entropy(
    x: object,
    target: object,
    *,
    weight: object | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
) -> Array:
    """Return the loss of logits `x` `[..., classes]` for `target` `[...]`, i32 or i64.

    It is f32, of f64 logits f64: of shape `[...]` for `reduction` "none", else of no axes.
    `weight` `[classes]` has its dtype. Rows whose target is `ignore_index` have loss 0 and do not
    count. See `reference.cross_entropy` for `label_smoothing`, `z_loss` and "mean".

    Raises IndexRangeError for another target that names no class, for which the call waits for the
    device. With `check=False` it does not wait, and the loss of such a row is NaN.
    """
    options = LossOptions.of(ignore_index, label_smoothing, z_loss, reduction, check=check)
    arrays, _ = operands(x=x, target=target, weight=weight)
    logits, targets, weights = arrays
    rows = Rows.placed(logits, targets, weights, options)
    losses = rows.new_losses()
    rows.run(rows.x if is_direct(rows.x) else copy(rows.x), losses, None, None)
    return rows.reduced(losses)


def cross_entropy_backward(
    x: object,
    target: object,
    dloss: object | None = None,
    *,
    weight: object | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
    out: object | None = None,
) -> tuple[Array, Array]:
    """Return the gradient `dx` of the logits, and the loss, as `cross_entropy` does.

    Both are made in one pass, see `kernels.cross_entropy`. `dloss` is the gradient of the loss, an
    array of its shape and dtype, by default 1. `out` takes `dx`; it may be `x`, which then makes
    room for its own gradient. Rows that do not count have gradient 0 whatever is in them. Raises as
    `cross_entropy` does, before anything is written; with `check=False` the gradient of a row whose
    target names no class is NaN.
    """
    options = LossOptions.of(ignore_index, label_smoothing, z_loss, reduction, check=check)
    arrays, _ = operands(x=x, target=target, dloss=dloss, weight=weight, out=out)
    logits, targets, given, weights, result = arrays
    rows = Rows.placed(logits, targets, weights, options)
    rows.check_dloss(given)
    dx = result_of(arrays, 4, result_geometry(
        None if result is None else geometry_of(result), rows.x.shape, dtype_of(rows.x),
        geometry_of(rows.x),
    ))  # fmt: skip
    losses = rows.new_losses()
    read = rows.x if is_direct(rows.x) else copy(rows.x)
    operands_of_rows = [rows.x, rows.target, given, weights, dx]
    if result is not None and (
        not is_direct(read, dx) or must_be_apart(operands_of_rows, 4, 0b1)
    ):  # fmt: skip
        apart = new_array(read.shape, dtype_of(read), read)
        rows.run(read, losses, apart, given)
        copy_elements(apart, dx)
    else:
        rows.run(read, losses, dx, given)
    return dx, rows.reduced(losses)
