from __future__ import annotations

import json
from collections import Counter

import pytest

from helpers.small_checkout import SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright.errors import ReleaseError
from tilewright_compiler import toolchain
from tilewright_release import coverage
from tilewright_release.coverage import read_coverage
from tilewright_release.main import main
from tilewright_release.validated import ValidatedGpu

_SIGNATURES = "prebuilt/signatures/small.toml"


def _states(small: SmallCheckout) -> Counter[str]:
    cells = read_coverage(small.checkout, bundle=small.checkout.bundle)
    return Counter(cell.state for cell in cells)


def test_a_fresh_bundle_covers_everything(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _states(bundled) == {"present": 25}
    assert main(["--root", str(bundled.root), "coverage"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["family", "sm_80", "sm_90a", "sm_100f", "sm_120f", "ptx"]
    assert row.split() == ["small", *["5", "present"] * 5]


def test_a_changed_kernel_is_stale(bundled: SmallCheckout) -> None:
    bundled.replace("kernels.py", "values * values", "values + values")
    assert _states(bundled) == {"present": 20, "stale": 5}


def test_a_changed_compiler_makes_all_stale(
    bundled: SmallCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "compiler_fingerprint", lambda: "another compiler")
    assert _states(bundled) == {"stale": 25}


def test_a_new_signature_is_missing(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    bundled.replace(_SIGNATURES, '"f16"', '"f16", "bf16"')
    assert _states(bundled) == {"present": 25, "missing": 10}
    assert main(["--root", str(bundled.root), "coverage"]) == ReleaseError.exit_code
    assert "10 of 35 blobs are missing or stale, such as kernels.double" in capsys.readouterr().err


def test_a_pack_that_is_gone_or_damaged_covers_nothing(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = sorted(bundled.checkout.bundle.glob("*.pack"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-9])
    assert _states(bundled) == {"present": 15, "missing": 10}
    assert main(["--root", str(bundled.root), "coverage"]) == ReleaseError.exit_code
    assert f"{second.name} is not a usable pack" in capsys.readouterr().err
    assert main(["--root", str(bundled.root), "verify", "--sample", "1"]) == ReleaseError.exit_code
    assert first.name in (said := capsys.readouterr().err)
    assert second.name in said


def test_an_unsupported_target_that_is_none_is_refused(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    bundled.replace(_SIGNATURES, "num_warps = 2", 'num_warps = 2\nunsupported = { sm_99 = "no" }')
    words = ["--root", str(bundled.root), "bundle-kernels", "--cache", str(bundled.cache)]
    assert main(words) == ReleaseError.exit_code
    assert "kernels.py:square for sm_99" in capsys.readouterr().err


def test_an_unsupported_target_has_its_reason(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    bundled.replace(_SIGNATURES, "num_warps = 2", 'num_warps = 2\nunsupported = { sm_80 = "no" }')
    assert _states(bundled) == {"present": 24, "unsupported": 1}
    assert main(["--root", str(bundled.root), "coverage", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    assert [cell for cell in cells if cell["state"] == "unsupported"] == [
        {
            "family": "small",
            "kernel": "kernels.square",
            "signature": cells[-1]["signature"],
            "target": "sm_80",
            "state": "unsupported",
            "reason": "no",
            "validated": [],
        }
    ]
    assert coverage.format_coverage([]).strip() == "family"
    long = coverage.Cell("a" * 30, "k", "s", "sm_80", "present", "", ("NVIDIA H200",))
    other = coverage.Cell("b", "k", "s", "sm_80", "missing", "", ())
    # Each column is as wide as its longest cell, and two more.
    columns = [("family", "sm_80"), ("a" * 30, "1 present, 1 validated"), ("b", "1 missing")]
    lines = [family.ljust(32) + states.rjust(24) for family, states in columns]
    assert coverage.format_coverage([long, other]).splitlines() == lines


def test_what_ran_on_a_gpu_is_validated_there(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = read_manifest(bundled.checkout.bundle / "manifest.json").entries
    blobs = [entries[key].blobs["sm_90a"].sha256 for key in sorted(entries)[:2]]
    record = ValidatedGpu(
        gpu="NVIDIA H200",
        compute_capability="9.0",
        driver=13000,
        date="2026-01-02",
        version="0.0.1",
        declared=5,
        failed=0,
        skipped={},
        blobs=tuple(blobs),
    )
    bundled.write("prebuilt/validated/nvidia-h200.json", record.to_json())
    cells = read_coverage(bundled.checkout, bundle=bundled.checkout.bundle)
    assert {cell.target for cell in cells if cell.validated == ("NVIDIA H200",)} == {"sm_90a"}
    assert sum(bool(cell.validated) for cell in cells) == 2
    assert main(["--root", str(bundled.root), "coverage"]) == 0
    assert "5 present, 2 validated" in capsys.readouterr().out
    # The next bundle records it, with the same packs.
    packs = sorted(path.name for path in bundled.checkout.bundle.glob("*.pack"))
    words = ["bundle-kernels", "--cache", str(bundled.cache)]
    assert main(["--root", str(bundled.root), *words]) == 0
    assert sorted(path.name for path in bundled.checkout.bundle.glob("*.pack")) == packs
    entries = read_manifest(bundled.checkout.bundle / "manifest.json").entries
    recorded = [
        blob.sha256 for key in entries for blob in entries[key].blobs.values() if blob.validated
    ]
    assert sorted(recorded) == sorted(blobs)
