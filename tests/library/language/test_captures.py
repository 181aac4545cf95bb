"""What a kernel may take from outside, how names resolve, and what each refusal says."""

from __future__ import annotations

import types
from typing import Any

import pytest

import tilewright.language as tl
from helpers.written_kernel import written_kernel
from tilewright.errors import KernelNameError
from tilewright.language import Kernel
from tilewright.language.captures import free_names, is_constexpr_annotation, look_up

PRELUDE = "import tilewright.language as tl\n"


def kernel_of(body: str, *, before: str = "", parameters: str = "x") -> Kernel:
    return written_kernel(f"{PRELUDE}{before}\n@tl.kernel\ndef f({parameters}):\n    {body}\n")


def refusal(body: str, *, before: str = "") -> KernelNameError:
    kernel = kernel_of(body, before=before)
    with pytest.raises(KernelNameError) as caught:
        _ = kernel.captures
    return caught.value


def test_references_in_order_of_appearance() -> None:
    kernel = kernel_of("tl.store(x, tl.exp(float(WIDTH)))", before="WIDTH = tl.constexpr(8)")
    assert list(kernel.references) == ["tl.store", "tl.exp", "float", "WIDTH"]
    assert kernel.references["tl.exp"] is tl.exp
    assert kernel.references["float"] is float
    assert list(kernel.captures) == ["tl", "float", "WIDTH"]
    assert kernel.captures["tl"] is tl
    assert kernel.captures["WIDTH"].value == 8  # type: ignore[union-attr]  # it is a constexpr


def test_parameters_and_assigned_names_are_the_kernel_s_own() -> None:
    body = "y, (z, w) = x, (x, x)\n    for i in range(x):\n        z += i\n    v: int = w"
    assert list(kernel_of(body).references) == ["range"]


def test_annotations_defaults_and_decorators_are_not_the_kernel_s() -> None:
    kernel = kernel_of("y: SomeType = x", parameters="x: 'Unknown' = 1")
    assert dict(kernel.references) == {}


def test_a_local_constexpr_annotation_is_seen() -> None:
    assert kernel_of("y: tl.constexpr = 1").references == {"tl.constexpr": tl.constexpr}
    assert kernel_of("y: 'tl.constexpr' = 1").references == {"tl.constexpr": tl.constexpr}


def test_a_constexpr_annotation_by_an_unknown_name_captures_nothing() -> None:
    kernel = kernel_of("y: elsewhere.constexpr = 1")
    assert dict(kernel.references) == {"elsewhere.constexpr": tl.constexpr}
    assert dict(kernel.captures) == {}


def test_modules_are_followed_to_what_they_hold() -> None:
    rows = types.ModuleType("rows")
    helper = written_kernel(f"{PRELUDE}@tl.kernel\ndef helper(x): return x\n")
    rows.helper = helper  # type: ignore[attr-defined]
    package = types.ModuleType("package")
    package.rows = rows  # type: ignore[attr-defined]
    kernel = kernel_of("tl.store(x, package.rows.helper(x.dtype.name))")
    kernel.fn.__globals__["package"] = package
    assert kernel.references["package.rows.helper"] is helper
    assert kernel.captures["package"] is package
    assert kernel.closure() == (kernel, helper)


def test_an_annotated_constexpr_is_found_in_globals_and_through_modules() -> None:
    before = "import types\nWIDTH: tl.constexpr = 8\nm = types.ModuleType('m')\nm.tl = tl\n"
    before += "m.DEPTH = 3\nm.__annotations__ = {'DEPTH': 'tl.constexpr', 'x': 'missing.thing'}\n"
    kernel = kernel_of("tl.store(x, WIDTH + m.DEPTH)", before=before)
    values = {
        name: getattr(kernel.references[name], "value", None) for name in ("WIDTH", "m.DEPTH")
    }
    assert values == {"WIDTH": 8, "m.DEPTH": 3}


@pytest.mark.parametrize("fails", [False, True])
def test_annotations_that_python_computes_late_are_asked_for(fails: bool) -> None:
    # How Python 3.14 keeps the annotations of a module.
    def annotate(form: int) -> dict[str, object]:
        if fails:
            msg = "only a type checker knows this"
            raise NameError(msg)
        return {"WIDTH": tl.constexpr} if form == 1 else {}

    kernel = kernel_of("tl.store(x, WIDTH)", before="WIDTH = 8")
    kernel.fn.__globals__["__annotate__"] = annotate
    kernel.fn.__globals__.pop("__annotations__", None)
    found = look_up(kernel.fn, "WIDTH")
    assert isinstance(found, int if fails else tl.constexpr)


def test_closures_come_before_globals_before_builtins() -> None:
    text = f"""{PRELUDE}
max = tl.constexpr(1)
WIDTH = tl.constexpr(2)
def make():
    WIDTH = tl.constexpr(3)
    @tl.kernel
    def f(x): tl.store(x, WIDTH + max + min(x, x))
    return f
f = make()
"""
    captures = written_kernel(text).captures
    assert [getattr(captures[name], "value", None) for name in ("WIDTH", "max")] == [3, 1]
    assert captures["min"] is min


def test_an_object_of_the_same_name_is_not_the_language_s() -> None:
    error = refusal("tl.store(x, exp(x))", before="def exp(x): return x")
    assert "`exp` is a Python function that the tile language does not know" in error.message


def test_a_free_name_carries_its_attributes() -> None:
    kernel = kernel_of("tl.store(x, x.a.b + tl.c.d(x).e[tl.f])")
    paths = [name.path for name in free_names(kernel.tree)]
    assert paths == [("tl", "store"), ("tl", "c", "d"), ("tl", "f")]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (tl.constexpr, True),
        ("tl.constexpr", True),
        ("'tl.constexpr'", True),
        ("elsewhere.constexpr", True),
        ("tl.Tile", False),
        ("elsewhere.Tile", False),
        ("int", False),
        (int, False),
        (None, False),
        (types.SimpleNamespace(__forward_arg__="tl.constexpr"), True),
    ],
)
def test_constexpr_annotations(annotation: object, expected: bool) -> None:
    from tilewright.language.captures import MISSING

    names: dict[str, Any] = {"tl": tl, "int": int}
    found = is_constexpr_annotation(annotation, lambda name: names.get(name, MISSING))
    assert found is expected


# Refusals


@pytest.mark.parametrize("value", ["64", "0.5", "True", "'text'"])
def test_a_plain_global_says_to_wrap_it(value: str) -> None:
    error = refusal("tl.store(x, 1 + WIDTH)", before=f"WIDTH = {value}")
    assert f"write WIDTH = tl.constexpr({value}), or pass the value as an argument" in error.message
    (location,) = error.locations
    assert (location.line, location.column, location.end_column) == (5, 20, 25)
    assert str(error).endswith("tl.store(x, 1 + WIDTH)\n" + " " * 24 + "^^^^^")


def test_a_plain_number_of_a_module_is_named_with_its_path() -> None:
    error = refusal("tl.store(x, math.pi)", before="import math")
    assert "`math.pi` is a plain float (3.14" in error.message
    assert "write PI = tl.constexpr(math.pi), or pass" in error.message


@pytest.mark.parametrize(
    ("body", "before", "message"),
    [
        ("tl.store(x, wdth)", "width = 1", "name `wdth` is not defined; did you mean `width`?"),
        ("tl.store(x, qqqq)", "", "name `qqqq` is not defined"),
        ("tl.stire(x, 1)", "", "`tilewright.language` has no `stire`; did you mean `store`?"),
        ("print(x)", "", "`print` is a Python function that the tile language does not know"),
        ("tl.store(x, math.exp(x))", "import math", "`math.exp` is a Python function"),
        ("tl.store(x, tl)", "", "module `tl` is used as a value; name what you want of it"),
        ("tl.store(x, TABLE)", "TABLE = [1, 2]", "`TABLE` is a list outside the kernel"),
        ("tl.store(x, y)", "y = None", "`y` is a NoneType outside the kernel"),
        ("helper(x)", "def helper(x): return x", "kernels (decorate it with @tl.kernel)"),
    ],
)  # fmt: skip
def test_each_refusal_says_what_to_do(body: str, before: str, message: str) -> None:
    error = refusal(body, before=before)
    assert message in error.message
    assert error.locations[0].line == 5


def test_a_closure_variable_not_yet_assigned_is_not_defined() -> None:
    text = f"""{PRELUDE}
def make():
    @tl.kernel
    def f(x): tl.store(x, LATER)
    yield f
    LATER = tl.constexpr(1)
f = next(make())
"""
    with pytest.raises(KernelNameError, match="name `LATER` is not defined"):
        _ = written_kernel(text).captures


def test_the_caret_counts_characters_not_bytes() -> None:
    error = refusal("tl.store(x, 'ü☃', mask=wrong)")
    assert (
        str(error).splitlines()[-1]
        == " " * 4 + " " * (4 + len("tl.store(x, 'ü☃', mask=")) + "^^^^^"
    )
