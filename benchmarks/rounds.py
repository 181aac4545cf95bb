"""What was measured over interleaved rounds becomes the figures of a result row."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from benchmarks.record import Row

ROUNDS = 7
HOST_ROUNDS = 5 * ROUNDS


@dataclass(frozen=True, slots=True)
class Timing:
    """Per-round figures of each contender, in rounds that interleave them; lower is better."""

    rounds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median over rounds."""
        return median(self.rounds[name])

    def spread(self, name: str) -> tuple[float, float]:
        """Return the lowest and highest round."""
        return min(self.rounds[name]), max(self.rounds[name])

    def ratio(self, name: str) -> float:
        """Return the median of per-round ratios `name / ours`: above 1 where ours is faster."""
        pairs = zip(self.rounds[name], self.rounds["ours"], strict=True)
        return median(theirs / ours for theirs, ours in pairs)

    def row(
        self,
        case: str,
        *,
        unit: str,
        checked: bool,
        err: dict[str, float] | None = None,
        peak_bytes: dict[str, int] | None = None,
    ) -> Row:
        """Return the result row of a case whose contenders are `ours` and the baselines."""
        baselines = [name for name in self.rounds if name != "ours"]
        return Row(
            case=case,
            unit=unit,
            better="lower",
            ours=self.median("ours"),
            spread=self.spread("ours"),
            checked=checked,
            baselines={name: self.median(name) for name in baselines},
            ratios={name: self.ratio(name) for name in baselines},
            err=err or {},
            peak_bytes=peak_bytes or {},
        )
