"""How results of attention are judged: the error of all elements first, that of the worst one next.

A result of millions of elements in bf16 has one that is a rounding step further off than another's,
or one less: the largest error of two good kernels differs by a factor of up to 2, and says which
was lucky. The relative Frobenius norm of all errors does not depend on luck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

ALLOWED = 1.1  # times the norm of the judged baseline's errors
ALLOWED_LARGEST = 2.0  # times its largest error: one step of rounding
_JUDGED = "cudnn"

Tensors = Sequence[torch.Tensor]


def judged_errors(
    found: Mapping[str, Tensors],
    exact: Tensors,
    *,
    rounding: float,
    sample: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[dict[str, float], bool]:
    """Return each contender's error, the worst of its results, and whether that of "ours" will do.

    `sample` takes from a result what `exact` holds of it, in fp64; `rounding` is half a unit in the
    last place. The baseline is cuDNN, or the best one where that does not run. All elements are
    compared with those of a baseline besides, which catches one that was never written.
    """
    errors = {
        name: max(_norm(sample(x), e) for x, e in zip(results, exact, strict=True))
        for name, results in found.items()
    }
    theirs = {name: error for name, error in errors.items() if name != "ours"}
    judge = _JUDGED if _JUDGED in theirs else min(theirs, key=lambda name: theirs[name])
    largest = {
        name: max(_largest(sample(x), e) for x, e in zip(found[name], exact, strict=True))
        for name in ("ours", judge)
    }
    most = ALLOWED_LARGEST * max(largest[judge], rounding)
    pairs = zip(found["ours"], found[judge], strict=True)
    apart = max(_largest(x, other.double()) for x, other in pairs)
    is_right = errors["ours"] <= max(ALLOWED * errors[judge], rounding)
    return errors, is_right and largest["ours"] <= most and apart <= 2 * most


def _norm(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the Frobenius norm of the errors, relative to that of the exact values."""
    return float(((found.double() - exact).norm() / exact.norm()).cpu())


def _largest(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest error, relative to the largest exact value."""
    return float(((found.double() - exact).abs().max() / exact.abs().max()).cpu())
