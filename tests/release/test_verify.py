from __future__ import annotations

import dataclasses

import pytest

from helpers.small_checkout import SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright.errors import ReleaseError
from tilewright_release.main import main
from tilewright_release.verify import differences, rebuild


def test_a_rebuild_with_other_hash_seeds_gives_the_same_bytes(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(bundled.root), "verify", "--sample", "1"]) == 0
    assert capsys.readouterr().out == "verify: 1 entries, 5 blobs built 2 times: same bytes\n"


def test_other_bytes_are_named(bundled: SmallCheckout) -> None:
    entries = read_manifest(bundled.checkout.bundle / "manifest.json").entries
    key = sorted(entries)[0]
    entry = entries[key]
    blob = dataclasses.replace(entry.blobs["sm_90a"], sha256="0" * 64)
    changed = dataclasses.replace(entry, blobs={**entry.blobs, "sm_90a": blob})
    digests = {target: blob.sha256 for target, blob in entry.blobs.items()}
    assert differences({key: entry}, {key: digests}) == []
    (problem,) = differences({key: changed}, {key: digests})
    assert problem == (
        f"{entry.kernel} {entry.signature} for sm_90a: bundled {'0' * 64}, "
        f"rebuilt {digests['sm_90a']}"
    )


def test_an_entry_that_is_gone_is_an_error(bundled: SmallCheckout) -> None:
    with pytest.raises(ReleaseError, match="which is not declared any more; bundle again"):
        rebuild(bundled.checkout, ["0" * 64])
