"""`tilewright dev validate`: every bundled kernel runs on this GPU and gives what it should.

The binaries are those of the installed bundle, launched as the library launches them, with the
compiler forbidden; what they must give is `tilewright.reference`. The result is
`prebuilt/validated/<gpu>.json`, from which the next bundle learns what is validated.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewright.abi.manifest import PTX
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import ComputeCapability
from tilewright.errors import ReleaseError
from tilewright.language.kernel import Kernel
from tilewright.runtime import device, driver, jit, sources, store
from tilewright.runtime.device import DeviceFacts
from tilewright.runtime.module import LoadedKernel
from tilewright.runtime.resolve import Candidate, Decision, Policy
from tilewright_release.checkout import Checkout
from tilewright_release.device_launch import launch_on_device, load_candidate
from tilewright_release.hardware_table import write_table
from tilewright_release.progress import show_progress
from tilewright_release.samples import all_samples
from tilewright_release.tolerances import read_tolerances
from tilewright_release.validated import ValidatedGpu, file_name, read_validated
from tilewright_release.validation import Binary, Outcome, RunBinary, validate_samples

_SHOWN = 20
_INTERPRETED = DeviceFacts(ComputeCapability(9, 0), 13000, 227 * 1024)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--device", type=int, default=0, help="ordinal of the GPU, 0 by default")
    parser.add_argument(
        "--out", type=Path, help="folder of the result, prebuilt/validated by default"
    )
    parser.add_argument(
        "--only", metavar="TEXT", help="samples with this in their name; writes into --out alone"
    )
    parser.add_argument(
        "--floor", action="store_true", help="the PTX texts, compiled by the driver, not cubins"
    )
    parser.add_argument(
        "--interpret",
        action="store_true",
        help="interpret the kernels instead, to try this command where no GPU is",
    )
    parser.add_argument(
        "--docs",
        action="store_true",
        help="only write the table of docs/hardware.md from prebuilt/validated",
    )


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Validate and print a summary; raises ReleaseError when a binary is wrong."""
    if arguments.docs:
        write_table(checkout.hardware, read_validated(checkout.validated))
        print(f"wrote the table of {checkout.hardware}")
        return 0
    facts = _INTERPRETED if arguments.interpret else device.device(arguments.device).facts
    decisions = _decisions(facts)
    binaries = bundled_binaries(decisions, floor=arguments.floor)
    every = [binary for of_entry in binaries.values() for binary in of_entry]
    if not every:
        msg = "no installed bundle has a binary for this GPU; install a wheel, or bundle first"
        raise ReleaseError(msg)
    samples = [s for s in all_samples(checkout.root) if (arguments.only or "") in s.name]
    runner = _interpreted() if arguments.interpret else _on_gpu(decisions, arguments.device)
    with show_progress("samples", total=len(samples), stream=sys.stderr) as progress:
        outcome = validate_samples(
            samples,
            binaries,
            tolerances=read_tolerances(checkout.tolerances),
            run=runner,
            find_key=store.source_key,
            progress=progress,
        )
    print(summary(outcome, every))
    if not arguments.interpret and (arguments.out or not arguments.only):
        folder = arguments.out or checkout.validated
        print(f"wrote {_write(folder, outcome, every, facts, arguments.device)}")
    wrong = [f"{binary.name}: {text}" for binary, text in sorted_failures(outcome)]
    wrong += [f"not bundled: {text}, by {name}" for text, name in outcome.unbundled.items()]
    if wrong:
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        lines = (f"{len(wrong)} launches are wrong:", *wrong[:_SHOWN], *more)
        raise ReleaseError("\n  ".join(lines))
    return 0


def bundled_binaries(
    decisions: Mapping[str, Decision], *, floor: bool
) -> dict[str, tuple[Binary, ...]]:
    """Return the binaries of each source key that the device may run, the first choice first."""
    return {
        key: tuple(
            Binary(
                key,
                rank,
                f"{decision.kernel} {decision.signature} {candidate}",
                _blob_of(candidate).sha256,
            )
            for rank, candidate in enumerate(_candidates(decision, floor=floor))
        )
        for key, decision in decisions.items()
    }


def summary(outcome: Outcome, binaries: Iterable[Binary]) -> str:
    """Return the lines that close a run."""
    every = list(binaries)
    skipped = outcome.skipped(every)
    reasons = ", ".join(f"{count} because {reason}" for reason, count in sorted(skipped.items()))
    return (
        f"validate: {len(every)} binaries declared, {len(outcome.driven)} driven, "
        f"{len(outcome.right)} ok, {len(outcome.failures)} failed, {skipped.total()} skipped"
        + (f" ({reasons})" if reasons else "")
    )


def sorted_failures(outcome: Outcome) -> list[tuple[Binary, str]]:
    """Return what is wrong, by the names of the binaries."""
    return sorted(outcome.failures.items(), key=lambda item: item[0].name)


def _decisions(facts: DeviceFacts) -> dict[str, Decision]:
    """Return the decision for each entry of the installed bundles."""
    policy = Policy(jit=False)
    return {
        key: sources.decide_key(entry.kernel, entry.signature, key, facts=facts, policy=policy)
        for bundle in store.bundles()
        for key, entry in bundle.manifest.entries.items()
    }


def _candidates(decision: Decision, *, floor: bool) -> list[Candidate]:
    return [
        candidate
        for candidate in decision.candidates
        if candidate.blob is not None and (candidate.target == PTX) == floor
    ]


def _blob_of(candidate: Candidate) -> Any:
    assert candidate.blob is not None
    return candidate.blob


def _on_gpu(decisions: Mapping[str, Decision], index: int) -> RunBinary:
    loaded: dict[Binary, LoadedKernel] = {}

    def run_binary(
        binary: Binary,
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
    ) -> None:
        if binary not in loaded:
            decision = decisions[binary.source_key]
            candidate = next(
                c for c in decision.candidates if c.blob and c.blob.sha256 == binary.sha256
            )
            loaded[binary] = load_candidate(decision, candidate, index)
        launch_on_device(loaded[binary], kernel, signature, grid=grid, arguments=arguments)

    return run_binary


def _interpreted() -> RunBinary:
    interpret = jit.interpret_kernel  # before samples put theirs there

    def run_binary(
        binary: Binary,  # noqa: ARG001  # the interpreter runs the source
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
    ) -> None:
        interpret(kernel, signature, grid=grid, arguments=arguments)

    return run_binary


def _write(
    folder: Path, outcome: Outcome, every: list[Binary], facts: DeviceFacts, index: int
) -> Path:
    """Write the GPU's file; what an earlier run validated and this one did not drive stays."""
    import tilewright

    name = driver.device_name(index)
    path = folder / file_name(name)
    right = {binary.sha256 for binary in outcome.right}
    right -= {binary.sha256 for binary in outcome.failures}
    earlier = {blob for file in read_validated(folder).files if file.gpu == name
               for blob in file.blobs}  # fmt: skip
    bundled = {
        blob.sha256
        for bundle in store.bundles()
        for entry in bundle.manifest.entries.values()
        for blob in entry.blobs.values()
    }
    driven = {binary.sha256 for binary in outcome.driven}
    found = ValidatedGpu(
        gpu=name,
        compute_capability=str(facts.capability),
        driver=facts.driver_version,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        version=tilewright.__version__,
        declared=len(every),
        failed=len(outcome.failures),
        skipped=outcome.skipped(every),
        blobs=tuple(sorted(right | ((earlier & bundled) - driven))),
    )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(found.to_json(), encoding="utf-8")
    return path
