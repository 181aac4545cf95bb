from __future__ import annotations

from pathlib import Path

import pytest

from helpers.small_checkout import SmallCheckout
from tilewright.errors import FormatError, ReleaseError
from tilewright_release.checkout import find_checkout
from tilewright_release.main import main


def test_the_stages_of_a_declared_kernel_are_shown(
    small: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(small.root), "show", "square", "--stage", "source"]) == 0
    assert "values * values" in capsys.readouterr().out
    assert main(["--root", str(small.root), "show", "double", "--signature", "*f16", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["--root", str(small.root), "show", "square", "--stage", "tile"]) == 0
    assert "kernel @square(%x: ptr<f32>" in capsys.readouterr().out


def test_a_signature_that_is_not_there_lists_those_that_are(
    small: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--root", str(small.root), "show", "square", "--signature", "f64"]
    assert main(words) == ReleaseError.exit_code
    assert "no signature of kernels.py:square contains 'f64'" in capsys.readouterr().err


def test_an_error_gives_its_exit_code_and_names_the_command(
    small: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(small.root), "show", "cube"]) == FormatError.exit_code
    assert capsys.readouterr().err.startswith("tilewright dev show: 'cube' names 0 declared")


def test_a_checkout_is_found_from_inside_it(small: SmallCheckout, tmp_path: Path) -> None:
    assert find_checkout(small.root / "prebuilt" / "signatures") == small.checkout
    with pytest.raises(ReleaseError, match="is in no checkout of Tilewright"):
        find_checkout(tmp_path)


def test_every_command_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for command in (
        *("bundle-kernels", "build-wheel", "check-wheel", "coverage"),
        *("audit", "verify", "show", "why"),
    ):
        assert command in text
