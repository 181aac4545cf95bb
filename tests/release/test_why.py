from __future__ import annotations

import dataclasses

import pytest

from helpers.small_checkout import SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright_compiler import toolchain
from tilewright_release.main import main
from tilewright_release.signatures import read_signatures, select_entries
from tilewright_release.why import explain_key


def _why(small: SmallCheckout, kernel: str) -> str:
    manifest = read_manifest(small.checkout.bundle / "manifest.json")
    return explain_key(select_entries(read_signatures(small.checkout), kernel), manifest)


def test_an_unchanged_kernel(bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(bundled.root), "why", "double"]) == 0
    assert capsys.readouterr().out == "kernels.double: all 4 entries are as they were bundled\n"


def test_a_comment_is_no_change(bundled: SmallCheckout) -> None:
    bundled.replace("kernels.py", "@tl.kernel\n", "# a comment\n@tl.kernel\n")
    assert _why(bundled, "square").endswith("as they were bundled")


def test_a_changed_statement_is_shown(bundled: SmallCheckout) -> None:
    bundled.replace("kernels.py", "values * values", "values - values")
    text = _why(bundled, "square")
    assert text.startswith("kernels.square changed since the bundle was made:\n  kernel 0 square")
    assert "Sub" in text


def test_a_new_signature_is_told_from_a_change(bundled: SmallCheckout) -> None:
    bundled.replace("prebuilt/signatures/small.toml", '"f16"', '"f16", "bf16"')
    assert "but 2 of 6 declared signatures are new, such as (x:*bf16:16" in _why(bundled, "double")


def test_a_changed_compiler_is_told(
    bundled: SmallCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "compiler_fingerprint", lambda: "another compiler")
    assert _why(bundled, "double").endswith("but the compiler changed")


def test_a_kernel_that_is_not_bundled(bundled: SmallCheckout) -> None:
    manifest = read_manifest(bundled.checkout.bundle / "manifest.json")
    kernels = {name: manifest.kernels[name] for name in manifest.kernels if "double" not in name}
    entries = select_entries(read_signatures(bundled.checkout), "double")
    assert (
        explain_key(entries, dataclasses.replace(manifest, kernels=kernels))
        == "kernels.double is not in the bundle"
    )
