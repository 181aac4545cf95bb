"""Every sample runs by every binary, and what is wrong is put down to the right one."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.bundles import write_bundle
from helpers.fake_driver import Finished, run_with_fake_driver
from tilewright.abi.arguments import launch_abi
from tilewright.abi.manifest import read_manifest
from tilewright.abi.signature import KernelSignature
from tilewright.errors import FormatError, LaunchError, ReleaseError
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit, store
from tilewright_release.hardware_table import BEGIN, END, format_table, table_in, write_table
from tilewright_release.progress import show_progress
from tilewright_release.samples import Sample, all_samples, launched_by
from tilewright_release.tolerances import Tolerances, read_tolerances
from tilewright_release.validate import summary
from tilewright_release.validated import ValidatedGpu, Validations, file_name, read_validated
from tilewright_release.validation import (
    NOT_SAMPLED,
    NOT_SUITED,
    Binary,
    Outcome,
    RunBinary,
    validate_samples,
)

ROOT = Path(__file__).resolve().parents[2]
TOLERANCES = read_tolerances(ROOT / "prebuilt" / "tolerances.toml")
INTERPRET = jit.interpret_kernel

Spoil = Callable[[Binary, Mapping[str, Any]], None]


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """One small sample of each operation."""
    found: dict[str, Sample] = {}
    for sample in all_samples(ROOT):
        is_small = not any(width in sample.name for width in ("40000", "16384", "32768", "8192"))
        kind = "example-" + sample.name.split("-")[1] if sample.family == "examples" else ""
        if is_small and "bf16" not in sample.name:
            found.setdefault(kind or sample.name.partition("-")[0], sample)
    return list(found.values())


def binaries_of(samples: list[Sample], *, each: int = 1) -> dict[str, tuple[Binary, ...]]:
    """Return so many made-up binaries of everything that samples launch."""
    keys = {
        store.source_key(launch.kernel, launch.signature)
        for sample in samples
        for launch in launched_by(sample)
    }
    return {
        key: tuple(Binary(key, rank, f"{key[:8]} {rank}", f"{key}{rank}") for rank in range(each))
        for key in keys
    }


def interpreter(spoil: Spoil | None = None) -> RunBinary:
    """Return what interprets launches and then lets `spoil` damage the result."""

    def run(
        binary: Binary,
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
    ) -> None:
        INTERPRET(kernel, signature, grid=grid, arguments=arguments)
        if spoil is not None:
            spoil(binary, arguments)

    return run


def validated(
    samples: list[Sample],
    binaries: dict[str, tuple[Binary, ...]],
    *,
    run: RunBinary,
    tolerances: Tolerances = TOLERANCES,
) -> Outcome:
    with show_progress("samples", total=len(samples), stream=io.StringIO()) as progress:
        return validate_samples(
            samples,
            binaries,
            tolerances=tolerances,
            run=run,
            find_key=store.source_key,
            progress=progress,
        )


def test_the_interpreter_is_within_every_tolerance(samples: list[Sample]) -> None:
    assert len({sample.family for sample in samples}) > 7
    binaries = binaries_of(samples)
    outcome = validated(samples, binaries, run=interpreter())
    assert outcome.failures == {}
    assert outcome.unbundled == {}
    assert outcome.right == {binary for found in binaries.values() for binary in found}
    every = [binary for found in binaries.values() for binary in found]
    count = len(every)
    assert summary(outcome, every) == (
        f"validate: {count} binaries declared, {count} driven, {count} ok, 0 failed, 0 skipped"
    )


@pytest.fixture
def one(samples: list[Sample]) -> list[Sample]:
    """A sample of softmax, which is one launch."""
    return [next(sample for sample in samples if sample.family == "softmax")]


def test_each_binary_of_an_entry_is_judged_alone(one: list[Sample]) -> None:
    def spoil_second(binary: Binary, arguments: Mapping[str, Any]) -> None:
        if binary.rank == 1:
            arguments["out"][0, 0] += 1

    binaries = binaries_of(one, each=3)
    outcome = validated(one, binaries, run=interpreter(spoil_second))
    ((first, second, third),) = binaries.values()
    assert outcome.right == {first, third}
    assert list(outcome.failures) == [second]
    assert "is off by" in outcome.failures[second]
    every = [first, second, third]
    assert summary(outcome, every).endswith("3 driven, 2 ok, 1 failed, 0 skipped")


def test_a_result_that_was_not_written_fails(one: list[Sample]) -> None:
    def run(*_arguments: object, **_options: object) -> None:
        """Launch nothing."""

    outcome = validated(one, binaries_of(one), run=run)
    assert len(outcome.failures) == 1


def test_an_error_of_a_launch_fails(one: list[Sample]) -> None:
    def run(*_arguments: object, **_options: object) -> None:
        msg = "the grid is too large"
        raise LaunchError(msg)

    outcome = validated(one, binaries_of(one), run=run)
    assert [text.split(" ", 1)[1] for text in outcome.failures.values()] == [
        "LaunchError: the grid is too large"
    ]


def test_a_binary_whose_condition_does_not_hold_is_skipped(one: list[Sample]) -> None:
    def run(binary: Binary, *arguments: Any, **options: Any) -> None:
        if binary.rank == 0:
            msg = "softmax: this kernel may only be launched when `x % 16 == 0`"
            raise LaunchError(msg)
        interpreter()(binary, *arguments, **options)

    binaries = binaries_of(one, each=2)
    outcome = validated(one, binaries, run=run)
    ((first, second),) = binaries.values()
    assert (outcome.right, outcome.failures) == ({second}, {})
    assert outcome.skipped([first, second]) == {NOT_SUITED: 1}


def test_what_no_sample_launches_is_skipped_and_what_is_not_bundled_is_named(
    one: list[Sample],
) -> None:
    (launch,) = launched_by(one[0])
    other = Binary("other", 0, "other", "0" * 64)
    outcome = validated(one, {"other": (other,)}, run=interpreter())
    assert outcome.skipped([other]) == {NOT_SAMPLED: 1}
    assert list(outcome.unbundled) == [f"{launch.kernel.qualified_name} {launch.signature}"]
    # An entry that this GPU cannot run at all is neither.
    key = store.source_key(launch.kernel, launch.signature)
    assert validated(one, {key: ()}, run=interpreter()) == Outcome()


# The command, with a driver that launches nothing


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of made-up binaries for what two samples launch, two each for sm_90a."""
    launches = [
        launch
        for sample in all_samples(ROOT)
        if sample.name in ("softmax-f32-1024-fast", "sum-f32-1024-general")
        for launch in launched_by(sample)
    ]
    own = {
        launch.kernel.name: launch_abi(
            launch.signature, entry=launch.kernel.name, shared_bytes=0, writes=("out",)
        )
        for launch in launches
    }
    folder = tmp_path_factory.mktemp("bundle")
    write_bundle(folder, {x.kernel: [x.signature] for x in launches}, own=own)
    return folder


PROGRAM = """
from tilewright_release import validate
from tilewright.runtime import jit

interpret, launch = jit.interpret_kernel, validate.launch_on_device

def launch_and_compute(loaded, kernel, signature, *, grid, arguments):
    launch(loaded, kernel, signature, grid=grid, arguments=arguments)
    if {computes}:
        interpret(kernel, signature, grid=grid, arguments=arguments)

validate.launch_on_device = launch_and_compute
from tilewright_release.main import main
print("exit", main({words!r}))
"""


def run_validate(bundle: Path, folder: Path, *words: str, computes: bool) -> Finished:
    command = ["--root", str(ROOT), "validate", *words]
    program = PROGRAM.format(computes=computes, words=command)
    return run_with_fake_driver(
        program, folder, TILEWRIGHT_BUNDLE_PATH=str(bundle), TILEWRIGHT_JIT="off"
    )


def test_the_command_launches_every_binary_and_writes_the_record(
    bundle: Path, tmp_path: Path
) -> None:
    words = ("--only", "f32-1024-", "--out", str(tmp_path / "validated"))
    finished = run_validate(bundle, tmp_path, *words, computes=True)
    assert "validate: 4 binaries declared, 4 driven, 4 ok, 0 failed, 0 skipped" in finished.output
    assert len(finished.lines("cuLibraryLoadData")) == 4, finished.log
    assert len(finished.lines("launch ")) >= 4
    (file,) = read_validated(tmp_path / "validated").files
    assert (file.compute_capability, file.declared, file.failed) == ("9.0", 4, 0)
    entries = read_manifest(bundle / "manifest.json").entries.values()
    wanted = {
        blob.sha256
        for entry in entries
        for key, blob in entry.blobs.items()
        if key.startswith("sm_90a")
    }
    assert set(file.blobs) == wanted
    # The other samples of this name launch what this bundle has not, and that is told.
    assert "not bundled: tilewright.kernels" in finished.errors
    # The texts of the floor come on top, and nothing is forgotten.
    finished = run_validate(bundle, tmp_path, *words, "--floor", computes=True)
    assert "validate: 2 binaries declared, 2 driven, 2 ok" in finished.output
    (file,) = read_validated(tmp_path / "validated").files
    assert wanted < set(file.blobs)
    assert len(file.blobs) == 6


def test_a_wrong_binary_loses_its_validation(bundle: Path, tmp_path: Path) -> None:
    words = ("--only", "softmax-f32-1024-fast", "--out", str(tmp_path / "validated"))
    run_validate(bundle, tmp_path, *words, computes=True)
    (file,) = read_validated(tmp_path / "validated").files
    assert len(file.blobs) == 2
    finished = run_validate(bundle, tmp_path, *words, computes=False)
    assert "2 driven, 0 ok, 2 failed, 2 skipped (2 because no sample launches it)" in (
        finished.output
    )
    assert "softmax-f32-1024-fast is off by" in finished.errors
    assert f"exit {ReleaseError.exit_code}" in finished.output
    (file,) = read_validated(tmp_path / "validated").files
    assert file.blobs == ()


# The record and the table


@pytest.fixture
def record() -> ValidatedGpu:
    return ValidatedGpu(
        gpu="NVIDIA H200",
        compute_capability="9.0",
        driver=13000,
        date="2026-01-02",
        version="0.1.0",
        declared=12,
        failed=1,
        skipped={NOT_SAMPLED: 2},
        blobs=("a" * 64, "b" * 64),
    )


def test_a_record_says_where_a_blob_is_validated(tmp_path: Path, record: ValidatedGpu) -> None:
    (tmp_path / file_name(record.gpu)).write_text(record.to_json(), encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["nvidia-h200.json"]
    found = read_validated(tmp_path)
    assert found == Validations((record,))
    assert found.gpus("a" * 64) == ("NVIDIA H200",)
    assert found.gpus("c" * 64) == ()
    assert read_validated(tmp_path / "absent") == Validations()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "gpu": "x"}'])
def test_a_wrong_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=r"x\.json"):
        read_validated(tmp_path)


def test_the_table_is_written_between_its_marks(tmp_path: Path, record: ValidatedGpu) -> None:
    document = tmp_path / "hardware.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_table(document, Validations((record,)))
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n\n| GPU |")
    assert text.endswith(f"|\n\n{END}\nafter\n")
    assert "| NVIDIA H200 | 9.0 | 13.0 | 12 | 10 | 9 | 2026-01-02 |" in text
    assert table_in(text) == format_table(Validations((record,)))
    with pytest.raises(ReleaseError, match="has no lines"):
        table_in("nothing")


def test_the_documents_tell_what_the_records_say() -> None:
    text = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    expected = format_table(read_validated(ROOT / "prebuilt" / "validated"))
    assert table_in(text) == expected, "run `tilewright dev validate --docs`"
