"""The command line, as a user runs it: messages on stderr, exit codes, no tracebacks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import sample_kernels
from helpers.bundles import PACK
from helpers.fake_driver import Finished, run_program, run_with_fake_driver
from helpers.launches import write_sample_bundle
from tilewright.abi.manifest import read_manifest, write_manifest

_CLI = "import sys\nfrom tilewright.cli.main import main\nsys.exit(main({words!r}))\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write_sample_bundle(folder)
    return folder


def _run(folder: Path, *words: str, **environment: str) -> Finished:
    return run_program(_CLI.format(words=list(words)), folder, **environment)


def test_explain_works_without_gpu_and_driver(bundle: Path, tmp_path: Path) -> None:
    words = ("explain", "add", "--gpu", "8.6")
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle), TILEWRIGHT_JIT="off")
    assert done.code == 0, done.errors
    # 24 signatures share one decision, which is told once.
    assert done.output.splitlines() == [
        "assuming a driver for CUDA 13.0",
        "",
        "helpers.sample_kernels.add",
        "  8.6 (driver 13.0): family sm_80 for all 24 signatures",
        "    24 signatures (12 fast, 12 general): family sm_80, then ptx",
        "      - prebuilt sm_100f: does not run on compute capability 8.6",
        "      - prebuilt sm_120f: does not run on compute capability 8.6",
        "      - prebuilt sm_90a: does not run on compute capability 8.6",
        "      + family sm_80: sm_80 also runs on 8.6",
        "      - cached: not asked, since a bundle has the kernel",
        "      - compile: TILEWRIGHT_JIT=off forbids the compiler",
        "      + ptx: the driver assembles the portable text",
        "        family sm_80: driver for CUDA 12.0 or newer, 0 of 101376 bytes of shared memory, "
        "validated on no GPU",
        "        ptx: driver for CUDA 11.0 or newer, 0 of 101376 bytes of shared memory, validated "
        "on no GPU",
    ]


def test_explain_lists_signatures_when_asked(bundle: Path, tmp_path: Path) -> None:
    words = ("explain", "strided", "--all", "--driver", "12.4")
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.output.startswith("helpers.sample_kernels.strided\n")
    assert "assuming" not in done.output
    assert done.output.count("row_stride:i64:16s, column_stride:i64:us") == 6


@pytest.mark.parametrize(("driver", "chosen"), [("12.0", "prebuilt sm_90a"), ("11.8", "ptx")])
def test_explain_finds_a_copy_of_a_bundled_file(
    bundle: Path, tmp_path: Path, driver: str, chosen: str
) -> None:
    copy = tmp_path / "mine.py"
    copy.write_text(Path(sample_kernels.__file__).read_text())
    words = ("explain", f"{copy}:add", "--gpu", "9.0", "--driver", driver)
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle), TILEWRIGHT_JIT="off")
    assert done.code == 0, done.errors
    expected = f"mine.add\n  9.0 (driver {driver}): {chosen} for all 24 signatures\n"
    assert done.output.startswith(expected)


def test_explain_tells_kernels_of_one_name_apart(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle / "manifest.json")
    entries = {
        key: replace(entry, kernel=entry.kernel.replace("sample_kernels.mixed", "other.add"))
        for key, entry in manifest.entries.items()
    }
    folder = tmp_path / "twins"
    folder.mkdir()
    write_manifest(folder / "manifest.json", replace(manifest, entries=entries))
    words = ("explain", "add", "--driver", "13.0")
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(folder))
    assert done.output.startswith("2 bundled kernels are called 'add'")
    assert "\n\nhelpers.other.add\n" in done.output
    assert "\n\nhelpers.sample_kernels.add\n" in done.output


def test_explain_json_holds_every_decision(bundle: Path, tmp_path: Path) -> None:
    done = _run(
        tmp_path,
        *("explain", "helpers.sample_kernels:strided", "--json"),
        *("--gpu", "9.0", "--driver", "12.4"),
        TILEWRIGHT_BUNDLE_PATH=str(bundle),
        TILEWRIGHT_JIT="off",
    )
    assert done.code == 0, done.errors
    decisions = json.loads(done.output)["decisions"]
    assert len(decisions) == 2
    assert all(decision["driver"] == 12040 for decision in decisions)
    assert [(c["origin"], c["target"]) for c in decisions[0]["candidates"]] == [
        ("prebuilt", "sm_90a"),
        ("ptx", "ptx"),
    ]
    first = decisions[0]["candidates"][0]
    assert {name: first[name] for name in ("bundle", "min_driver", "shared_bytes")} == {
        "bundle": str(bundle),
        "min_driver": 12000,
        "shared_bytes": 0,
    }
    assert first["validated"] == []
    assert decisions[0]["shared_bytes"] == 232448
    assert {decision["specialization"] for decision in decisions} == {"fast", "general"}
    assert {
        "candidate": "compile",
        "accepted": False,
        "reason": "TILEWRIGHT_JIT=off forbids the compiler",
    } in decisions[0]["trace"]


def test_explain_shows_one_gpu_of_each_kind_when_none_is_here(bundle: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "explain", "strided", TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 0
    assert "10.3 (driver 13.0): family sm_100f" in done.output


def test_explain_takes_this_machines_gpu(bundle: Path, tmp_path: Path) -> None:
    done = run_with_fake_driver(
        _CLI.format(words=["explain", "strided"]),
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(bundle),
        FAKE_CUDA_DEVICES="12.1",
    )
    assert "12.1 (driver 12.8): family sm_120f" in done.output


def test_an_unserved_gpu_is_an_exit_code(bundle: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "explain", "add", "--gpu", "7.5", TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 8
    assert "7.5 (driver 13.0): nothing can run here" in done.output


def test_a_kernel_in_no_bundle_is_explained(bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import tilewright.language as tl\n\n\n@tl.kernel\ndef fill(x):\n    tl.store(x, 1.0)\n"
    )
    words = ("explain", f"{source}:fill", "--gpu", "9.0")
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 0, done.errors
    assert "it is in no bundle" in done.output
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle), TILEWRIGHT_JIT="off")
    assert "its launches on a GPU are errors: TILEWRIGHT_JIT=off" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("explain", "nothing"), "no bundled kernel is called 'nothing'; bundled are: "),
        (("explain", "ad"), "no bundled kernel is called 'ad'; did you mean 'add'?"),
        (("explain", "no.module:k"), "there is no module 'no.module'"),
        (("explain", "missing.py:k"), "there is no file 'missing.py'"),
        (("explain", "helpers.sample_kernels:tl"), "it has: add, mixed, strided"),
        (("explain", "add", "--gpu", "nine"), "is not of the form MAJOR.MINOR"),
        (("explain", "add", "--gpu", "9"), "is not of the form MAJOR.MINOR"),
        (("explain", "broken.py:k"), "cannot be imported: SyntaxError"),
        (("explain", ":k"), "'' is no name of a module; write MODULE:KERNEL"),
        (("explain", "..:k"), "'..' is no name of a module"),
        (("explain", "add", "--gpu", "9.²"), "is not of the form MAJOR.MINOR"),
        (("explain", "add", "--driver", "12.²"), "is not a CUDA version such as 12.4"),
        (("explain", "add", "--driver", "r580"), "is not a CUDA version such as 12.4"),
    ],
)
def test_wrong_words_give_a_message_and_no_traceback(
    bundle: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "broken.py").write_text("def k(:\n")
    words = tuple(word.replace("broken.py", str(tmp_path / "broken.py")) for word in words)
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 2
    assert done.errors.startswith("tilewright: ")
    assert message in done.errors
    assert "Traceback" not in done.errors


def test_help_and_usage(tmp_path: Path) -> None:
    assert "explain" in _run(tmp_path, "--help").output
    assert "--gpu CC" in _run(tmp_path, "explain", "--help").output
    assert _run(tmp_path, "--version").output.startswith("tilewright ")
    for words in ((), ("unknown",), ("doctor", "--no-such")):
        done = _run(tmp_path, *words)
        assert done.code == 2
        assert "usage" in done.errors


def test_dev_is_handed_over_with_its_words(tmp_path: Path) -> None:
    done = _run(tmp_path, "dev", "--help")
    assert done.code == 0
    assert "bundle-kernels" in done.output


def test_doctor_checks_every_blob(bundle: Path, tmp_path: Path) -> None:
    done = run_with_fake_driver(
        _CLI.format(words=["doctor"]), tmp_path, TILEWRIGHT_BUNDLE_PATH=str(bundle)
    )
    assert "Fake GPU 9.0, compute capability 9.0, 132 multiprocessors" in done.output
    assert "blobs checked: 140" in done.output  # 28 signatures, 5 targets
    assert done.output.endswith("everything is in order\n")


def test_doctor_without_driver_is_content(bundle: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "doctor", "--json", TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 0, done.errors
    report = json.loads(done.output)
    assert "no CUDA driver" in report["driver"]["state"]
    assert "tilewright doctor" not in done.output
    assert report["settings"]["TILEWRIGHT_BUNDLE_PATH"] == str(bundle)
    assert report["exit_code"] == 0


def test_doctor_prints_settings_as_they_are_set(bundle: Path, tmp_path: Path) -> None:
    settings = {"TILEWRIGHT_BUNDLE_PATH": str(bundle), "TILEWRIGHT_TRACE": "resolve,launch"}
    done = _run(tmp_path, "doctor", TILEWRIGHT_JIT="off", TILEWRIGHT_CACHE_DIR="off", **settings)
    lines = done.output.splitlines()
    assert "  TILEWRIGHT_JIT = off" in lines
    assert "  TILEWRIGHT_PTX = on" in lines
    assert "  TILEWRIGHT_CACHE_DIR = off" in lines
    assert "  TILEWRIGHT_TRACE = launch,resolve" in lines
    assert f"  TILEWRIGHT_BUNDLE_PATH = {bundle}" in lines
    assert "  CUDA_FORCE_PTX_JIT = unset" in lines
    assert "Settings(" not in done.output
    assert "PosixPath" not in done.output
    # Once as a setting, once as the bundle that is checked.
    assert done.output.count(str(bundle)) == 2


# As a plain checkout without the compiler's tools.
_BARE = """
import sys
from tilewright.runtime import jit, store
jit.why_unavailable = lambda: "the compiler's tools are not installed: x"
store.bundles = lambda: ()
from tilewright.cli.main import main
sys.exit(main(["doctor"]))
"""


def test_doctor_names_the_remedy_when_nothing_can_run(tmp_path: Path) -> None:
    done = run_program(_BARE, tmp_path)
    assert done.code == 8, done.errors
    (fault,) = [line for line in done.output.splitlines() if "FAULT" in line]
    assert "pip install 'tilewright[compiler]'" in fault
    assert "is compiled when used" not in done.output


@pytest.mark.parametrize("damage", ["pack zeroed", "pack missing", "record changed", "cut"])
def test_doctor_reports_damage(bundle: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    files = {file.name: file.read_bytes() for file in bundle.iterdir()}
    match damage:
        case "pack zeroed":
            files[PACK] = files[PACK][:-400] + bytes(400)
        case "pack missing":
            del files[PACK]
        case "record changed":
            files["manifest.json"] = files["manifest.json"].replace(
                b'"threads":128', b'"threads":256'
            )
        case "cut":
            files["manifest.json"] = files["manifest.json"][:-100]
    for name, data in files.items():
        (copy / name).write_bytes(data)
    done = _run(tmp_path, "doctor", TILEWRIGHT_BUNDLE_PATH=str(copy))
    assert done.code == 6
    assert "FAULT: " in done.output
    assert "Traceback" not in done.errors


def test_doctor_reports_a_damaged_cache(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "ab"
    folder.mkdir(parents=True)
    (folder / "abcd.twk").write_bytes(b"TWCACHE1 and nothing else")
    done = _run(tmp_path, "doctor", TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 6
    assert "is damaged" in done.output


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    done = _run(tmp_path, "doctor", TILEWRIGHT_JIT="maybe")
    assert done.code == 10
    assert "TILEWRIGHT_JIT='maybe' is not allowed" in done.errors
