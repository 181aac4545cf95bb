from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.fake_driver import run_program
from helpers.small_checkout import SmallCheckout
from tilewright.errors import ReleaseError, UsageError
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
    assert main(words) == UsageError.exit_code
    assert "no signature of kernels.py:square contains 'f64'" in capsys.readouterr().err


def test_an_error_gives_its_exit_code_and_names_the_command(
    small: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(small.root), "show", "cube"]) == UsageError.exit_code == 2
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
        *("bundle-kernels", "build-wheel", "check-wheel", "coverage", "sign", "release-check"),
        *("audit", "verify", "show", "why"),
    ):
        assert command in text


_KERNEL = """
import tilewright.language as tl
@tl.kernel
def fill(out, n, value, BLOCK: tl.constexpr = 32, NAME: tl.constexpr = None):
    lanes = tl.arange(0, BLOCK)
    tl.static_assert(NAME != "wrong")
    tl.store(out + lanes, value, mask=lanes < n)
"""


def test_a_kernel_that_no_file_declares_is_shown_for_given_types(
    small: SmallCheckout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(_KERNEL)
    words = ["--root", str(small.root), "show", f"{path}:fill"]
    types = ["--types", "out=*f32", "n=i64", "value=f32", "NAME=right"]
    assert main([*words, *types, "--general", "--num-warps", "2"]) == 0
    shown = capsys.readouterr().out
    assert "(out:*f32, n:i64, value:f32, BLOCK=32, NAME='right') general num_warps=2" in shown
    assert "store" in shown
    assert main([*words, *types, "--list"]) == 0
    assert "fast num_warps=4 num_stages=3" in capsys.readouterr().out


def test_a_kernel_of_a_file_may_import_what_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beside_it.py").write_text("SIZE = 32\n")
    path = tmp_path / "mine.py"
    path.write_text(_KERNEL.replace("import tilewright", "import beside_it\nimport tilewright", 1))
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["show", f"{path}:fill", "--types", "out=*f32", "n=i64", "value=f32"]
    assert main(words) == 0
    assert "kernel @fill" in capsys.readouterr().out
    assert main([*words, "--num-warps", "3"]) == UsageError.exit_code
    assert "--num-warps is 3" in capsys.readouterr().err
    assert main([*words, "n=i32"]) == UsageError.exit_code
    assert "--types gives n twice, i64 and i32" in capsys.readouterr().err


def test_a_kernel_of_a_file_without_types_asks_for_them(
    small: SmallCheckout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(_KERNEL)
    monkeypatch.chdir(tmp_path)
    for root in ([], ["--root", str(small.root)]):
        assert main([*root, "show", f"{path}:fill"]) == UsageError.exit_code
        assert "as in FILE.py:NAME --types x=*f32" in capsys.readouterr().err
    assert main(["show", str(path), "--types", "out=*f32"]) == UsageError.exit_code
    assert "names no kernel of a file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--cache", "--output"])
def test_what_is_no_folder_is_told(
    bundled: SmallCheckout, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--root", str(bundled.root), "bundle-kernels", "--cache", str(bundled.cache)]
    assert main([*words, option, "/dev/null"]) == ReleaseError.exit_code
    assert "/dev/null" in capsys.readouterr().err


def test_an_empty_word_names_no_folder(small: SmallCheckout) -> None:
    for option in ("--cache", "--output"):
        with pytest.raises(SystemExit) as caught:
            main(["--root", str(small.root), "bundle-kernels", option, ""])
        assert caught.value.code == 2


@pytest.mark.parametrize(
    ("types", "says"),
    [
        (["out=*f32", "n=i64"], "--types gives value of fill nothing"),
        (["out=*f33", "n=i64", "value=f32"], "--types gives out of fill *f33"),
        (["out=*f32", "n=i64", "value=f32", "m=i64"], "--types names m"),
    ],
)
def test_types_that_do_not_fit_the_kernel_are_wrong_usage(
    types: list[str],
    says: str,
    small: SmallCheckout,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text(_KERNEL)
    words = ["--root", str(small.root), "show", f"{tmp_path / 'mine.py'}:fill", "--types", *types]
    assert main(words) == UsageError.exit_code
    assert says in capsys.readouterr().err


def test_a_malformed_target_is_wrong_usage(
    small: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--root", str(small.root), "show", "square", "--target", "hopper"])
    assert caught.value.code == 2
    assert "'hopper' is not of the form sm_NN" in capsys.readouterr().err


# As in an environment with the wheel and without the extra `dev`.
_WITHOUT_DEV = """
import sys
from importlib.machinery import PathFinder
class Without:
    def find_spec(name, path=None, target=None):
        if name in ("elftools", "auditwheel", "build", "ziglang"):
            return None
        return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from tilewright.cli.main import main
sys.exit(main(["dev", "--root", {root!r}, *{words!r}]))
"""


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["show", "square", "--stage", "source"], 0, "values * values"),
        (["check-wheel", "some.whl"], 5, "pip install 'tilewright[dev]'"),
        (["build-wheel"], 5, "pip install 'tilewright[dev]'"),
    ],
)
def test_the_extra_is_needed_for_wheels_alone_and_named(
    small: SmallCheckout, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    limits = small.checkout.wheel_limits
    limits.parent.mkdir(exist_ok=True)
    limits.write_bytes((Path(__file__).parents[2] / "wheels" / "limits.toml").read_bytes())
    program = _WITHOUT_DEV.format(root=str(small.root), words=words)
    done = run_program(program, tmp_path)
    assert (done.code, "Traceback" in done.errors) == (code, False), done.errors
    assert text in done.output + done.errors
