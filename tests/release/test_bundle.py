from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.small_checkout import ENTRIES, SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright.abi.pack import PackReader
from tilewright.errors import FormatError, ReleaseError
from tilewright_release import packs
from tilewright_release.bundle import Summary, bundle_kernels
from tilewright_release.signatures import read_signatures
from tilewright_release.similar import Arrangement, arrange
from tilewright_release.stage_cache import StageCache

_SIGNATURES = "prebuilt/signatures/small.toml"


def _bundle(small: SmallCheckout, *, jobs: int = 1, cache: Path | None = None) -> Summary:
    return bundle_kernels(
        small.checkout,
        output=small.checkout.bundle,
        cache=cache or small.cache,
        jobs=jobs,
        stream=io.StringIO(),
    )


def _contents(small: SmallCheckout) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in small.checkout.bundle.iterdir()}


def test_the_manifest_holds_every_entry_with_every_blob(bundled: SmallCheckout) -> None:
    manifest = read_manifest(bundled.checkout.bundle / "manifest.json")
    declared = read_signatures(bundled.checkout)
    assert sorted(manifest.entries) == sorted(entry.source_key for entry in declared)
    assert sorted(manifest.kernels) == ["kernels.double", "kernels.square"]
    for entry in declared:
        record = manifest.entries[entry.source_key]
        assert record.family == "small"
        assert record.signature == str(entry.signature)
        assert record.abi.num_threads == 32 * entry.signature.num_warps
        assert record.abi.writes == ("out",)
        assert list(record.blobs) == sorted(["sm_80", "sm_90a", "sm_100f", "sm_120f", "ptx"])
        for target, blob in record.blobs.items():
            with PackReader(bundled.checkout.bundle / blob.pack) as pack:
                data = pack.read(blob.sha256)
            assert len(data) == blob.size
            assert data.startswith(b"\x7fELF") == (target != "ptx")
            assert blob.min_driver == (12080 if target in ("sm_100f", "sm_120f") else 12000)
            assert (blob.registers > 0) == (target != "ptx")


def test_nothing_new_compiles_nothing_and_changes_nothing(bundled: SmallCheckout) -> None:
    before = _contents(bundled)
    summary = _bundle(bundled)
    assert (summary.entries, summary.built, summary.stages) == (ENTRIES, 0, 0)
    assert _contents(bundled) == before


def test_a_comment_compiles_nothing(bundled: SmallCheckout) -> None:
    bundled.replace("kernels.py", "    mask = offsets < n\n", "    mask = offsets < n  # in x\n")
    assert _bundle(bundled).built == 0


def test_a_changed_kernel_compiles_its_entries_only(bundled: SmallCheckout) -> None:
    bundled.replace("kernels.py", "values * values", "values * values + 1")
    before = set(_contents(bundled))
    summary = _bundle(bundled)
    assert (summary.built, summary.stages) == (1, 5)
    # The old packs are gone, and the new ones hold both kernels.
    assert len(set(_contents(bundled))) == len(before)


def test_the_same_ptx_is_assembled_once(bundled: SmallCheckout) -> None:
    # Another name of a local variable is another key and another IR text, and the same PTX.
    bundled.replace("kernels.py", "values", "numbers")
    summary = _bundle(bundled)
    assert (summary.built, summary.stages) == (1, 1)


def test_caches_and_processes_do_not_enter_the_bytes(
    bundled: SmallCheckout, tmp_path: Path
) -> None:
    before = _contents(bundled)
    summary = _bundle(bundled, jobs=2, cache=tmp_path / "empty")
    assert (summary.built, summary.stages) == (ENTRIES, 5 * ENTRIES)
    assert _contents(bundled) == before


def test_a_damaged_cache_file_is_built_again(bundled: SmallCheckout) -> None:
    before = _contents(bundled)
    record = next(path for path in (bundled.cache / "entries").rglob("*") if path.is_file())
    record.write_bytes(record.read_bytes()[:-1])
    assert _bundle(bundled).built == 1
    assert _contents(bundled) == before


def test_packs_of_another_checkout_are_copied(
    bundled: SmallCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _contents(bundled)
    for path in bundled.checkout.bundle.iterdir():
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(packs, "arrange", lambda _: pytest.fail("a pack is arranged anew"))
        assert _bundle(bundled).built == 0
    assert _contents(bundled) == before


def test_packs_that_another_writer_made_are_not_copied(
    bundled: SmallCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in bundled.checkout.bundle.iterdir():
        path.unlink()
    arranged: list[int] = []

    def counted(blobs: Sequence[bytes]) -> Arrangement:
        arranged.append(len(blobs))
        return arrange(blobs)

    monkeypatch.setattr(packs, "_writer_digest", lambda: b"another")
    monkeypatch.setattr(packs, "arrange", counted)
    _bundle(bundled)
    assert len(arranged) == len(list(bundled.checkout.bundle.glob("*.pack")))


def test_a_cache_that_takes_no_pack_ends_no_run(
    bundled: SmallCheckout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = _contents(bundled)
    for path in (*bundled.checkout.bundle.iterdir(), *(bundled.cache / "packs").rglob("*")):
        if path.is_file():
            path.unlink()

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(StageCache, "put", refuse)
    _bundle(bundled)
    assert _contents(bundled) == before
    assert "is not kept for other checkouts" in caplog.text


def test_caches_that_cannot_be_written_are_told_once(small: SmallCheckout) -> None:
    with pytest.raises(ReleaseError, match="the build caches in /proc/none cannot be written"):
        _bundle(small, cache=Path("/proc/none"))


def test_another_entrys_record_is_built_again(
    bundled: SmallCheckout, caplog: pytest.LogCaptureFixture
) -> None:
    before = _contents(bundled)
    first, second, *_ = sorted(
        path for path in (bundled.cache / "entries").rglob("*") if path.is_file()
    )
    first.write_bytes(second.read_bytes())
    assert _bundle(bundled).built == 1
    assert "another entry's record" in caplog.text
    assert _contents(bundled) == before


def test_runs_on_one_folder_take_turns(bundled: SmallCheckout) -> None:
    for path in bundled.checkout.bundle.iterdir():
        path.unlink()
    with ThreadPoolExecutor(3) as executor:
        for made in [executor.submit(_bundle, bundled) for _ in range(3)]:
            made.result()
    manifest = read_manifest(bundled.checkout.bundle / "manifest.json")
    assert packs.damaged_packs(bundled.checkout.bundle, manifest.entries.values()) == {}


def test_a_damaged_pack_is_written_again(bundled: SmallCheckout) -> None:
    before = _contents(bundled)
    pack = next(bundled.checkout.bundle.glob("*.pack"))
    pack.write_bytes(pack.read_bytes()[:-1])
    _bundle(bundled)
    assert _contents(bundled) == before


def test_an_unsupported_target_has_no_blob(bundled: SmallCheckout) -> None:
    bundled.replace(_SIGNATURES, "num_warps = 2", 'num_warps = 2\nunsupported = { sm_80 = "no" }')
    _bundle(bundled)
    entry = read_signatures(bundled.checkout)[-1]
    blobs = read_manifest(bundled.checkout.bundle / "manifest.json").entries[entry.source_key].blobs
    assert sorted(blobs) == ["ptx", "sm_100f", "sm_120f", "sm_90a"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("entries = 5", "entries = 4", "family small: 5 entries, the budget is 4"),
        ("entries = 10", "entries = 4", "bundle: 5 entries, the budget is 4"),
        ("registers = 64", "registers = 4", "registers, the budget is 4: kernels.py:double"),
        ("100_000", "1_000", "bytes packed, the budget is 1000"),
        ("seconds = 600", "seconds = 0", "core-seconds from nothing, the budget is 0"),
    ],
)
def test_a_passed_budget_fails(bundled: SmallCheckout, old: str, new: str, problem: str) -> None:
    bundled.replace("prebuilt/budgets.toml", old, new)
    with pytest.raises(ReleaseError, match="budgets are exceeded") as caught:
        _bundle(bundled)
    assert problem in str(caught.value)


def test_every_kernel_that_does_not_compile_is_listed_and_the_rest_is_kept(
    small: SmallCheckout,
) -> None:
    small.replace("kernels.py", "values * values", "values @ values")
    with pytest.raises(ReleaseError, match=r"kernels do not compile \(1\)") as caught:
        _bundle(small)
    assert "kernels.py" in str(caught.value)
    assert not (small.checkout.bundle / "manifest.json").exists()
    small.replace("kernels.py", "values @ values", "values * values")
    sys.modules.pop("kernels")
    assert _bundle(small).built == 1


def test_a_wrong_signature_file_compiles_nothing(small: SmallCheckout) -> None:
    small.replace(_SIGNATURES, "BLOCK = 256", "BLOK = 256")
    with pytest.raises(FormatError, match="constexprs name BLOK"):
        _bundle(small)
    assert not small.cache.exists()


def test_a_killed_run_goes_on_where_it_stopped(
    small: SmallCheckout, bundled: SmallCheckout
) -> None:
    command = "import sys; from tilewright_release.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["--root", str(small.root), "bundle-kernels", "--jobs", "1"]
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {command}"),
            *(*words, "--cache", str(small.cache)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def records() -> list[Path]:
        return list((small.cache / "entries").glob("*/[!.]*"))  # the others are being written

    try:
        while not records():
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.01)
    finally:
        # The whole group, as a machine that loses power would.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    kept = len(records())
    assert 1 <= kept < ENTRIES
    assert not small.checkout.bundle.exists()
    assert _bundle(small).built == ENTRIES - kept
    assert _contents(small) == _contents(bundled)


def test_progress_is_plain_lines_in_a_log(small: SmallCheckout) -> None:
    stream = io.StringIO()
    bundle_kernels(
        small.checkout,
        output=small.checkout.bundle,
        cache=small.cache,
        jobs=1,
        stream=stream,
    )
    lines = stream.getvalue().splitlines()
    last = {line.partition(":")[0]: line for line in lines}
    count = len(list(small.checkout.bundle.glob("*.pack")))
    assert last["kernels"].startswith(f"kernels: {ENTRIES}/{ENTRIES}, ")
    assert last["packs"].startswith(f"packs: {count}/{count}, ")
    assert "\x1b" not in stream.getvalue()
