"""A kernel knows its parameters, its source and its launch, wherever it was defined."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright.language as tl
from helpers.written_kernel import written_kernel
from tilewright.abi.signature import SpecializationRule
from tilewright.errors import (
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    OutsideKernelError,
)
from tilewright.language import Kernel, KernelParameter, triton
from tilewright.language.parameters import NO_DEFAULT

# mypy: disable-error-code="no-untyped-def, assignment, arg-type"

ROOT = Path(__file__).resolve().parents[3]
PRELUDE = "import tilewright.language as tl\n"


@tl.kernel
def plain(x, n, BLOCK: tl.constexpr):
    """Store zeros."""
    tl.store(x + tl.arange(0, BLOCK), 0, mask=n > 0)


@tl.kernel(divisible=("n",), unit=("stride",))
def ruled(x, n, stride, scale=0.5, *, BLOCK: tl.constexpr = 64, MODE: tl.constexpr = None):
    tl.store(x + n * stride, scale * BLOCK, mask=MODE)


def passes_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: object) -> object:
        return function(*args)

    return wrapper


def keeps(value: Kernel) -> Kernel:
    return value


# fmt: off
@keeps
@tl.kernel(
    divisible=(
        "n",
    ),
)
@passes_on
def stacked(x, n): tl.store(x, n)
# fmt: on


class Holder:
    @tl.kernel
    def inside_a_class(x):
        tl.store(x, 1)


def test_a_kernel_says_where_it_is_from() -> None:
    assert isinstance(plain, Kernel)
    assert plain.name == "plain"
    assert plain.module == __name__
    assert plain.qualified_name == f"{__name__}.plain"
    assert Holder.inside_a_class.qualified_name == f"{__name__}.Holder.inside_a_class"
    assert plain.location.file == __file__
    assert plain.__doc__ == "Store zeros."
    assert repr(plain) == f"<kernel {__name__}.plain>"


def test_parameters_in_order_with_defaults() -> None:
    assert plain.parameters == (
        KernelParameter("x", is_constexpr=False),
        KernelParameter("n", is_constexpr=False),
        KernelParameter("BLOCK", is_constexpr=True),
    )
    assert plain.parameters[0].default is NO_DEFAULT
    assert ruled.parameters[3:] == (
        KernelParameter("scale", is_constexpr=False, default=0.5),
        KernelParameter("BLOCK", is_constexpr=True, default=64),
        KernelParameter("MODE", is_constexpr=True, default=None),
    )


def test_the_rule_is_the_decorator_s() -> None:
    assert plain.rule == SpecializationRule()
    assert ruled.rule == SpecializationRule(divisible=("n",), unit=("stride",))


@pytest.mark.parametrize(
    "annotation",
    ["tl.constexpr", "'tl.constexpr'", "constexpr", "language.constexpr", "tl . constexpr"],
)
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_every_spelling_of_constexpr_is_one(annotation: str, future: str) -> None:
    text = f"""{future}{PRELUDE}
from tilewright.language import constexpr
from tilewright import language
@tl.kernel
def f(x: int, BLOCK: {annotation}, y: 'unknown.name' = 1): pass
"""
    assert [p.is_constexpr for p in written_kernel(text).parameters] == [False, True, False]


def test_a_local_import_of_the_language_still_spells_constexpr() -> None:
    text = """from __future__ import annotations
def make():
    import tilewright.language as local
    @local.kernel
    def f(x, BLOCK: local.constexpr): x + BLOCK
    return f
f = make()
"""
    assert [p.is_constexpr for p in written_kernel(text).parameters] == [False, True]


# Source


@pytest.mark.parametrize(
    "kernel", [plain, ruled, stacked, Holder.inside_a_class], ids=lambda k: str(k.name)
)
def test_the_tree_has_the_lines_of_the_file(kernel: Kernel) -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[kernel.tree.lineno - 1].strip().startswith(f"def {kernel.name}(")
    store = next(n for n in ast.walk(kernel.tree) if isinstance(n, ast.Expr) and n.col_offset)
    assert kernel.locate(store).line == store.lineno


def test_two_kernels_of_one_name_are_told_apart() -> None:
    text = f"""{PRELUDE}
@tl.kernel
def f(x): tl.store(x, 1)
first = f
@tl.kernel
def f(x): tl.store(x, 2)
last = f
"""
    second = written_kernel(text)
    assert [second.fn.__code__.co_firstlineno, second.tree.lineno] == [6, 7]
    assert "2" in ast.unparse(second.tree)


def test_two_kernels_that_a_factory_made_on_one_line_differ_by_what_they_capture() -> None:
    def make(width: int) -> Kernel:
        WIDTH = tl.constexpr(width)

        @tl.kernel
        def fill(x):
            tl.store(x, WIDTH)

        return fill

    one, two, again = make(1), make(2), make(1)
    assert one.digest != two.digest
    assert one.digest == again.digest
    assert one.captures["WIDTH"].value == 1  # type: ignore[union-attr]  # it is a constexpr


def test_a_kernel_in_main_has_a_digest(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    body = "@tl.kernel\ndef f(x, n):\n    tl.store(x, n)\n"
    script.write_text(f"{PRELUDE}\n\n{body}print(f.qualified_name, f.digest, f.tree.lineno)\n")
    result = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(ROOT / "library"), "PATH": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["__main__.f", written_kernel(PRELUDE + body).digest, "5"]


def test_a_kernel_without_source_says_so() -> None:
    namespace: dict[str, Any] = {"__name__": "interactive"}
    exec("import tilewright.language as tl\n@tl.kernel\ndef f(x): tl.store(x, 1)", namespace)
    kernel = namespace["f"]
    assert [p.name for p in kernel.parameters] == ["x"]
    with pytest.raises(KernelSyntaxError, match="`f` has no source text: '<string>' cannot be"):
        _ = kernel.digest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("@tl.kernel", "\n\n\n@tl.kernel", id="moved"),
        pytest.param("def f(x):", "def f(x, y):", id="other parameters"),
        pytest.param("tl.store", "tl.store(", id="no Python"),
    ],
)
def test_a_file_that_changed_after_import_is_noticed(before: str, after: str) -> None:
    text = f"{PRELUDE}@tl.kernel\ndef f(x):\n    tl.store(x, 1)\n"
    kernel = written_kernel(text, file="<changing>")
    changed = text.replace(before, after)
    import linecache

    linecache.cache["<changing>"] = (1, None, changed.splitlines(keepends=True), "<changing>")
    with pytest.raises(KernelSyntaxError, match="changed after it was imported"):
        _ = kernel.tree


def test_the_closure_has_every_kernel_that_is_called_once() -> None:
    from tilewright.kernels import norm, norm_parts, rows

    first, *called = norm.layer_norm.closure()
    assert first is norm.layer_norm
    assert len(called) == len(set(called))
    assert {first, *called} == {
        norm.layer_norm,
        norm.layer_norm_tile,
        norm_parts.parameter,
        norm_parts.is_fine,
        norm_parts.without_rest,
        rows.is_full,
        rows.row_offsets,
        rows.row_widths,
        rows.load_row,
        rows.widened,
        rows.working_dtype,
        rows.store_row,
    }


def test_decorating_reads_no_file() -> None:
    text = f"{PRELUDE}@tl.kernel\ndef f(x, B: tl.constexpr = 1): undefined_name(x)\n"
    kernel = written_kernel(text, file="<unread>")
    assert kernel.parameters[1].default == 1
    assert "tree" not in vars(kernel)


# Refusals


@pytest.mark.parametrize(
    ("definition", "error", "message"),
    [
        ("def f(*x): pass", KernelSyntaxError, r"has \*args or \*\*kwargs; name every parameter"),
        ("def f(**x): pass", KernelSyntaxError, r"has \*args or \*\*kwargs"),
        ("def f(num_warps): pass", KernelSyntaxError, "`num_warps` .* is a launch option; rename"),
        ("f = lambda x: x", KernelTypeError, "goes on a function defined with `def`, got <func"),
    ],
)
def test_what_is_no_kernel_is_refused_at_once(
    definition: str, error: type[Exception], message: str
) -> None:
    line = f"f = tl.kernel({definition[4:]})" if "lambda" in definition else definition
    text = f"{PRELUDE}{'' if 'lambda' in definition else '@tl.kernel'}\n{line}\n"
    with pytest.raises(error, match=message):
        written_kernel(text)


@pytest.mark.parametrize("thing", [plain, print, Holder, 7, "text"], ids=repr)
def test_only_functions_become_kernels(thing: Any) -> None:
    with pytest.raises(KernelTypeError, match="goes on a function defined with `def`, got"):
        tl.kernel(thing)


def test_a_rule_names_parameters() -> None:
    text = f"{PRELUDE}@tl.kernel(divisible=('sride',))\ndef f(x, stride): pass\n"
    with pytest.raises(KernelNameError, match=r"`sride` in divisible= is no parameter .*`stride`?"):
        written_kernel(text)


def test_a_rule_names_no_constexpr() -> None:
    text = f"{PRELUDE}@tl.kernel(unit=('B',))\ndef f(x, B: tl.constexpr): pass\n"
    with pytest.raises(KernelValueError, match="`B` of kernel `f` is a constexpr"):
        _ = written_kernel(text).parameters


def test_a_default_is_a_plain_value() -> None:
    kernel = written_kernel(f"{PRELUDE}@tl.kernel\ndef f(x, shape=(1, 2)): pass\n")
    with pytest.raises(KernelTypeError, match=r"default of parameter `shape` .*got \(1, 2\)"):
        _ = kernel.parameters


def test_calling_a_kernel_from_python_says_how_to_launch_it() -> None:
    with pytest.raises(OutsideKernelError, match=r"with 2 arguments; launch it .*plain\[grid\]"):
        plain(1, n=2)


def test_a_keyword_of_the_decorator_is_shown_where_it_stands() -> None:
    text = f"{PRELUDE}@tl.kernel(\n    unit=(),\n    noinline=True,\n)\ndef f(x): pass\n"
    with pytest.raises(KernelTypeError, match="no `noinline`: leave it out") as caught:
        written_kernel(text)
    location = caught.value.locations[0]
    assert text.splitlines()[location.line - 1][location.column : location.end_column] == (
        "noinline=True"
    )
    with pytest.raises(KernelTypeError, match="no `sepcialize`: it takes divisible and unit"):
        tl.kernel(plain.fn, sepcialize=True)  # type: ignore[call-overload]  # the mistake


@pytest.mark.parametrize(
    ("name", "says"),
    [("warmup", "launch it once, .* tilewright.preload"), ("run", r"kernel\[grid\]"), ("no", "")],
)
def test_an_attribute_that_a_kernel_lacks_is_told(name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=f"a kernel has no attribute '{name}'.*{says}"):
        getattr(plain, name)
    assert not hasattr(plain, name)


def test_what_goes_wrong_while_an_attribute_is_found_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = written_kernel(f"{PRELUDE}@tl.kernel\ndef f(x): pass\n")
    monkeypatch.setattr("tilewright.language.source.find_tree", lambda fn: fn.no_such_thing)
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        _ = kernel.tree


def test_a_name_of_triton_that_the_language_lacks_is_told_outside_kernels_too() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'float8e4b8': .*tl.float8e5; load"):
        getattr(tl, "float8e4b8")  # noqa: B009  # mypy knows that it is not there
    with pytest.raises(AttributeError, match=r"no attribute 'flot32'$"):
        getattr(tl, "flot32")  # noqa: B009  # mypy knows that it is not there


def test_no_name_that_triton_s_list_refuses_is_there() -> None:
    assert not [name for name in triton.NAMES if hasattr(tl, name)]


# Launch


def test_a_launch_hands_on_grid_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def launcher(grid: object) -> Callable[..., None]:
        return lambda *args, **kwargs: seen.append((grid, args, kwargs))

    monkeypatch.setitem(vars(plain), "launcher", launcher)
    plain[(4, 2)](1, 2, BLOCK=64, num_warps=8)
    assert seen == [((4, 2), (1, 2), {"BLOCK": 64, "num_warps": 8})]


def test_the_runtime_is_imported_at_the_first_launch_only() -> None:
    code = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(ROOT / "tests")!r}]
        from helpers.golden_kernels import helper
        helper.digest
        assert not [name for name in sys.modules if name.startswith("tilewright.runtime")]
        assert "numpy" not in sys.modules
        helper[1]
        assert "tilewright.runtime.launch" in sys.modules
    """)
    subprocess.run([sys.executable, "-c", code], check=True)
