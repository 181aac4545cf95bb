"""The command line, as a user runs it: messages on stderr, exit codes, no tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.bundles import PACK
from helpers.fake_driver import Finished, run_program, run_with_fake_driver
from helpers.launches import write_sample_bundle

_CLI = "import sys\nfrom tilewright.cli.main import main\nsys.exit(main({words!r}))\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write_sample_bundle(folder)
    return folder


def _run(folder: Path, *words: str, **environment: str) -> Finished:
    return run_program(_CLI.format(words=list(words)), folder, **environment)


def test_explain_works_without_gpu_and_driver(bundle: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "explain", "strided", "--gpu", "8.6", TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code == 0, done.errors
    assert done.output.startswith("helpers.sample_kernels.strided\n")
    assert "row_stride:i64:16s, column_stride:i64:us" in done.output
    assert "8.6 (driver 13.0): family sm_80, then" in done.output
    assert "+ family sm_80: sm_80 also runs on 8.6" in done.output
    assert "- prebuilt sm_90a: does not run on compute capability 8.6" in done.output


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
    assert decisions[0]["candidates"] == [
        {"origin": "prebuilt", "target": "sm_90a"},
        {"origin": "ptx", "target": "ptx"},
    ]
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("explain", "nothing"), "no bundled kernel is called 'nothing'"),
        (("explain", "no.module:k"), "there is no module 'no.module'"),
        (("explain", "missing.py:k"), "there is no file 'missing.py'"),
        (("explain", "helpers.sample_kernels:tl"), "it has: add, mixed, strided"),
        (("explain", "add", "--gpu", "nine"), "is not of the form MAJOR.MINOR"),
        (("explain", "add", "--gpu", "9"), "is not of the form MAJOR.MINOR"),
        (("explain", "add", "--driver", "r580"), "is not a CUDA version such as 12.4"),
    ],
)
def test_wrong_words_give_a_message_and_no_traceback(
    bundle: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = _run(tmp_path, *words, TILEWRIGHT_BUNDLE_PATH=str(bundle))
    assert done.code not in (0, 255)
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
    assert report["exit_code"] == 0


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
