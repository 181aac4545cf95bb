"""A good wheel passes every check, and each accident fails the check that is there for it."""

from __future__ import annotations

import dataclasses
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.small_checkout import ROOT
from helpers.wheels import change_wheel, compile_extension
from tilewright.abi.pack import write_pack
from tilewright.errors import FormatError, ReleaseError
from tilewright_release.check_wheel import check_wheel, growth
from tilewright_release.checkout import Checkout
from tilewright_release.wheel_extension import beyond_stable_abi, read_extension
from tilewright_release.wheel_file import WheelFile, WheelLimits, read_limits

# One process builds the wheels that all of these tests look at.
pytestmark = pytest.mark.xdist_group("wheels")

_LAUNCHER = "tilewright/runtime/_launcher.abi3.so"
_MANIFEST = "tilewright/_prebuilt/manifest.json"
_LICENCES = "tilewright-0.1.0.dist-info/licenses"


@pytest.fixture(scope="session")
def limits() -> WheelLimits:
    return read_limits(ROOT / "wheels" / "limits.toml")


def test_a_good_wheel_passes(
    wheel: Path, sources: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    check_wheel(wheel, sources, python=Path(sys.executable))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"checking {wheel.name}"
    assert [line.split(":")[0] for line in lines[1:]] == [
        f"  ok    {name}"
        for name in (
            *("tags", "size", "RECORD", "install", "licences", "extension", "build paths"),
            *(
                "syntax",
                "bundle",
                "provenance",
                "SBOM",
                "import",
                "first launch",
                "blobs",
                "resolution",
            ),
        )
    ]
    assert "9.0 sm_90a" in lines[-1]


def test_the_table_covers_every_compute_capability_asked_for(limits: WheelLimits) -> None:
    every = (
        "7.5",
        "8.0",
        "8.6",
        "8.7",
        "8.9",
        "9.0",
        "10.0",
        "10.3",
        "11.0",
        "12.0",
        "12.1",
        "13.0",
    )
    assert list(limits.resolution) == ["12.0", "12.8", "13.0"]
    for table in limits.resolution.values():
        assert set(every) <= set(table)


def test_a_wheel_for_another_processor_passes_here(
    foreign_wheel: Path, wheel: Path, sources: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    check_wheel(foreign_wheel, sources, python=Path(sys.executable))
    out = capsys.readouterr().out
    assert "FAIL" not in out
    assert "needs libc.so.6" in out
    own, foreign = WheelFile(wheel).contents, WheelFile(foreign_wheel).contents
    # The bundle is for GPUs alone, so it is the same, byte for byte.
    differing = {name.rpartition("/")[2] for name in own if own[name] != foreign[name]}
    told_apart = {"WHEEL", "RECORD", "provenance.json", "tilewright.spdx.json"}
    assert differing == {"_launcher.abi3.so", *told_apart}


def test_all_failures_are_shown_in_one_run(
    wheel: Path, sources: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = change_wheel(wheel, tmp_path, {f"{_LICENCES}/NOTICE": None, _MANIFEST: None})
    with pytest.raises(
        ReleaseError, match="licences; bundle; provenance; SBOM; first launch; blobs; resolution"
    ):
        check_wheel(bad, sources, python=Path(sys.executable))
    assert "FAIL  bundle: the wheel has no tilewright/_prebuilt/manifest.json" in (
        capsys.readouterr().out
    )


def test_an_import_or_launch_that_starts_a_process_fails(
    wheel: Path, sources: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = WheelFile(wheel).contents
    init, launch = "tilewright/__init__.py", "tilewright/tensor/elementwise.py"
    start = b"\nimport numpy, subprocess\nsubprocess.run(['/bin/true'])\n"
    write = b"\nopen('/tmp/tilewright-left-behind', 'w').close()\n"
    changes = {init: contents[init] + start, launch: contents[launch] + write}
    bad = change_wheel(wheel, tmp_path, changes)
    with pytest.raises(ReleaseError, match="SBOM; import; first launch"):
        check_wheel(bad, sources, python=Path(sys.executable))
    out = capsys.readouterr().out
    assert "import loads numpy and does subprocess.Popen" in out
    assert "open for writing '/tmp/tilewright-left-behind'" in out


def test_a_gpu_that_gets_another_blob_fails(
    wheel: Path, sources: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without cubins for Hopper, its row of the table and the launch on it are other ones.
    manifest = WheelFile(wheel).manifest()
    entries = {
        key: dataclasses.replace(
            entry, blobs={name: b for name, b in entry.blobs.items() if name != "sm_90a"}
        )
        for key, entry in manifest.entries.items()
    }
    kernels = {name: manifest.kernels[name] for name in manifest.kernels}
    changed = dataclasses.replace(manifest, entries=entries, kernels=kernels)
    bad = change_wheel(wheel, tmp_path, {_MANIFEST: changed.to_bytes()})
    with pytest.raises(ReleaseError, match="provenance; SBOM; first launch; resolution"):
        check_wheel(bad, sources, python=Path(sys.executable))
    out = capsys.readouterr().out
    assert "9.0 with a driver for 12.0 gets {'ptx': 7}, not sm_90a" in out
    assert "not by prebuilt sm_90a" in out


Change = Callable[[WheelFile], dict[str, bytes | None]]


def _flip_pack(file: WheelFile) -> dict[str, bytes | None]:
    name = next(name for name in file.contents if name.endswith(".pack"))
    data = bytearray(file.contents[name])
    data[-10] ^= 1
    return {name: bytes(data)}


def _lose_pack(file: WheelFile) -> dict[str, bytes | None]:
    return {next(name for name in file.contents if name.endswith(".pack")): None}


def _swap_targets(file: WheelFile) -> dict[str, bytes | None]:
    # Two blobs exchange their names: every sha256 still fits, and the cubins are for other GPUs.
    manifest = file.manifest()
    entries = {}
    for key, entry in manifest.entries.items():
        blobs = dict(entry.blobs)
        blobs["sm_80"], blobs["sm_90a"] = blobs["sm_90a"], blobs["sm_80"]
        entries[key] = dataclasses.replace(entry, blobs=blobs)
    kernels = {name: manifest.kernels[name] for name in manifest.kernels}
    changed = dataclasses.replace(manifest, entries=entries, kernels=kernels)
    return {_MANIFEST: changed.to_bytes()}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_flip_pack, "is damaged"),
        (_lose_pack, "not in the wheel"),
        (_swap_targets, "a cubin is not what the manifest says"),
        (lambda file: {_MANIFEST: file.contents[_MANIFEST][:-5]}, "is not whole"),
    ],
    ids=["flipped bit", "lost pack", "swapped targets", "cut manifest"],
)
def test_a_damaged_bundle(wheel: Path, tmp_path: Path, change: Change, problem: str) -> None:
    file = WheelFile(wheel)
    assert "7 entries, 35 blobs in 10 packs" in file.check_bundle()
    bad = WheelFile(change_wheel(wheel, tmp_path, change(file)))
    with pytest.raises((ReleaseError, FormatError), match=problem):
        bad.check_bundle()


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("tilewright/errors.py", b"changed", "another hash or size for tilewright/errors.py"),
        ("tilewright/errors.py", None, r"RECORD and contents differ: \['tilewright/errors.py'\]"),
        ("tilewright/new.py", b"", r"RECORD and contents differ: \['tilewright/new.py'\]"),
    ],
    ids=["changed", "lost", "added"],
)
def test_record_must_fit(
    wheel: Path, tmp_path: Path, name: str, data: bytes | None, problem: str
) -> None:
    bad = WheelFile(change_wheel(wheel, tmp_path, {name: data}, record=False))
    with pytest.raises(ReleaseError, match=problem):
        bad.check_record()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("manylinux_2_28", "manylinux_2_17", "file name says cp311-abi3-manylinux_2_17"),
        ("x86_64", "riscv64", "expected cp311-abi3-manylinux_2_28_MACHINE with a machine of"),
        ("x86_64", "aarch64", "WHEEL says"),
        ("-0.1.0-", "-0.2.0-", "is tilewright-0.1.0 by its METADATA"),
        ("tilewright-", "tilewrong-", "is tilewright-0.1.0 by its METADATA"),
    ],
    ids=["older glibc", "unknown machine", "other machine", "other version", "other name"],
)
def test_a_renamed_wheel_is_told(
    wheel: Path, tmp_path: Path, limits: WheelLimits, old: str, new: str, problem: str
) -> None:
    name = wheel.name.replace(old, new)
    with pytest.raises(ReleaseError, match=problem):
        WheelFile(change_wheel(wheel, tmp_path, {}, name=name)).check_tags(limits)


@pytest.mark.parametrize(
    ("file", "data", "problem"),
    [
        ("LICENSE", None, "licence file LICENSE is missing or empty"),
        ("NOTICE", b" \n", "licence file NOTICE is missing or empty"),
        ("THIRD_PARTY_NOTICES.md", b"none", "does not name libdevice"),
    ],
)
def test_licences_must_be_there(
    wheel: Path,
    tmp_path: Path,
    limits: WheelLimits,
    file: str,
    data: bytes | None,
    problem: str,
) -> None:
    bad = WheelFile(change_wheel(wheel, tmp_path, {f"{_LICENCES}/{file}": data}))
    with pytest.raises(ReleaseError, match=problem):
        bad.check_licences(limits)


def test_the_extension_must_be_portable(wheel: Path, tmp_path: Path, limits: WheelLimits) -> None:
    file = WheelFile(wheel)
    assert "needs libc.so.6" in file.check_extension(limits)
    strict = dataclasses.replace(limits, glibc=(2, 5))
    with pytest.raises(ReleaseError, match=r"needs GLIBC_2\.\d+, the tag allows 2\.5"):
        file.check_extension(strict)
    with pytest.raises(ReleaseError, match=r"needs .*libdl\.so\.2; allowed: libc\.so\.6"):
        file.check_extension(dataclasses.replace(limits, needed=("libc.so.6",)))
    data = file.contents[_LAUNCHER]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    name = f"tilewright/runtime/_launcher{suffix}"
    renamed = WheelFile(change_wheel(wheel, tmp_path, {_LAUNCHER: None, name: data}))
    with pytest.raises(ReleaseError, match="is for one Python version"):
        renamed.check_extension(limits)
    second = WheelFile(change_wheel(wheel, tmp_path, {name: data}))
    with pytest.raises(ReleaseError, match="exactly one extension, it has 2"):
        second.check_extension(limits)


def test_the_extension_must_be_for_the_machine_of_the_wheel(
    wheel: Path, foreign_wheel: Path, tmp_path: Path, limits: WheelLimits
) -> None:
    launcher = WheelFile(foreign_wheel).contents[_LAUNCHER]
    assert read_extension(launcher, _LAUNCHER).machine == "EM_AARCH64"
    bad = WheelFile(change_wheel(wheel, tmp_path, {_LAUNCHER: launcher}))
    with pytest.raises(ReleaseError, match="is for EM_AARCH64, the wheel is for x86_64"):
        bad.check_extension(limits)
    bad = WheelFile(change_wheel(wheel, tmp_path, {_LAUNCHER: b"\x7fELF no more"}))
    with pytest.raises(ReleaseError, match="is no ELF file"):
        bad.check_extension(limits)


def test_the_extension_may_start_nothing_search_nowhere_and_name_no_folder(
    wheel: Path, tmp_path: Path, limits: WheelLimits
) -> None:
    source = 'int system(const char *); int launch(void) { return system("ptxas"); }'
    flags = ("-O1", "-g", "-Wl,-rpath,/opt/cuda/lib64")
    built = compile_extension(tmp_path, source, *flags, glibc="2.28")
    bad = WheelFile(change_wheel(wheel, tmp_path, {_LAUNCHER: built}))
    with pytest.raises(ReleaseError) as caught:
        bad.check_extension(limits)
    for problem in (
        "calls system: a launch starts nothing",
        "searches libraries in /opt/cuda/lib64",
        "has debug information",
    ):
        assert problem in str(caught.value)


def test_only_the_stable_abi_of_the_tag_is_used(
    wheel: Path, tmp_path: Path, limits: WheelLimits
) -> None:
    # The first is of no stable ABI, the second of that of 3.13; the third is as old as Python 3.
    source = (
        "void *PyUnicode_AsUTF8(void *), *PyDict_GetItemRef(void *), *PyLong_FromLong(long);\n"
        "void *f(void *x)\n"
        "{ return PyUnicode_AsUTF8(PyDict_GetItemRef(x)) ? PyLong_FromLong(1) : 0; }"
    )
    built = compile_extension(tmp_path, source, "-O1", "-s", glibc="2.28")
    undefined = read_extension(built, _LAUNCHER).undefined
    assert beyond_stable_abi(undefined, (3, 11)) == ["PyDict_GetItemRef", "PyUnicode_AsUTF8"]
    bad = WheelFile(change_wheel(wheel, tmp_path, {_LAUNCHER: built}))
    with pytest.raises(
        ReleaseError,
        match=r"uses PyDict_GetItemRef, PyUnicode_AsUTF8, not in the stable ABI of 3\.11",
    ):
        bad.check_extension(limits)


def test_a_symbol_of_a_newer_glibc_is_told(
    wheel: Path, tmp_path: Path, limits: WheelLimits
) -> None:
    source = (
        "void arc4random_buf(void *, unsigned long); void seed(void *p) { arc4random_buf(p, 8); }"
    )
    built = compile_extension(tmp_path, source, "-O1", "-s", glibc="2.36")
    bad = WheelFile(change_wheel(wheel, tmp_path, {_LAUNCHER: built}))
    with pytest.raises(ReleaseError, match=r"needs GLIBC_2\.36, the tag allows 2\.28"):
        bad.check_extension(limits)
    with pytest.raises(ReleaseError, match="auditwheel finds"):
        bad.check_tags(limits)


def test_no_build_path_may_remain(wheel: Path, tmp_path: Path) -> None:
    folder = Path("/home/builder/tilewright")
    assert "none of" in WheelFile(wheel).check_paths([folder])
    text = b'FILE = "/home/builder/tilewright/x.py"'
    bad = WheelFile(change_wheel(wheel, tmp_path, {"tilewright/errors.py": text}))
    with pytest.raises(ReleaseError, match=r"tilewright/errors\.py holds /home/builder/"):
        bad.check_paths([folder])


def test_no_build_path_may_remain_inside_a_pack(wheel: Path, tmp_path: Path) -> None:
    folder = Path("/home/builder/tilewright")
    blob = b'.file 1 "/home/builder/tilewright/kernels.py"'
    write_pack(tmp_path / "some.pack", [blob * 100])
    data = (tmp_path / "some.pack").read_bytes()
    bad = WheelFile(change_wheel(wheel, tmp_path, {"tilewright/_prebuilt/some.pack": data}))
    with pytest.raises(ReleaseError, match=r"some\.pack/[0-9a-f]{64} holds /home/builder"):
        bad.check_paths([folder])


@pytest.mark.parametrize(
    "text",
    [b"def first[T](values: list[T]) -> T: ...", b"def f(:", b"x = 1\0"],
    ids=["of a later Python", "no Python", "null"],
)
def test_every_module_is_for_the_oldest_python(wheel: Path, tmp_path: Path, text: bytes) -> None:
    bad = WheelFile(change_wheel(wheel, tmp_path, {"tilewright/errors.py": text}))
    with pytest.raises(ReleaseError, match=r"tilewright/errors\.py is no Python 3\.11"):
        bad.check_syntax()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("evil.pth", r"installs evil\.pth, .* without scripts and \.pth files"),
        ("tilewright-0.1.0.data/scripts/tilewright", r"tilewright-0\.1\.0\.data, "),
        ("../outside.py", r"installs \.\., "),
        ("/etc/profile.d/x.sh", "installs , "),
        ("numpy/__init__.py", "installs numpy, "),
    ],
    ids=["pth", "script", "parent folder", "root folder", "foreign package"],
)
def test_nothing_else_is_installed(
    wheel: Path, tmp_path: Path, limits: WheelLimits, name: str, problem: str
) -> None:
    assert "tilewright_release" in WheelFile(wheel).check_install(limits)
    bad = WheelFile(change_wheel(wheel, tmp_path, {name: b"import os"}))
    with pytest.raises(ReleaseError, match=problem):
        bad.check_install(limits)


def test_no_other_command_is_installed(wheel: Path, tmp_path: Path, limits: WheelLimits) -> None:
    name = "tilewright-0.1.0.dist-info/entry_points.txt"
    points = WheelFile(wheel).contents[name]
    bad = WheelFile(change_wheel(wheel, tmp_path, {name: points + b"python=os:abort\n"}))
    with pytest.raises(ReleaseError, match="not the command line alone"):
        bad.check_install(limits)


def test_a_file_that_is_there_twice_is_told(wheel: Path, tmp_path: Path) -> None:
    bad = change_wheel(wheel, tmp_path, {})
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(bad, "a") as archive,
    ):
        archive.writestr("tilewright/errors.py", b"other")
    with pytest.raises(ReleaseError, match=r"holds tilewright/errors\.py more than once"):
        WheelFile(bad)


def test_growth_is_told_by_part(wheel: Path, tmp_path: Path) -> None:
    file = WheelFile(wheel)
    parts = file.parts()
    assert list(parts) == sorted(
        ["launcher", "manifest", "ptx", "sm_100f", "sm_120f", "sm_80", "sm_90a", "the rest"]
    )
    assert sum(parts.values()) == sum(map(len, file.contents.values()))
    pack = next(name for name in file.contents if "-sm_80-" in name)
    grown = change_wheel(wheel, tmp_path, {pack: file.contents[pack] + bytes(5000)})
    lines = growth(file, WheelFile(grown)).splitlines()
    assert lines[0] == f"since {wheel.name}, in kB:"
    assert {line.split()[0]: line.split()[-1] for line in lines[1:]}["sm_80"] == "+5"


def test_size_is_limited(wheel: Path, limits: WheelLimits) -> None:
    assert "sm_90a 0." in WheelFile(wheel).check_size(limits)
    with pytest.raises(ReleaseError, match="the limit is 1000: launcher "):
        WheelFile(wheel).check_size(dataclasses.replace(limits, max_bytes=1000))


def test_what_is_no_wheel_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(ReleaseError, match=r"x\.whl cannot be read as a wheel"):
        WheelFile(path)
