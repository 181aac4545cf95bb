"""Which binary serves a launch: an ordered list of candidates, with a reason for each yes and no.

A pure function of what is on offer (the bundle's entry, a cached compilation, the compiler) and of
the device. Candidates are, in order: prebuilt for this very GPU, prebuilt of its family, user
cache, compile now, PTX that the driver assembles. Loading walks the list; the trace says why each
is where it is, or why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.manifest import PTX, Blob, Entry, blob_target
from tilewright.abi.target import ComputeCapability, Target, ptx_may_run_on
from tilewright.errors import ResolveError
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.device import DeviceFacts, format_version

Origin = Literal["prebuilt", "family", "cached", "compile", "ptx", "cached ptx", "compiled ptx"]

BUNDLED: tuple[Origin, ...] = ("prebuilt", "family", "ptx")
"""The origins of what a bundle holds."""

PTX_TARGET = Target(8, 0)
"""What the floor's text is written for."""

_NO_ENTRY = "entry for this kernel and signature"
_NOT_COMPILED = "not compiled on this machine by this version"
_KNOWN_UNTUNED = {10: "untuned: no tcgen05 schedule"}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings allow: our compiler (`TILEWRIGHT_JIT`), the driver's (`TILEWRIGHT_PTX`),
    and cubins at all (not with `CUDA_FORCE_PTX_JIT`)."""

    jit: bool = True
    ptx: bool = True
    cubins: bool = True


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a candidate was accepted or refused."""

    candidate: str
    is_accepted: bool
    text: str

    def __str__(self) -> str:
        return f"{'+' if self.is_accepted else '-'} {self.candidate}: {self.text}"


@dataclass(frozen=True, slots=True)
class Bundled:
    """An entry of the bundle in `folder`; `place` says so to the reader where there are several."""

    entry: Entry
    folder: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Offers:
    """What could serve one signature.

    `bundled` are the entries of the bundles, the first to be asked first, and `faults` why some
    could not be asked; `cached` are entries of the user cache of the same form; `not_cached` says
    why it was not asked, if so. `compiler` is None when the compiler may be asked, else why not;
    `jit_target` is what it would assemble for the device, None when its toolchain does not know the
    GPU, and `has_own_schedule` whether that target may have a schedule of its own.
    """

    bundled: tuple[Bundled, ...]
    cached: tuple[Entry, ...]
    compiler: str | None
    jit_target: Target | None
    faults: tuple[Reason, ...] = ()
    not_cached: str = ""
    has_own_schedule: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve the launch. `blob` and `entry` are None when it must be compiled first.

    Of what is compiled, `is_common` takes the cubin of the schedule that all targets share. What a
    bundle holds is in its `folder`.
    """

    origin: Origin
    target: str
    entry: Entry | None
    blob: Blob | None
    is_common: bool = False
    folder: str = ""

    def __str__(self) -> str:
        # The floor is one text for all, so its origin says everything.
        text = self.origin if self.target == PTX else f"{self.origin} {self.target}"
        return f"{text}, common schedule" if self.is_common else text

    @property
    def takes_all(self) -> bool:
        """Whether it serves every launch of its signature, not only those that suit a condition.

        Of a first compilation that is not known, where the target may have a schedule of its own.
        """
        if self.entry is None or self.blob is None:
            return self.is_common or self.target == PTX
        return not self.entry.abi_of(self.blob).tma_ok


@dataclass(frozen=True, slots=True)
class Decision:
    """What `resolve` found for one kernel and signature on one device."""

    kernel: str
    signature: str
    source_key: str
    device: DeviceFacts
    candidates: tuple[Candidate, ...]
    trace: tuple[Reason, ...]

    def error(self, *more: Reason, unmet: str = "") -> ResolveError:
        """Return the error for a launch that nothing can serve: the whole trace and a remedy.

        `unmet` is the condition of a binary that serves other launches.
        """
        trace = (*self.trace, *more)
        what = f"no other binary of kernel {self.kernel} can run on this GPU, and the one for "
        what += f"launches such that {unmet} does not take these arguments"
        lines = [
            what if unmet else f"no binary of kernel {self.kernel} can run on this GPU",
            f"  signature: {self.signature}",
            f"  GPU: compute capability {self.device.capability}, driver for CUDA "
            f"{format_version(self.device.driver_version)}, {self.device.shared_bytes} bytes of "
            "shared memory",
            *(f"  {reason}" for reason in trace),
            f"  remedy: {_remedy(self.device.capability, trace)}",
        ]
        return ResolveError("\n".join(lines))


def resolve(
    kernel: str,
    signature: str,
    source_key: str,
    *,
    offers: Offers,
    device: DeviceFacts,
    policy: Policy,
) -> Decision:
    """Return the candidates for one signature on `device` in the order in which to try them."""
    trace: list[Reason] = list(offers.faults)
    candidates: list[Candidate] = []
    if policy.cubins:
        for bundled in offers.bundled:
            candidates += _cubins(bundled, device, trace, is_cached=False)
        if not offers.bundled:
            which = "no bundle that can be used has an" if offers.faults else "the bundle has no"
            trace.append(Reason("prebuilt", False, f"{which} {_NO_ENTRY}"))
        for cached in offers.cached:
            candidates += _cubins(Bundled(cached), device, trace, is_cached=True)
        if not offers.cached:
            trace.append(Reason("cached", False, offers.not_cached or _NOT_COMPILED))
        candidates += _compile(offers, device, policy, trace)
    else:
        trace.append(Reason("prebuilt", False, "CUDA_FORCE_PTX_JIT=1 asks for PTX alone"))
    candidates += _ptx(offers, device, policy, trace)
    return Decision(kernel, signature, source_key, device, tuple(candidates), tuple(trace))


def _cubins(
    bundled: Bundled, device: DeviceFacts, trace: list[Reason], *, is_cached: bool
) -> list[Candidate]:
    entry, place = bundled.entry, f", {bundled.place}" if bundled.place else ""
    found: list[tuple[tuple[int, int, int, int], Candidate, str]] = []
    for name, blob in sorted(_cubin_blobs(entry).items()):
        target = Target.parse(blob_target(name))
        is_exact = (target.major, target.minor) == (
            device.capability.major,
            device.capability.minor,
        )
        label = f"{'cached' if is_cached else 'prebuilt'} {name}"
        refusal = _refuse_cubin(target, entry, blob, device)
        if refusal is not None:
            trace.append(Reason(label, False, refusal + place))
            continue
        origin: Origin = "cached" if is_cached else "prebuilt" if is_exact else "family"
        # Exact before family, newer before older, of equals the one with more features, and before
        # the common schedule the target's own.
        features, is_common = ("a", "f", "").index(target.suffix), int(blob.abi is None)
        rank = (0 if is_exact else 1, -target.minor, features, is_common)
        text = _acceptance(target, device.capability, entry.abi_of(blob)) + place
        candidate = Candidate(origin, name, entry, blob, folder=bundled.folder)
        found.append((rank, candidate, text))
    found.sort(key=lambda item: item[0])
    trace.extend(Reason(str(candidate), True, text) for _, candidate, text in found)
    return [candidate for _, candidate, _ in found]


def _cubin_blobs(entry: Entry) -> Mapping[str, Blob]:
    return {name: blob for name, blob in entry.blobs.items() if name != PTX}


def _acceptance(target: Target, capability: ComputeCapability, abi: LaunchAbi) -> str:
    is_exact = (target.major, target.minor) == (capability.major, capability.minor)
    text = "made for this GPU" if is_exact else f"{target} also runs on {capability}"
    if abi.tma_ok:
        text += f", where {abi.tma_ok}"
    return text + _untuned(capability)


def _untuned(capability: ComputeCapability) -> str:
    note = _KNOWN_UNTUNED.get(capability.major)
    return f" ({note})" if note else ""


def _refuse_cubin(target: Target, entry: Entry, blob: Blob, device: DeviceFacts) -> str | None:
    if not target.may_run_on(device.capability):
        return f"does not run on compute capability {device.capability}"
    return _refuse_limits(entry, blob, device)


def _refuse_limits(entry: Entry, blob: Blob, device: DeviceFacts) -> str | None:
    if blob.min_driver > device.driver_version:
        return (
            f"needs a driver for CUDA {format_version(blob.min_driver)}, this one is for "
            f"{format_version(device.driver_version)}"
        )
    needed = entry.abi_of(blob).shared_bytes
    if needed > device.shared_bytes:
        return f"needs {needed} bytes of shared memory, the GPU has {device.shared_bytes}"
    return None


def _compile(
    offers: Offers, device: DeviceFacts, policy: Policy, trace: list[Reason]
) -> list[Candidate]:
    if not policy.jit:
        trace.append(Reason("compile", False, "TILEWRIGHT_JIT=off forbids the compiler"))
        return []
    if offers.compiler is not None:
        trace.append(Reason("compile", False, offers.compiler))
        return []
    if offers.jit_target is None:
        trace.append(
            Reason("compile", False, f"no toolchain knows compute capability {device.capability}")
        )
        return []
    candidate = Candidate("compile", str(offers.jit_target), None, None)
    text = "the compiler is installed and knows this GPU" + _untuned(device.capability)
    trace.append(Reason(str(candidate), True, text))
    if not offers.has_own_schedule:
        return [candidate]
    common = replace(candidate, is_common=True)
    trace.append(Reason(str(common), True, "for launches that the first does not serve"))
    return [candidate, common]


def _ptx(
    offers: Offers, device: DeviceFacts, policy: Policy, trace: list[Reason]
) -> list[Candidate]:
    if not policy.ptx:
        trace.append(Reason(PTX, False, "TILEWRIGHT_PTX=off forbids the driver's compiler"))
        return []
    if not ptx_may_run_on(PTX_TARGET, device.capability):
        trace.append(
            Reason(PTX, False, f"the floor needs {PTX_TARGET.major}.{PTX_TARGET.minor} or newer")
        )
        return []
    candidates: list[Candidate] = []
    has_text = False
    sources: list[tuple[Origin, Bundled]] = [("ptx", each) for each in offers.bundled]
    sources += [("cached ptx", Bundled(cached)) for cached in offers.cached]
    for origin, bundled in sources:
        entry, place = bundled.entry, f", {bundled.place}" if bundled.place else ""
        blob = entry.blobs.get(PTX)
        if blob is None:
            continue
        has_text = True
        refusal = _refuse_limits(entry, blob, device)
        if refusal is None:
            candidates.append(Candidate(origin, PTX, entry, blob, folder=bundled.folder))
        text = refusal or "the driver assembles the portable text"
        trace.append(Reason(origin, refusal is None, text + place))
    # A text that is refused would be made again with the same limits.
    if has_text:
        return candidates
    if policy.jit and offers.compiler is None:
        candidates.append(Candidate("compiled ptx", PTX, None, None))
        trace.append(
            Reason(
                "compiled ptx", True, "the compiler makes portable text, the driver assembles it"
            )
        )
    else:
        trace.append(Reason(PTX, False, "there is no portable text of this kernel"))
    return candidates


def _remedy(capability: ComputeCapability, trace: tuple[Reason, ...]) -> str:
    if not ptx_may_run_on(PTX_TARGET, capability):
        return f"GPUs older than {PTX_TARGET.major}.{PTX_TARGET.minor} are not supported"
    texts = " ".join(reason.text for reason in trace if not reason.is_accepted)
    if "install tilewright again" in texts:
        return "install tilewright again: files are damaged; `tilewright doctor` names them all"
    # What another driver, a smaller tile or the floor would serve needs no compiler.
    if "needs a driver" in texts:
        return "install a newer NVIDIA driver"
    if "bytes of shared memory, the GPU has" in texts:
        return "launch it with smaller tiles or fewer stages: this GPU has less shared memory"
    is_bundled = _NO_ENTRY not in texts
    if is_bundled and "TILEWRIGHT_PTX=off" in texts:
        return "allow the driver to compile the portable text (TILEWRIGHT_PTX=on)"
    if "TILEWRIGHT_JIT=off" in texts:
        return "allow the compiler (TILEWRIGHT_JIT=on), or bundle this kernel and signature"
    if "not installed" in texts:
        return (
            "install the compiler with `pip install tilewright[compiler]`, or bundle this signature"
        )
    return "run `tilewright doctor`; it names what is missing or damaged"
