"""A decision becomes code on a device: candidates are tried until the driver takes one.

Four driver errors mean "not this binary" and lead to the next candidate, as does a blob whose bytes
are not the recorded ones: 200 (invalid image), 209 (no binary for this GPU), 218 (invalid PTX), 222
(PTX version too new). Anything else is a fault of the machine and is raised. Every refusal is kept
and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import takewhile

from tilewright.abi.arguments import AbiParameter, LaunchAbi
from tilewright.abi.manifest import PTX
from tilewright.abi.signature import Constexpr, KernelSignature
from tilewright.errors import (
    DriverError,
    FormatError,
    InternalCompilerError,
    ToolchainError,
    UnsupportedTargetError,
)
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.expression import compile_expression
from tilewright.runtime.launcher import CODES, native
from tilewright.runtime.resolve import BUNDLED, Candidate, Decision, Reason

logger = logging.getLogger(__name__)

REFUSALS = {
    200: "the driver finds the image invalid",
    209: "the driver finds no binary for this GPU in it",
    218: "the driver finds the PTX invalid",
    222: "the PTX version is newer than the driver",
}

Fetch = Callable[[Candidate], tuple[LaunchAbi, bytes]]
"""Returns the launch ABI and the code of a candidate, compiling it when it must."""

_POINTER, _SCALAR, _GRID, _TENSOR_MAP, _WORKSPACE = range(5)


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """Code that the driver took; it stays loaded until the process ends.

    `trace` is the decision's with what happened while loading.
    """

    decision: Decision
    candidate: Candidate
    abi: LaunchAbi
    device: int
    function: int
    trace: tuple[Reason, ...]


def load(
    decision: Decision, *, device: int, fetch: Fetch, is_bundled: bool = False
) -> LoadedKernel:
    """Load the first candidate that the driver accepts; raises ResolveError with the trace.

    With `is_bundled` the first of those that a bundle holds.
    """
    candidates = [c for c in decision.candidates if c.origin in BUNDLED or not is_bundled]
    return _load_first(decision, candidates, device=device, fetch=fetch)


def load_second(loaded: LoadedKernel, *, fetch: Fetch, is_bundled: bool = False) -> LoadedKernel:
    """Load what serves the launches for which the condition of `loaded` does not hold.

    That is the next candidate without a condition that the driver accepts. With `is_bundled` none
    from the first on that would be compiled: it comes before the floor. Raises ResolveError with
    the trace.
    """
    decision = loaded.decision
    behind = decision.candidates[decision.candidates.index(loaded.candidate) + 1 :]
    candidates: Iterable[Candidate] = [each for each in behind if each.takes_all]
    if is_bundled:
        candidates = takewhile(lambda each: each.origin in BUNDLED, candidates)
    unmet = loaded.abi.tma_ok
    return _load_first(decision, candidates, device=loaded.device, fetch=fetch, unmet=unmet)


def _load_first(
    decision: Decision,
    candidates: Iterable[Candidate],
    *,
    device: int,
    fetch: Fetch,
    unmet: str = "",
) -> LoadedKernel:
    refusals: list[Reason] = []
    refused: list[bytes] = []
    for candidate in candidates:
        reason, code = None, b""
        try:
            abi, code = fetch(candidate)
            if code in refused:
                refusals.append(Reason(str(candidate), False, "the very code that was refused"))
                continue
            # The driver reads PTX up to a NUL, and Python's bytes give no promise of one to C.
            image = code + b"\0" if candidate.target == PTX else code
            _, _, function = native.load(device, image, abi.entry, abi.shared_bytes)
        except DriverError as error:
            if error.code not in REFUSALS:
                raise
            reason = f"{REFUSALS[error.code]} (error {error.code})"
            refused.append(code)
        except (
            FormatError,
            ToolchainError,
            InternalCompilerError,
            UnsupportedTargetError,
        ) as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            outcome = f"loaded, for launches such that {abi.tma_ok}" if abi.tma_ok else "loaded"
            trace = (*decision.trace, *refusals, Reason(str(candidate), True, outcome))
            logger.info("%s: loaded %s", decision.kernel, candidate)
            _tell_of_missing_evidence(decision, candidate)
            return LoadedKernel(decision, candidate, abi, device, function, trace)
        refusals.append(Reason(str(candidate), False, reason))
        logger.warning("%s: %s was refused: %s", decision.kernel, candidate, reason)
    raise decision.error(*refusals, unmet=unmet)


def _tell_of_missing_evidence(decision: Decision, candidate: Candidate) -> None:
    """Warn of a binary that should run here while only others of its kernel were seen to be right.

    That a GPU takes a binary does not make its results right. Where nothing was validated at all,
    there is nothing to tell it from.
    """
    entry, blob = candidate.entry, candidate.blob
    if entry is None or blob is None or blob.validated:
        return
    elsewhere = sorted({name for other in entry.blobs.values() for name in other.validated})
    if elsewhere:
        _warn_once(str(decision.device.capability), candidate.target, ", ".join(elsewhere))


@lru_cache(maxsize=64)
def _warn_once(capability: str, target: str, elsewhere: str) -> None:
    logger.warning(
        "binaries for %s run on compute capability %s by the vendor's rules and were validated on "
        "no GPU; other binaries of the kernels were, on %s",
        target,
        capability,
        elsewhere,
    )


def make_plan(
    loaded: LoadedKernel,
    signature: KernelSignature,
    *,
    otherwise: Callable[[int], native.Plan] | None = None,
) -> native.Plan:
    """Return what the launcher needs to launch `loaded` with arguments in declaration order.

    Where these do not suit its condition, `otherwise(is_capturing)` is asked for another plan.
    """
    positions = {name: index for index, (name, _) in enumerate(signature.parameters)}
    constants = {
        name: int(p.value)
        for name, p in signature.parameters
        if isinstance(p, Constexpr) and isinstance(p.value, int)
    }
    abi = loaded.abi
    _check_scalars(abi, signature)

    def code(text: str) -> tuple[int, ...]:
        return compile_expression(text, positions, constants) if text else ()

    def parameter(
        declared: AbiParameter, offset: int
    ) -> tuple[int, int, int, int, bool, tuple[object, ...]]:
        size = declared.size_bytes
        match declared.kind:
            case "pointer":
                return _POINTER, positions[declared.name], offset, size, False, ()
            case "scalar":
                return _SCALAR, positions[declared.name], offset, size, False, ()
            case "grid":
                return _GRID, declared.axis, offset, size, False, ()
            case "workspace":
                return _WORKSPACE, 0, offset, size, declared.zeroed, code(declared.size_expression)
            case "tensor_map":
                spec = declared.tensor_map
                if spec is None:
                    msg = f"tensor map {declared.name!r} of {abi.entry} has no specification"
                    raise FormatError(msg)
                extents = tuple(map(code, spec.sizes)), tuple(map(code, spec.strides))
                rounds = spec.rounding == "tf32"
                details = (CODES[spec.dtype], spec.swizzle_bytes, *extents, spec.box, rounds)
                return _TENSOR_MAP, positions[spec.pointer], offset, size, False, details

    persistent = 0
    if abi.grid_kind == "persistent":
        blocks = native.resident_programs(
            loaded.device, loaded.function, abi.num_threads, abi.shared_bytes
        )
        persistent = max(1, blocks // (abi.cluster[0] * abi.cluster[1] * abi.cluster[2]))
    return native.Plan(
        name=loaded.decision.kernel,
        function=loaded.function,
        device=loaded.device,
        threads=abi.num_threads,
        shared_bytes=abi.shared_bytes,
        cluster=abi.cluster,
        persistent_programs=persistent,
        waits=abi.waits,
        parameters=tuple(map(parameter, abi.parameters, abi.offsets())),
        writes=tuple(positions[name] for name in abi.writes),
        predicate=code(abi.tma_ok),
        predicate_text=abi.tma_ok,
        keep_alive=loaded,
        otherwise=otherwise if abi.tma_ok else None,
    )


def _check_scalars(abi: LaunchAbi, signature: KernelSignature) -> None:
    """Raise FormatError when an argument of the ABI is not in the signature with that dtype."""
    runtime = dict(signature.runtime)
    for parameter in abi.parameters:
        if parameter.kind not in ("pointer", "scalar"):
            continue
        declared = runtime.get(parameter.name)
        if declared is None or declared.dtype != parameter.dtype:
            msg = (
                f"the launch ABI of {abi.entry} wants {parameter.name}: {parameter.dtype}, the "
                f"signature has {declared}"
            )
            raise FormatError(msg)
