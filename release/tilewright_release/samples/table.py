"""All samples, by family."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilewright_release.samples import (
    attention_features,
    axes,
    gradients,
    index,
    losses,
    matmul,
    others,
    rows,
)
from tilewright_release.samples.sample import Sample


@cache
def all_samples(root: Path) -> tuple[Sample, ...]:
    """Return every sample; `root` is the checkout whose examples/ are meant."""
    return (
        *matmul.samples(),
        *others.samples(root),
        *attention_features.samples(),
        *rows.samples(),
        *axes.samples(),
        *index.samples(),
        *gradients.samples(),
        *losses.samples(),
    )
