"""The jobs of a CI matrix build a shard each, and their merge is the bundle of one machine."""

from __future__ import annotations

import io
import shutil
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from helpers.small_checkout import ENTRIES, SmallCheckout
from tilewright.errors import ReleaseError
from tilewright_release.bundle import bundle_kernels
from tilewright_release.main import main
from tilewright_release.shards import Shard, share_of


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2", "1.0/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no shard; it is I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 11])
def test_every_item_is_in_exactly_one_shard(count: int) -> None:
    items = list(range(10))
    shares = [share_of(Shard(index, count), items) for index in range(1, count + 1)]
    assert sorted(item for share in shares for item in share) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _build_shards(small: SmallCheckout, indices: tuple[int, ...]) -> list[str]:
    folders = []
    for index in indices:
        # A machine each: only the folder that --output names is carried on.
        cache = small.root / f"cache-{index}"
        folder = small.root / f"carried-{index}"
        words = ["--shard", f"{index}/2", "--jobs", "1", "--cache", str(cache)]
        root = ["--root", str(small.root)]
        assert main([*root, "bundle-kernels", *words, "--output", str(folder)]) == 0
        shutil.rmtree(cache)
        folders.append(str(folder))
    return folders


def test_merged_shards_are_the_same_bundle(
    small: SmallCheckout, bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = _build_shards(small, (1, 2))
    assert f"shard 1/2: {(ENTRIES + 1) // 2} entries in " in capsys.readouterr().out
    words = ["bundle-kernels", "--cache", str(small.cache), "--merge", *folders]
    assert main(["--root", str(small.root), *words]) == 0
    assert f"{ENTRIES} entries (0 built, {ENTRIES} reused)" in capsys.readouterr().out
    assert _contents(small.checkout.bundle) == _contents(bundled.checkout.bundle)


def test_what_is_in_no_shard_is_listed_and_not_built(small: SmallCheckout) -> None:
    (folder,) = _build_shards(small, (2,))
    with pytest.raises(ReleaseError, match=r"entries are in no shard \(3\)") as caught:
        bundle_kernels(
            small.checkout,
            output=small.checkout.bundle,
            cache=small.cache,
            jobs=1,
            stream=io.StringIO(),
            shards=[Path(folder)],
        )
    assert "kernels.py:double (x:*f32" in str(caught.value)
    assert not small.checkout.bundle.exists()
