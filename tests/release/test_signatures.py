from __future__ import annotations

import pytest

from helpers.small_checkout import SmallCheckout
from tilewright.abi.dtypes import float16, float32, int64
from tilewright.abi.signature import Constexpr, Pointer, Scalar
from tilewright.errors import FormatError, UsageError
from tilewright_release.signatures import load_kernel, read_signatures, select_entries

_FILE = "prebuilt/signatures/small.toml"


def test_every_combination_is_an_entry(small: SmallCheckout) -> None:
    entries = read_signatures(small.checkout)
    assert [
        (e.kernel.name, dict(e.signature.parameters)["x"], e.signature.specialization)
        for e in entries
    ] == [
        ("double", Pointer(float32, aligned=True), "fast"),
        ("double", Pointer(float32), "general"),
        ("double", Pointer(float16, aligned=True), "fast"),
        ("double", Pointer(float16), "general"),
        ("square", Pointer(float32), "general"),
    ]
    assert entries[0].signature.num_warps == 1
    assert entries[0].signature.num_stages == 3
    assert dict(entries[1].signature.parameters) == {
        "x": Pointer(float32),
        "out": Pointer(float32),
        "n": Scalar(int64),
        "BLOCK": Constexpr(128),
    }
    assert len({entry.source_key for entry in entries}) == len(entries)


def test_kernel_of_a_file_is_named_by_its_path(small: SmallCheckout) -> None:
    assert read_signatures(small.checkout)[0].kernel.qualified_name == "kernels.double"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('family = "small"', 'family = "big"', "family is 'big', but the file is named small"),
        ('kernel = "kernels.py:double"', "", r"kernel[0].kernel is missing"),
        ("py:double", "py:triple", "kernel[0].kernel cannot be used"),
        ("py:double", "py:triple", "it has double, square"),
        ("kernels.py:double", "absent.py:double", "absent.py does not exist"),
        ("kernels.py:double", "tilewright.absent:double", "No module named 'tilewright.absent'"),
        ("kernels.py:double", "double", "is not of the form package.module:name"),
        ('["f32", "f16"]', '["f32", "f17"]', "kernel[0].dtypes.T has dtype 'f17'; known are"),
        ('x = "*T", out', 'y = "*T", out', "are y, out, n, but kernels.py:double has x, out, n"),
        ('out = "*T"', 'out = "*U"', "kernel[0].parameters.out has type '*U'"),
        ("{ BLOCK = 128 }", "{ BLOK = 128 }", "constexprs name BLOK, but the constexpr parameters"),
        ("{ BLOCK = 128 }", "{}", "constexprs name nothing"),
        ('["f32", "f16"]', "[]", "kernel[0].dtypes.T is empty: that would drop the kernel"),
        ('["general"]', '["exact"]', "kernel[1].config[0].specializations has 'exact'"),
        ("num_warps = 1", "num_warp = 1", "config[0].num_warp is not a key that is known here"),
        ("num_warps = 1", 'num_warps = "1"', "config[0].num_warps must be an integer"),
    ],
)
def test_errors_name_file_and_key(small: SmallCheckout, old: str, new: str, problem: str) -> None:
    small.replace(_FILE, old, new)
    with pytest.raises(FormatError) as caught:
        read_signatures(small.checkout)
    assert str(small.root / _FILE) in str(caught.value)
    assert problem in str(caught.value)


def test_a_file_that_is_not_utf8_is_named(small: SmallCheckout) -> None:
    path = small.root / _FILE
    path.write_bytes(b"# f\xfcr\n" + path.read_bytes())
    with pytest.raises(FormatError, match=r"small\.toml is not valid TOML, which is UTF-8"):
        read_signatures(small.checkout)


def test_a_list_of_values_adds_an_entry_for_each(small: SmallCheckout) -> None:
    before = read_signatures(small.checkout)
    small.replace(_FILE, "{ BLOCK = 128 }", "{ BLOCK = [64, 128] }")
    found = read_signatures(small.checkout)
    assert len(found) == len(before) + 4  # two dtypes, two specializations
    assert {str(entry.signature) for entry in before} < {str(entry.signature) for entry in found}


def test_another_config_adds_entries(small: SmallCheckout) -> None:
    second = "[[kernel.config]]\nconstexprs = { BLOCK = 128 }\nnum_warps = 4\n"
    small.replace(_FILE, "num_warps = 1\n", f"num_warps = 1\n{second}")
    assert len(read_signatures(small.checkout)) == 9


def test_the_same_signature_twice_is_an_error(small: SmallCheckout) -> None:
    config = "[[kernel.config]]\nconstexprs = { BLOCK = 128 }\nnum_warps = 1\n"
    small.replace(_FILE, config, config * 2)
    with pytest.raises(FormatError, match=r"kernel\[0\]\.config declares kernels\.py:double twice"):
        read_signatures(small.checkout)


def test_no_signatures_is_an_error(small: SmallCheckout) -> None:
    (small.root / _FILE).unlink()
    with pytest.raises(FormatError, match="signatures declares no kernel"):
        read_signatures(small.checkout)


def test_unsupported_targets_come_from_kernel_and_config(small: SmallCheckout) -> None:
    small.replace(_FILE, "num_warps = 2", 'num_warps = 2\nunsupported = { sm_80 = "too big" }')
    entries = read_signatures(small.checkout)
    assert [entry.unsupported for entry in entries[-2:]] == [(), (("sm_80", "too big"),)]


def test_library_kernels_are_imported(small: SmallCheckout) -> None:
    kernel = load_kernel("tilewright.kernels.softmax:softmax", root=small.root)
    assert kernel.qualified_name == "tilewright.kernels.softmax.softmax"


@pytest.mark.parametrize("name", ["square", "kernels.square", "kernels.py:square"])
def test_a_kernel_is_selected_by_any_of_its_names(small: SmallCheckout, name: str) -> None:
    (entry,) = select_entries(read_signatures(small.checkout), name)
    assert entry.kernel.name == "square"


def test_an_unknown_name_lists_the_kernels(small: SmallCheckout) -> None:
    with pytest.raises(UsageError, match=r"name one of kernels\.py:double, kernels\.py:square"):
        select_entries(read_signatures(small.checkout), "cube")


@pytest.mark.parametrize(
    ("line", "message"),
    [("num_warps = 3", "1, 2, 4, 8, 16 or 32 warps"), ("specializations = []", "is empty")],
)
def test_configurations_that_could_not_be_launched_are_refused(
    small: SmallCheckout, line: str, message: str
) -> None:
    file = small.checkout.root / _FILE
    text = file.read_text()
    if line.startswith("num_warps"):
        text = text.replace("num_warps = 1", line, 1)
    else:
        text = text.replace("[[kernel.config]]\n", f"[[kernel.config]]\n{line}\n", 1)
    file.write_text(text)
    with pytest.raises(FormatError, match=message):
        read_signatures(small.checkout)


def _with_configurations(small: SmallCheckout) -> None:
    """Let a launch choose the block of `double`."""
    configs = "[tl.Config({'BLOCK': 64}, num_warps=2), tl.Config({'BLOCK': 256}, 8, 4)]"
    source = (small.root / "kernels.py").read_text()
    place = source.index("@tl.kernel")
    (small.root / "kernels.py").write_text(
        f"{source[:place]}@tl.autotune(configs={configs}, key=['n'])\n{source[place:]}"
    )


def test_each_configuration_of_a_tuned_kernel_is_an_entry(small: SmallCheckout) -> None:
    _with_configurations(small)
    small.replace(_FILE, "{ BLOCK = 128 }", "{}")
    small.replace(_FILE, "num_warps = 1", "")
    signatures = [
        entry.signature
        for entry in read_signatures(small.checkout)
        if entry.kernel.name == "double"
    ]
    assert len(signatures) == 2 * 4
    chosen = {
        (s.constexprs["BLOCK"], s.num_warps, s.num_stages, s.specialization) for s in signatures
    }
    assert chosen == {
        (block, warps, stages, specialization)
        for block, warps, stages in ((64, 2, 3), (256, 8, 4))
        for specialization in ("fast", "general")
    }


def test_a_file_does_not_say_what_configurations_do(small: SmallCheckout) -> None:
    _with_configurations(small)
    with pytest.raises(FormatError, match=r"name BLOCK, but .* of its configurations"):
        read_signatures(small.checkout)
    small.replace(_FILE, "{ BLOCK = 128 }", "{}")
    with pytest.raises(FormatError, match="num_warps is for the configurations"):
        read_signatures(small.checkout)
