"""Several bundles: who is asked first, what a damaged or replaced one does, what the trace says."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import PACK, code_of, signatures, write_bundle, zero_blobs
from helpers.fake_driver import Finished, run_program
from helpers.launches import run_sample
from helpers.sample_kernels import add, mixed, strided
from tilewright import settings as settings_module
from tilewright.abi import keys
from tilewright.abi.dtypes import float32, int64
from tilewright.abi.manifest import FILE_NAME, read_manifest, write_manifest
from tilewright.abi.target import ComputeCapability
from tilewright.errors import ArgumentError, FormatError
from tilewright.runtime import sources, store
from tilewright.runtime.bundle import Bundle
from tilewright.runtime.device import imagined
from tilewright.runtime.resolve import Decision, Policy

_ADDITIONS = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)
_KEY = keys.source_key(add.digest, _ADDITIONS[0])
_LAUNCH = """
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
(loaded,) = launch._loaded.values()
print(loaded.candidate, loaded.candidate.folder)
print(*loaded.trace, sep="\\n")
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("BUNDLE_PATH", "EXTRA_BUNDLES"):
        monkeypatch.delenv(f"TILEWRIGHT_{name}", raising=False)
    _forget()
    yield
    store._added.clear()
    _forget()


def _forget() -> None:
    settings_module.settings.cache_clear()
    store.bundles.cache_clear()


def _write(folder: Path, targets: tuple[str, ...] = ("sm_80", "sm_90a", "ptx")) -> Path:
    write_bundle(folder, {add: _ADDITIONS}, targets=targets)
    return folder


def _decide(key: str = _KEY, gpu: str = "9.0") -> Decision:
    facts = imagined(ComputeCapability.parse(gpu), driver_version=13000)
    return sources.decide_key("add", "s", key, facts=facts, policy=Policy(jit=False))


def test_added_bundles_come_before_those_of_settings_before_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: _write(tmp_path / name) for name in ("main", "e1", "e2", "a1", "a2")}
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(folders["main"]))
    monkeypatch.setenv("TILEWRIGHT_EXTRA_BUNDLES", f"{folders['e1']}:{folders['e2']}")
    store.add_bundle(folders["a1"])
    store.add_bundle(str(folders["a2"]))
    order = ["a2", "a1", "e1", "e2", "main"]
    assert [bundle.folder for bundle in store.bundles()] == [folders[name] for name in order]
    decision = _decide()
    cubins = [c for c in decision.candidates if c.target == "sm_90a"]
    assert [c.folder for c in cubins] == [str(folders[name]) for name in order]
    # All cubins are tried before any portable text.
    assert [c.target for c in decision.candidates] == ["sm_90a"] * 5 + ["ptx"] * 5
    texts = [str(reason) for reason in decision.trace]
    assert f"+ prebuilt sm_90a: made for this GPU, in {folders['a2']}" in texts
    # Added again it moves to the front; it is not asked twice.
    store.add_bundle(folders["a1"])
    assert [bundle.folder.name for bundle in store.bundles()] == ["a1", "a2", "e1", "e2", "main"]


def test_a_bundle_alone_is_not_named_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(_write(tmp_path / "main")))
    assert "+ prebuilt sm_90a: made for this GPU" in map(str, _decide().trace)


def test_an_extra_bundle_adds_what_the_installed_one_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(_write(tmp_path / "main", ("ptx",))))
    monkeypatch.setenv("TILEWRIGHT_EXTRA_BUNDLES", str(_write(tmp_path / "extra", ("sm_90a",))))
    names = [(str(c), Path(c.folder).name) for c in _decide().candidates]
    assert names == [("prebuilt sm_90a", "extra"), ("ptx", "main")]


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'here/bundle' is relative"):
        store.add_bundle("here/bundle")


def test_adding_reads_nothing_and_a_missing_folder_is_told_in_every_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(_write(tmp_path / "main")))
    store.add_bundle(tmp_path / "nowhere")
    assert not caplog.records
    for _ in range(2):
        decision = _decide()
        assert str(decision.trace[0]).startswith(f"- bundle {tmp_path / 'nowhere'}: manifest ")
        assert [str(c) for c in decision.candidates] == ["prebuilt sm_90a", "ptx"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("damage", ["other version", "truncated", "missing pack", "zeroed pack"])
def test_a_launch_goes_on_past_a_damaged_bundle(tmp_path: Path, damage: str) -> None:
    main, extra = _write(tmp_path / "main"), _write(tmp_path / "extra")
    manifest, pack = extra / FILE_NAME, extra / PACK
    match damage:
        case "other version":
            manifest.write_bytes(manifest.read_bytes().replace(b'"schema":3', b'"schema":4', 1))
        case "truncated":
            manifest.write_bytes(manifest.read_bytes()[:-20])
        case "missing pack":
            pack.unlink()
        case _:
            zero_blobs(pack)
    done = run_sample(
        _LAUNCH,
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(main),
        TILEWRIGHT_EXTRA_BUNDLES=str(extra),
    )
    assert done.output.startswith(f"prebuilt sm_90a {main}\n")
    assert str(extra) in done.output  # the trace says which bundle was passed over
    assert str(extra) in done.errors
    assert len(done.lines("cuLibraryLoadData")) == len(done.lines("launch")) == 1


@pytest.mark.parametrize("version", ["0.1.0+cu130", "9.9.9", ""])
def test_the_version_text_of_a_bundle_decides_nothing(tmp_path: Path, version: str) -> None:
    """A key says what a binary is; a local version of a companion wheel is no mismatch."""
    folder = _write(tmp_path / "main")
    manifest = read_manifest(folder / FILE_NAME)
    write_manifest(folder / FILE_NAME, replace(manifest, version=version))
    done = run_sample(_LAUNCH, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(folder))
    assert done.output.startswith("prebuilt sm_90a ")
    assert done.errors == ""


def test_a_damaged_key_does_not_pass_for_a_missing_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(tmp_path / "main")
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(folder))
    path = folder / FILE_NAME
    start = f'"{_KEY}":['.encode()
    path.write_bytes(path.read_bytes().replace(start, start[:2] + b"Z" + start[3:], 1))
    first = str(_decide().trace[0])
    assert first.startswith(f"- bundle {folder}: ")
    assert "is damaged: its records have sha256" in first
    # What is intact is still served.
    other = keys.source_key(add.digest, _ADDITIONS[1])
    assert [str(c) for c in _decide(other).candidates] == ["prebuilt sm_90a", "ptx"]


@pytest.mark.parametrize("place", [b'"helpers', b'":["'])
def test_a_damaged_record_of_a_kernel_costs_its_entries_no_launch(
    tmp_path: Path, place: bytes
) -> None:
    """Without the record the digest is computed from the source, which gives the same key."""
    folder = _write(tmp_path / "main")
    path = folder / FILE_NAME
    data = bytearray(path.read_bytes())
    data[data.index(place, data.index(b"kernel_records")) + 4] ^= 0x80
    path.write_bytes(data)
    done = run_sample(
        f"""{_LAUNCH}
from tilewright.runtime import store
print(len(store.entries_of(add)), {_KEY!r} in [key for _, key, _ in store.every_entry()])
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(folder),
    )
    assert done.output.startswith("prebuilt sm_90a ")
    assert done.output.endswith("0 True\n")
    assert "damaged" in done.errors


def test_a_replaced_bundle_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _write(tmp_path / "main", ("ptx",))
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(folder))
    copies = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    key = keys.source_key(strided.digest, copies[0])
    assert [str(c) for c in _decide().candidates] == ["ptx"]
    assert _decide(key).candidates == ()
    write_bundle(folder, {strided: copies}, targets=("sm_90a",))
    assert [str(c) for c in _decide(key).candidates] == ["prebuilt sm_90a"]
    assert _decide().candidates == ()
    (folder / FILE_NAME).write_bytes(b"half")
    assert "is not a manifest" in str(_decide(key).trace[0])
    write_bundle(folder, {add: _ADDITIONS})
    assert str(_decide().candidates[0]) == "prebuilt sm_90a"


def test_a_decision_outlives_the_bundle_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a decision and its load another process may replace manifest and packs."""
    folder = _write(tmp_path / "main")
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(folder))
    decision = _decide()
    codes = {"old": code_of("sm_90a", f"add {_ADDITIONS[0]}")}
    (folder / PACK).unlink()
    _write_again(folder, pack="new.pack", suffix="again")
    abi, code = sources.fetch_bundled(_KEY, decision.candidates[0])
    assert code == codes["old"] + b"again"
    assert abi.num_threads == 128
    # Where the new one has no such binary, the first failure stands.
    decision = _decide()
    (folder / "new.pack").unlink()
    write_bundle(folder, {mixed: ()})
    store.bundle_at(str(folder)).close()
    with pytest.raises(FormatError, match=r"new\.pack cannot be opened"):
        sources.fetch_bundled(_KEY, decision.candidates[0])


def _write_again(folder: Path, *, pack: str, suffix: str) -> None:
    """Write a bundle in which every binary is another one, as a release does: manifest last."""
    import hashlib

    from tilewright.abi.pack import write_pack

    manifest = write_bundle(folder.parent / "scratch", {add: _ADDITIONS})
    entries, codes = {}, []
    for key, entry in manifest.entries.items():
        blobs = {}
        for target, blob in entry.blobs.items():
            code = code_of(target, f"add {entry.signature}") + suffix.encode()
            codes.append(code)
            sha256 = hashlib.sha256(code).hexdigest()
            blobs[target] = replace(blob, pack=pack, sha256=sha256, size=len(code))
        entries[key] = replace(entry, blobs=blobs)
    write_pack(folder / pack, codes)
    write_manifest(folder / FILE_NAME, replace(manifest, entries=entries))


def test_readers_go_on_while_another_process_rebuilds_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(tmp_path / "main")
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(folder))
    rounds = 8

    def rebuild() -> None:
        for round_ in range(1, rounds + 1):
            _write_again(folder, pack=f"pack-{round_}.pack", suffix=f"{round_}")
            for path in folder.glob("*.pack"):
                if path.name != f"pack-{round_}.pack":
                    path.unlink()

    def read() -> bytes:
        decision = _decide()
        assert str(decision.candidates[0]) == "prebuilt sm_90a"
        _, code = sources.fetch_bundled(_KEY, decision.candidates[0])
        return code

    expected = code_of("sm_90a", f"add {_ADDITIONS[0]}")
    _write_again(folder, pack="pack-0.pack", suffix="0")
    (folder / PACK).unlink()
    # The writer says how long this lasts: a slow disk gives readers more to do and fails nothing.
    writer = threading.Thread(target=rebuild)
    writer.start()
    try:
        while writer.is_alive():
            assert read().startswith(expected)
    finally:
        writer.join()
    assert read() == expected + f"{rounds}".encode()


def test_threads_share_a_bundle_while_it_is_replaced(tmp_path: Path) -> None:
    folder = _write(tmp_path / "main")
    bundle = Bundle(folder)
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(200):
                entry = bundle.entry(_KEY)
                assert entry is not None
                assert bundle.read(entry.blobs["sm_90a"])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        write_manifest(folder / FILE_NAME, read_manifest(folder / FILE_NAME))
    for thread in threads:
        thread.join()
    bundle.close()
    assert not wrong


def test_packs_without_their_manifest_are_no_empty_installation(tmp_path: Path) -> None:
    import tilewright

    package = tmp_path / "site" / "tilewright"
    package.mkdir(parents=True)
    for item in Path(tilewright.__file__).parent.iterdir():
        if item.name not in ("_prebuilt", "__pycache__"):
            (package / item.name).symlink_to(item)
    _write(package / "_prebuilt")
    (package / "_prebuilt" / FILE_NAME).unlink()
    done = _doctor(tmp_path, package.parent)
    assert done.code == 6
    assert "FAULT: manifest" in done.output
    shutil.rmtree(package / "_prebuilt")
    (package / "_prebuilt").mkdir()
    assert "_prebuilt" not in _doctor(tmp_path, package.parent).output


def _doctor(folder: Path, site: Path) -> Finished:
    return run_program(
        f"""
import sys
sys.path.insert(0, {str(site)!r})
for name in [name for name in sys.modules if name.startswith("tilewright")]:
    del sys.modules[name]
from tilewright.cli.main import main
sys.exit(main(["doctor"]))
""",
        folder,
    )
