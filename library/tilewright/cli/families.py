"""What each family of kernels would use on each GPU of this machine, counted, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import NoDriverError

if TYPE_CHECKING:
    from tilewright.abi.manifest import Entry
    from tilewright.runtime.device import DeviceFacts
    from tilewright.runtime.resolve import Decision

NOTHING = "nothing can run here"


def devices_here() -> tuple[DeviceFacts, ...]:
    """Return the facts of this machine's GPUs; none without a driver."""
    from tilewright.runtime import device

    try:
        return tuple(device.device(index).facts for index in range(device.count()))
    except NoDriverError:
        return ()


def families(devices: Sequence[DeviceFacts]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each family and device how many signatures each first candidate serves, and why.

    A family of which a GPU can run nothing has only NOTHING there.
    """
    from tilewright.runtime import sources, store

    entries: dict[str, dict[str, Entry]] = {}
    for _, key, entry in store.every_entry():
        entries.setdefault(entry.family, {}).setdefault(key, entry)
    report: dict[str, dict[str, dict[str, Any]]] = {}
    for family, members in sorted(entries.items()):
        for index, facts in enumerate(devices):
            decisions = [
                sources.decide_key(entry.kernel, entry.signature, key, facts=facts)
                for key, entry in members.items()
            ]
            name = f"device {index} ({facts.capability})"
            report.setdefault(family, {})[name] = _summary(decisions)
    return report


def _summary(decisions: Sequence[Decision]) -> dict[str, Any]:
    uses: dict[str, int] = {}
    reasons: dict[str, None] = {}
    for decision in decisions:
        first = str(decision.candidates[0]) if decision.candidates else NOTHING
        uses[first] = uses.get(first, 0) + 1
        reasons |= dict.fromkeys(_why(decision))
    return {"signatures": len(decisions), "uses": uses, "why": list(reasons)}


def _why(decision: Decision) -> list[str]:
    """Return why the first candidate is the first; without one, why each was refused."""
    if not decision.candidates:
        return [str(reason) for reason in decision.trace]
    first = str(decision.candidates[0])
    texts = [r.text for r in decision.trace if r.is_accepted and r.candidate == first]
    # The condition of a launch is long, and differs from kernel to kernel.
    return [f"{first}: {text.partition(', where ')[0]}" for text in texts[:1]]
