"""What `explain` tells of the binaries of decisions: what they need, where they were validated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.abi.manifest import OWN_SCHEDULE, PTX
from tilewright.abi.signature_text import parse_signature
from tilewright.abi.target import ComputeCapability, Target
from tilewright.errors import TilewrightError
from tilewright.runtime import jit
from tilewright.runtime.device import format_version

if TYPE_CHECKING:
    from tilewright.abi.manifest import Blob
    from tilewright.language.kernel import Kernel
    from tilewright.runtime.resolve import Candidate, Decision

# The target with a schedule of its own, which other GPUs cannot have.
_HOPPER = Target(9, 0, "a")


def specializations(decisions: Sequence[Decision]) -> str:
    """Return ` (12 fast, 12 general)`: how many of the signatures assume aligned arrays."""
    counts: dict[str, int] = {}
    for decision in decisions:
        name = parse_signature(decision.signature).specialization
        counts[name] = counts.get(name, 0) + 1
    return f" ({', '.join(f'{count} {name}' for name, count in sorted(counts.items()))})"


def needs(decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield a line for each candidate that decisions of one form share."""
    for index, candidate in enumerate(decisions[0].candidates):
        same = [decision.candidates[index] for decision in decisions]
        blobs = [each.blob for each in same if each.blob is not None]
        if not blobs:
            continue
        drivers = _range((blob.min_driver for blob in blobs), format_version)
        shared = _range(map(_shared_bytes, same), str)
        limit = decisions[0].device.shared_bytes
        validated = sorted({name for blob in blobs for name in blob.validated})
        where = f"validated on {', '.join(validated)}" if validated else "validated on no GPU"
        yield (
            f"  {candidate}: driver for CUDA {drivers} or newer, {shared} of {limit} bytes of "
            f"shared memory, {where}"
        )


def schedule_notes(decisions: Sequence[Decision], kernel: Kernel | None) -> Iterator[str]:
    """Yield why signatures of a kernel that share their candidates have no binary in Hopper's own
    schedule, where one could be."""
    # Of the general form alone bundles have none in any case.
    decision = min(decisions, key=lambda each: parse_signature(each.signature).specialization)
    targets = [candidate.target for candidate in decision.candidates]
    if decision.device.capability != ComputeCapability(9, 0) or not targets:
        return
    if any(target.endswith(OWN_SCHEDULE) for target in targets) or str(_HOPPER) not in targets:
        return
    yield f"  the common schedule on {_HOPPER}: {why_common_schedule(decision, kernel)}"


def why_common_schedule(decision: Decision, kernel: Kernel | None) -> str:
    """Return why a kernel does not get Hopper's own schedule, by asking the compiler."""
    signature = parse_signature(decision.signature)
    if kernel is None:
        return "its source is not here, so the compiler cannot be asked why"
    try:
        reason = jit.why_common_schedule(kernel, signature, _HOPPER)
    except ModuleNotFoundError:
        return "the compiler is not installed, so it cannot be asked why"
    except TilewrightError as error:
        return f"the compiler cannot say why: {error}"
    if reason is None and signature.specialization == "general":
        return "bundles have another in the fast form alone"
    return reason or "the bundle was made before the compiler had another for it"


def to_json(decision: Decision, *, kernel: Kernel | None) -> dict[str, Any]:
    """Return a decision as plain data; the fields are those that the text tells."""
    signature = parse_signature(decision.signature)
    notes = [note.strip() for note in schedule_notes([decision], kernel)]
    return {
        "kernel": decision.kernel,
        "signature": decision.signature,
        "specialization": signature.specialization,
        "source_key": decision.source_key,
        "gpu": str(decision.device.capability),
        "driver": decision.device.driver_version,
        "shared_bytes": decision.device.shared_bytes,
        "candidates": [_candidate_to_json(candidate) for candidate in decision.candidates],
        "trace": [
            {"candidate": r.candidate, "accepted": r.is_accepted, "reason": r.text}
            for r in decision.trace
        ],
        "notes": notes,
    }


def _candidate_to_json(candidate: Candidate) -> dict[str, Any]:
    data: dict[str, Any] = {
        "candidate": str(candidate),
        "origin": candidate.origin,
        "target": candidate.target,
    }
    blob = candidate.blob
    if blob is None or candidate.entry is None:
        return data
    return data | {
        "bundle": candidate.folder,
        "sha256": blob.sha256,
        "min_driver": blob.min_driver,
        "shared_bytes": _shared_bytes(candidate),
        "registers": None if candidate.target == PTX else blob.registers,
        "condition": candidate.entry.abi_of(blob).tma_ok,
        "validated": list(blob.validated),
    }


def _shared_bytes(candidate: Candidate) -> int:
    blob: Blob | None = candidate.blob
    if blob is None or candidate.entry is None:
        return 0
    return candidate.entry.abi_of(blob).shared_bytes + blob.shared_bytes


def _range(values: Iterator[int], spell: Callable[[int], str]) -> str:
    found = sorted(set(values))
    ends = [spell(found[0])] if len(found) == 1 else [spell(found[0]), spell(found[-1])]
    return " to ".join(ends)
