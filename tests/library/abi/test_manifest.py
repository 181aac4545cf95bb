"""A manifest comes back as it was written, opens without reading its records, and shows damage."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.abi.arguments import AbiParameter, LaunchAbi, TensorMapSpec
from tilewright.abi.dtypes import bfloat16, float32
from tilewright.abi.manifest import (
    OWN_SCHEDULE,
    PTX,
    Blob,
    Entry,
    KernelRecord,
    Manifest,
    read_manifest,
    verify_manifest,
    write_manifest,
)
from tilewright.errors import FormatError


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def blob(name: str, target: str) -> Blob:
    return Blob(
        sha256=sha256(name + target),
        pack="softmax-sm_80.pack",
        size=12_345,
        kind="ptx" if target == PTX else "cubin",
        target="sm_80" if target == PTX else target,
        min_driver=12000,
        registers=40,
        spill_bytes=0,
        shared_bytes=16,
        toolchain=f"ptxas-{len(target)}",
        build_key=sha256(name),
        validated=("nvidia-h200",) if target == "sm_90a" else (),
        waits=target == "sm_90a",
    )


def entry(name: str) -> Entry:
    parameters = (
        AbiParameter("pointer", "x", float32),
        AbiParameter("scalar", "n"),
        AbiParameter("grid", "g", axis=1),
        AbiParameter(
            "tensor_map",
            "x_map",
            tensor_map=TensorMapSpec("x", bfloat16, ("n",), ("1",), (64,), 128),
        ),
        AbiParameter("workspace", "w", size_expression="n * 4", zeroed=True),
    )
    abi = LaunchAbi(
        entry=f"kernel_{name}",
        parameters=parameters,
        num_threads=128,
        shared_bytes=1024,
        cluster=(2, 1, 1),
        grid_kind="persistent",
        tma_ok="n % 8 == 0",
        writes=("x",),
    )
    targets = ("sm_80", "sm_90a", PTX)
    own = replace(abi, num_threads=384, tma_ok="n > 0")
    return Entry(
        kernel="tilewright.kernels.softmax.softmax",
        family="softmax",
        signature="(x:*f32) fast num_warps=4 num_stages=3",
        abi=abi,
        blobs={
            **{target: blob(name, target) for target in targets},
            f"sm_90a{OWN_SCHEDULE}": replace(blob(name, "sm_90a"), abi=own),
        },
    )


def record(name: str) -> KernelRecord:
    return KernelRecord(
        digest=sha256(name),
        files={"tilewright/kernels/softmax.py": sha256("file")},
        captures={"tilewright.kernels.softmax:tl.exp": "function exp"},
        outline=(("kernel 0 softmax: name", "0" * 16),),
    )


def manifest(entries: int = 3, kernels: int = 2) -> Manifest:
    return Manifest(
        version="0.1.0",
        kernels={f"pkg.kernels.k{i}": record(str(i)) for i in range(kernels)},
        entries={sha256(str(i)): entry(str(i)) for i in range(entries)},
    )


def test_what_waits_by_itself_is_launched_so() -> None:
    found = entry("a")
    waits = {name: found.abi_of(each).waits for name, each in found.blobs.items()}
    assert waits == {"sm_80": False, "sm_90a": True, PTX: False, f"sm_90a{OWN_SCHEDULE}": True}


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    written = manifest()
    write_manifest(tmp_path / "manifest.json", written)
    found = read_manifest(tmp_path / "manifest.json")
    assert dict(found.entries) == dict(written.entries)
    assert dict(found.kernels) == dict(written.kernels)
    (key, *_) = written.entries
    by_key = {
        name: found.entries[key].abi_of(blob) for name, blob in found.entries[key].blobs.items()
    }
    assert by_key.pop(f"sm_90a{OWN_SCHEDULE}").num_threads == 384
    assert by_key.pop("sm_90a") == replace(found.entries[key].abi, waits=True)
    assert set(by_key.values()) == {found.entries[key].abi}
    assert (found.version, found.abi_version, found.schema) == ("0.1.0", 1, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@given(st.sets(st.text(max_size=6), max_size=9), st.text(max_size=6))
@settings(max_examples=150)
def test_lookup_finds_exactly_the_keys_that_exist(names: set[str], other: str) -> None:
    written = Manifest(version="1", entries={}, kernels={name: record(name) for name in names})
    found = Manifest.from_bytes(written.to_bytes())
    assert {name: found.kernels[name] for name in names} == dict(written.kernels)
    assert set(found.kernels) == names
    assert len(found.kernels) == len(names)
    assert (other in found.kernels) is (other in names)
    assert found.entries.get(other) is None


def test_bytes_do_not_depend_on_order() -> None:
    one = manifest()
    other = dataclasses.replace(
        one,
        entries=dict(reversed(list(one.entries.items()))),
        kernels=dict(reversed(list(one.kernels.items()))),
    )
    assert one.to_bytes() == other.to_bytes()


def test_reading_and_writing_again_gives_the_same_bytes() -> None:
    data = manifest().to_bytes()
    assert Manifest.from_bytes(data).to_bytes() == data


def test_it_is_one_json_document() -> None:
    document = json.loads(manifest().to_bytes())
    assert document["version"] == "0.1.0"
    assert document["toolchains"] == ["ptxas-3", "ptxas-5", "ptxas-6"]
    check, first = document["entry_records"][sha256("0")]
    assert len(check) == 16
    assert first["blobs"]["sm_90a"]["validated"] == ["nvidia-h200"]


def test_opening_and_one_lookup_parse_next_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_manifest(path, manifest(entries=5000, kernels=300))
    # 2 ms against 150 ms where this was written; compared, because machines differ and are shared.
    assert min(seconds(look_up, path) for _ in range(5)) * 10 < seconds(parse_all, path)


def look_up(path: Path) -> None:
    assert read_manifest(path).entries[sha256("4321")].abi.entry == "kernel_4321"


def parse_all(path: Path) -> None:
    assert json.loads(path.read_bytes())["entry_records"][sha256("4321")]


def seconds(function: Callable[[Path], None], path: Path) -> float:
    start = time.perf_counter()
    function(path)
    return time.perf_counter() - start


# Versions and damage


def changed_header(data: bytes | None = None, /, **values: object) -> bytes:
    first, _, rest = (data or manifest().to_bytes()).partition(b"\n")
    header = {**json.loads(first + b"}}"), **values}
    del header["kernel_records"], header["check"]
    header["check"] = hashlib.sha256(dump(header)).hexdigest()[:16]
    return dump(header)[:-1] + b',"kernel_records":{\n' + rest


def dump(header: dict[str, object]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def test_the_unchanged_header_is_accepted() -> None:
    assert changed_header() == manifest().to_bytes()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"schema": 1}, "m.json has schema 1, this library reads 3: bundle and library are of two"),
        ({"schema": None}, "has schema None"),
        ({"abi": 7}, "m.json has launch ABI 7, this library launches 1: bundle and library are of"),
        ({"entry_bytes": -1}, "entry_bytes is -1"),
        ({"entry_bytes": "9"}, "entry_bytes is '9'"),
        ({"kernel_bytes": 1}, "is not whole"),
        ({"entry_bytes": 10**15}, "is not whole"),
        ({"toolchains": None}, "is not whole"),
    ],
)
def test_another_version_or_a_lying_header_is_refused(
    values: dict[str, object], reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        Manifest.from_bytes(changed_header(**values), origin="m.json")


def test_every_flipped_bit_of_the_header_is_refused() -> None:
    data = manifest().to_bytes()
    for place in range(data.index(b"\n") + 1):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises(FormatError):
                Manifest.from_bytes(bytes(changed))


def test_verifying_finds_a_damaged_key_that_no_lookup_sees(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_manifest(path, manifest())
    verify_manifest(path)
    start = f'"{sha256("1")}":['.encode()
    path.write_bytes(path.read_bytes().replace(start, start.replace(b"6", b"Z", 1), 1))
    assert sha256("1") not in read_manifest(path).entries
    with pytest.raises(FormatError, match="is damaged: its records have sha256"):
        verify_manifest(path)


@pytest.mark.parametrize("old", [b'":["', b'"', b"\n"])
def test_damaged_keys_are_listed_and_cannot_be_read(old: bytes) -> None:
    data = bytearray(manifest().to_bytes())
    place = data.index(old, data.index(b"entry_records") + 90)
    data[place] ^= 0x80
    found = Manifest.from_bytes(bytes(data))
    read = 0
    for key in found.entries:
        with contextlib.suppress(FormatError, KeyError):
            assert found.entries[key] == entry("0") or found.entries[key].kernel
            read += 1
    assert 0 < read < 3


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_and_keeps_nobody_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "manifest.json"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(FormatError, match="it is no file"):
        read_manifest(path)


def test_every_truncation_is_refused() -> None:
    data = manifest().to_bytes()
    for size in range(len(data)):
        with pytest.raises(FormatError):
            Manifest.from_bytes(data[:size])


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"{}\n", b"[" * 100_000 + b"\n", b"\xff\xfe\n", b"7\n", bytes(4000), b"null\n"],
    ids=["empty", "line", "object", "deep", "not text", "number", "zeros", "null"],
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="not a manifest"):
        Manifest.from_bytes(data)


def test_a_missing_file_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        read_manifest(tmp_path / "manifest.json")


@given(st.data())
@settings(max_examples=200)
def test_no_flipped_bit_in_a_record_gives_another_record(data: st.DataObject) -> None:
    written = manifest()
    content = bytearray(written.to_bytes())
    start = content.index(b"\n") + 1
    position = data.draw(st.integers(start, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 6))
    wanted = {**written.kernels, **written.entries}
    try:
        found = Manifest.from_bytes(bytes(content))
    except FormatError:
        return
    for key, expected in wanted.items():
        records = found.kernels if key in written.kernels else found.entries
        try:
            assert records[key] == expected
        except (FormatError, KeyError):
            continue


def test_a_changed_digit_in_a_launch_abi_is_named() -> None:
    data = manifest().to_bytes().replace(b'"threads":128', b'"threads":256')
    found = Manifest.from_bytes(data, origin="m.json")
    key = sha256("0")
    with pytest.raises(FormatError, match=f"record {key} of m.json is damaged; install"):
        found.entries[key]


def test_a_record_under_another_key_is_damaged() -> None:
    one, other = sha256("0"), sha256("1")
    data = manifest().to_bytes().replace(one.encode(), b"?").replace(other.encode(), one.encode())
    data = data.replace(b"?", other.encode())
    found = Manifest.from_bytes(data)
    with pytest.raises((FormatError, KeyError)):
        found.entries[one]


def test_a_record_that_lacks_a_field_is_a_format_error() -> None:
    document = manifest()
    text = document.to_bytes()
    key = sha256("2")
    line = next(line for line in text.splitlines() if line.startswith(b'"' + key.encode()))
    body = line.removesuffix(b",")[len(key) + 23 : -1].replace(b'"family":"softmax",', b"")
    check = hashlib.sha256(b'"' + key.encode() + b'"' + body).hexdigest()[:16].encode()
    bare = b'"' + key.encode() + b'":["' + check + b'",' + body + b"]"
    shorter = len(line.removesuffix(b",")) - len(bare)
    changed = text.replace(line.removesuffix(b","), bare)
    size = json.loads(text)["entry_bytes"]
    changed = changed_header(changed, entry_bytes=size - shorter)
    with pytest.raises(FormatError, match="lacks a field or has a wrong one: KeyError"):
        Manifest.from_bytes(changed).entries[key]
