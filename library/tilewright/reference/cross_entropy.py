"""Cross entropy of logits with classes, its gradient, and both of a linear layer's output.

A target is an integer from 0 to the number of classes less 1, or `ignore_index`: such a row has
loss 0 and gradient 0 whatever its logits are, and does not count. Any other target is an
IndexRangeError, or without `check` makes loss and gradient of its row NaN.
"""

from __future__ import annotations

import numpy as np

from tilewright.errors import IndexRangeError
from tilewright.reference.precision import Array, widened


def cross_entropy(
    x: Array,
    target: Array,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
) -> Array:
    """Return the loss of logits `x` `[..., C]` for `target` `[...]`, in the working dtype of `x`.

    With `lse = log(sum(exp(x)))` and `w` the weights of the classes, 1 by default, a row's loss is
    `(1 - label_smoothing) * w[target] * (lse - x[target])` and
    `label_smoothing / C * sum(w * (lse - x))` (Szegedy et al. 2016) and `z_loss * lse ** 2`
    (Chowdhery et al. 2022); a term whose factor is 0 is left out. `reduction` is "none", "sum", or
    "mean": the sum over the sum of `w[target]`, NaN where that is 0.
    """
    losses, _, weights = _rows(
        x, target, weight, ignore_index, label_smoothing, z_loss, check=check
    )
    if reduction == "none":
        return losses
    total = losses.sum()
    with np.errstate(all="ignore"):
        return np.asarray(total / weights.sum() if reduction == "mean" else total)


def cross_entropy_backward(
    x: Array,
    target: Array,
    dloss: Array | None = None,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
) -> tuple[Array, Array]:
    """Return the gradient of `x` for that of the loss, `dloss`, by default 1, and the loss."""
    losses, gradient, weights = _rows(
        x, target, weight, ignore_index, label_smoothing, z_loss, check=check
    )
    given = np.asarray(1.0 if dloss is None else dloss).astype(losses.dtype)
    loss = losses
    with np.errstate(all="ignore"):
        if reduction != "none":
            loss = np.asarray(losses.sum())
        if reduction == "mean":
            loss, given = np.asarray(loss / weights.sum()), given / weights.sum()
        is_kept = (target != ignore_index)[..., None]
        dx = np.where(is_kept, gradient * np.broadcast_to(given, losses.shape)[..., None], 0)
    return dx.astype(x.dtype), loss


def linear_cross_entropy_backward(
    x: Array,
    linear_weight: Array,
    target: Array,
    dloss: Array | None = None,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    check: bool = True,
) -> tuple[Array, Array, Array]:
    """Return the gradients of both factors of the logits `x @ linear_weight.T`, and the loss.

    `x` is `[..., K]`, `linear_weight` `[C, K]`.
    """
    wide = widened(x, operation="linear_cross_entropy_backward")
    factor = linear_weight.astype(wide.dtype)
    dlogits, loss = cross_entropy_backward(
        wide @ factor.T, target, dloss,
        weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing, z_loss=z_loss,
        reduction=reduction, check=check,
    )  # fmt: skip
    rows = dlogits.reshape(-1, dlogits.shape[-1])
    dweight = rows.T @ wide.reshape(-1, wide.shape[-1])
    return (dlogits @ factor).astype(x.dtype), dweight.astype(linear_weight.dtype), loss


@np.errstate(all="ignore")
def _rows(
    x: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    *,
    check: bool,
) -> tuple[Array, Array, Array]:
    """Return loss and gradient of each row, and what it weighs in a mean."""
    wide = widened(x, operation="cross_entropy")
    classes = x.shape[-1]
    is_kept = target != ignore_index
    is_class = (target >= 0) & (target < classes)
    if check and (is_kept & ~is_class).any():
        found = target[is_kept & ~is_class][0]
        msg = f"target {found} names none of {classes} classes"
        raise IndexRangeError(msg)
    column = np.where(is_class, target, 0).astype(np.int64)[..., None]
    weights = np.ones(classes, wide.dtype) if weight is None else weight.astype(wide.dtype)
    highest = wide.max(axis=-1, keepdims=True)
    exponentials = np.exp(wide - highest)
    total = exponentials.sum(axis=-1, keepdims=True)
    log_total = np.log(total)
    confidence = (1 - label_smoothing) * weights[column]
    # In this order the difference of a large maximum and a large logit is exact.
    loss = confidence * ((highest - np.take_along_axis(wide, column, -1)) + log_total)
    factor = confidence
    share = np.zeros(classes, wide.dtype)
    if label_smoothing != 0:
        share = label_smoothing / classes * weights
        loss = loss + (share * ((highest - wide) + log_total)).sum(axis=-1, keepdims=True)
        factor = factor + share.sum()
    if z_loss != 0:
        lse = highest + log_total
        loss = loss + z_loss * lse**2
        factor = factor + 2 * z_loss * lse
    gradient = exponentials / total * factor - share
    gradient -= np.where(np.arange(classes) == column, confidence, 0)
    nan = np.asarray(np.nan, wide.dtype)
    losses = np.where(is_kept, np.where(is_class, loss[..., 0], nan), 0)
    gradient = np.where(is_class[..., None], gradient, nan)
    counted = np.where(is_class, weights[column[..., 0]], 1)
    return losses.astype(wide.dtype), gradient, np.where(is_kept, counted, 0).astype(wide.dtype)
