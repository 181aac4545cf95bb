"""A recorded digest is believed only while everything it came from is the same."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tilewright.language as tl
from helpers.written_kernel import written_kernel
from tilewright.abi import keys
from tilewright.language import Kernel, provenance
from tilewright.language.provenance import is_unchanged, kernel_record, module_file

HELPERS = """\
import tilewright.language as tl

SCALE = tl.constexpr(2.0)


@tl.kernel
def helper(x, low=0):
    return x * SCALE + low
"""
KERNELS = """\
import tilewright.language as tl
from . import helpers
from .helpers import helper

DIVISIBLE = ("n",)


@tl.kernel(divisible=DIVISIBLE)
def main(x, n, BLOCK: tl.constexpr = 64):
    tl.store(x + tl.arange(0, BLOCK), helper(max(n, 1)) + helpers.SCALE)


def make():
    @tl.kernel
    def nested(x):
        tl.store(x, 1)

    return nested
"""


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name,
        path,
        submodule_search_locations=[str(path.parent)] if path.stem == "__init__" else None,
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path: Path) -> Iterator[ModuleType]:
    """Yield the kernels of a package on disk: `provenance_pkg.kernels`, which uses `.helpers`."""
    for name, text in (("__init__", ""), ("helpers", HELPERS), ("kernels", KERNELS)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    parent = load("provenance_pkg", tmp_path / "__init__.py")
    parent.helpers = load("provenance_pkg.helpers", tmp_path / "helpers.py")  # type: ignore[attr-defined]
    provenance._file_digest.cache_clear()
    yield load("provenance_pkg.kernels", tmp_path / "kernels.py")
    for name in ("", ".helpers", ".kernels"):
        sys.modules.pop(f"provenance_pkg{name}")
    provenance._file_digest.cache_clear()


def edit(module: ModuleType, old: str, new: str) -> None:
    path = Path(str(module.__file__))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    provenance._file_digest.cache_clear()


def test_what_is_recorded(package: ModuleType) -> None:
    record = kernel_record(package.main)
    assert record.digest == package.main.digest
    assert list(record.files) == ["provenance_pkg/kernels.py", "provenance_pkg/helpers.py"]
    assert record.captures["provenance_pkg.kernels:helpers.SCALE"] == "float 0x1.0000000000000p+1"
    assert record.captures["provenance_pkg.kernels:tl.store"] == "function store"
    assert record.captures["provenance_pkg.kernels:max"] == "builtin max"
    assert record.captures["provenance_pkg.kernels:main"] == (
        "kernel provenance_pkg.kernels.main(x, n, BLOCK:=int 64) divisible=('n',) unit=()"
    )
    assert record.outline == keys.field_digests(package.main.fields)


def test_an_unchanged_kernel_is_known_without_parsing(package: ModuleType) -> None:
    record = kernel_record(package.main)
    again = load("provenance_pkg.kernels", Path(str(package.__file__)))
    assert is_unchanged(again.main, record)
    assert "tree" not in vars(again.main)
    assert "references" not in vars(again.main)


@pytest.mark.parametrize("which", ["kernels", "helpers"])
def test_any_changed_byte_of_a_file_is_noticed(package: ModuleType, which: str) -> None:
    record = kernel_record(package.main)
    edit(sys.modules[f"provenance_pkg.{which}"], "import tilewright", "#\nimport tilewright")
    assert not is_unchanged(package.main, record)


def test_a_missing_file_is_noticed(package: ModuleType) -> None:
    record = kernel_record(package.main)
    Path(str(package.__file__)).unlink()
    provenance._file_digest.cache_clear()
    assert not is_unchanged(package.main, record)


def test_a_constant_that_came_out_otherwise_is_noticed(package: ModuleType) -> None:
    record = kernel_record(package.main)
    helpers = sys.modules["provenance_pkg.helpers"]
    helpers.SCALE = tl.constexpr(3.0)  # type: ignore[attr-defined]
    assert not is_unchanged(package.main, record)


def test_another_kernel_under_the_name_is_noticed(package: ModuleType) -> None:
    record = kernel_record(package.main)
    vars(package)["helper"] = written_kernel(HELPERS, module="elsewhere")
    assert not is_unchanged(package.main, record)


def test_another_rule_or_default_is_noticed(package: ModuleType) -> None:
    record = kernel_record(package.main)
    vars(package)["main"] = tl.kernel(package.main.fn)
    assert not is_unchanged(package.main, record)


def test_a_shadowed_builtin_is_noticed(package: ModuleType) -> None:
    record = kernel_record(package.main)
    vars(package)["max"] = tl.maximum
    assert not is_unchanged(package.main, record)


def test_a_kernel_made_in_a_function_is_always_parsed(package: ModuleType) -> None:
    nested: Kernel = package.make()
    record = kernel_record(nested)
    assert record.digest == nested.digest
    assert record.files == {}
    assert not is_unchanged(nested, record)
    stolen = dataclasses.replace(kernel_record(package.main), digest=nested.digest)
    assert not is_unchanged(nested, stolen)


def test_module_files() -> None:
    assert module_file("tilewright.kernels.rows") == "tilewright/kernels/rows.py"
    assert module_file("tilewright.language") == "tilewright/language/__init__.py"
