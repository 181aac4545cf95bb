"""The language's functions: one list, exported, documented, without meaning in plain Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest

import tilewright.language as tl
from tilewright.abi.dtypes import ALL, DType
from tilewright.errors import ArgumentValueError, KernelTypeError, OutsideKernelError
from tilewright.language import registry
from tilewright.language.registry import BUILTINS, FUNCTIONS, is_builtin, is_function

MODULES = (
    "atomics", "block_pointers", "debug", "dot", "hints", "indexing", "inline_asm", "math",
    "memory", "program", "random", "reduce", "scan", "shape", "solve", "sort",
)  # fmt: skip


def test_the_language_has_the_operations_it_promises() -> None:
    assert {name for name in FUNCTIONS if "." not in name} == {
        "program_id", "num_programs", "range", "static_range", "static_assert", "cdiv",
        "arange", "full", "zeros", "zeros_like", "broadcast_to", "expand_dims", "reshape", "trans",
        "ravel", "dot", "load", "store", "sum", "max", "min", "where", "maximum", "minimum",
        "clamp", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf",
        "sigmoid", "floor", "ceil", "fma", "fdiv", "async_copy",
        "broadcast", "unsqueeze", "squeeze", "view", "permute", "join", "split", "interleave",
        "cat", "flip", "cast", "expm1", "log1p", "sqrt_rn", "div_rn", "umulhi", "softmax",
        "swizzle2d", "philox", "rand", "rand4x", "randn", "randn4x", "randint", "randint4x",
        "multiple_of", "max_contiguous", "max_constancy", "assume", "resident",
        "make_block_ptr", "advance",
        "next_power_of_2", "debug_barrier", "device_assert", "static_print", "device_print",
        "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor",
        "atomic_xchg", "atomic_cas",
        "uint_to_uniform_float", "pair_uniform_to_normal", "inline_asm_elementwise",
        "argmax", "argmin", "reduce", "reduce_or", "xor_sum", "associative_scan", "cumsum",
        "cumprod", "sort", "topk", "bitonic_merge", "gather", "histogram",
        "solve_tril", "make_tensor_descriptor", "load_tensor_descriptor", "store_tensor_descriptor",
            "atomic_add_tensor_descriptor",
            "atomic_and_tensor_descriptor",
            "atomic_max_tensor_descriptor",
            "atomic_min_tensor_descriptor",
            "atomic_or_tensor_descriptor",
            "atomic_xor_tensor_descriptor",
    }  # fmt: skip


def test_every_function_and_dtype_is_exported() -> None:
    assert {name.partition(".")[0] for name in FUNCTIONS} <= set(tl.__all__)
    assert all(attrgetter(name)(tl) is function for name, function in FUNCTIONS.items())
    assert tl.extra.libdevice is tl.libdevice
    exported = [value for name in tl.__all__ if isinstance(value := getattr(tl, name), DType)]
    assert sorted(map(str, exported)) == sorted(map(str, ALL))


@pytest.mark.parametrize("module", MODULES)
def test_the_all_of_each_module_is_what_it_defines(module: str) -> None:
    home = __import__(f"tilewright.language.{module}", fromlist=["__all__"])
    defined = [name for name, value in FUNCTIONS.items() if value.__module__ == home.__name__]
    assert sorted(home.__all__) == sorted(defined) != []


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_call_from_plain_python_is_refused_by_name(name: str) -> None:
    function = FUNCTIONS[name]
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
    ]
    with pytest.raises(OutsideKernelError, match=rf"^tl\.{name} was called by plain Python"):
        function(*(None for _ in required))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_says_what_it_gives(name: str) -> None:
    document = inspect.getdoc(FUNCTIONS[name])
    assert document is not None
    assert document.partition("\n")[0].endswith((".", ":")), document
    assert document.split()[0] in {
        "Return", "Write", "Loop", "Fail", "Repeat", "Insert", "Permute", "Print", "Stop", "Let",
        "Promise", "Add", "Replace", "Clear", "Set", "Turn",
    }  # fmt: skip
    hints = inspect.get_annotations(FUNCTIONS[name])
    assert set(hints) == {*inspect.signature(FUNCTIONS[name]).parameters, "return"}


def test_the_language_is_recognised_by_identity() -> None:
    def exp(x: object) -> object:
        return x

    assert is_function(tl.exp)
    assert not is_function(exp)
    assert not is_function("exp")
    assert is_builtin(range)
    assert not is_builtin(print)
    assert not is_builtin(tl.range)
    assert [function.__name__ for function in BUILTINS] == sorted(f.__name__ for f in BUILTINS)


def test_a_name_is_registered_once() -> None:
    def exp(x: object) -> object:
        return x

    with pytest.raises(AssertionError, match=r"tl\.exp is defined twice"):
        registry.operation(exp)


def test_the_list_cannot_be_changed_from_outside() -> None:
    with pytest.raises(TypeError):
        FUNCTIONS["mine"] = print  # type: ignore[index]  # the mistake


# Types


def test_a_tile_is_made_by_no_one() -> None:
    with pytest.raises(OutsideKernelError, match="only inside a kernel"):
        tl.Tile()


@pytest.mark.parametrize("value", [0, -1, 2**70, 1.5, float("inf"), True, "text", None, tl.float32])
def test_a_constexpr_holds_its_value(value: int | float | bool | str | DType | None) -> None:
    found = tl.constexpr(value)
    assert found.value is value
    assert repr(found) == f"constexpr({value!r})"
    assert tl.constexpr(found).value is value


@pytest.mark.parametrize("value", [[1], (1, 2), {}, 1j, b"x", object(), Path, range])
def test_a_constexpr_of_something_else_is_refused(value: object) -> None:
    with pytest.raises(KernelTypeError, match="takes an int, float, bool, str, None or dtype, got"):
        tl.constexpr(value)  # type: ignore[arg-type]  # the mistake


def test_a_type_and_a_function_each_have_their_remedy() -> None:
    with pytest.raises(KernelTypeError, match=r"of type type; write the tl dtype, such as"):
        tl.constexpr(float)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(KernelTypeError, match="; define the kernel inside a function"):
        tl.constexpr(len)  # type: ignore[arg-type]  # the mistake


def test_a_subclass_of_a_number_is_refused() -> None:
    class Celsius(float):
        def __repr__(self) -> str:
            return "warm"

    with pytest.raises(KernelTypeError, match="got warm of type Celsius; convert it first"):
        tl.constexpr(Celsius(1.0))


def test_a_constexpr_does_not_change() -> None:
    width = tl.constexpr(8)
    for change in (_set_value, _set_other):
        with pytest.raises(AttributeError):
            change(width)
    assert width.value == 8


def _set_value(target: tl.constexpr) -> None:
    target.value = 9  # type: ignore[misc]  # the mistake


def _set_other(target: tl.constexpr) -> None:
    target._value = 9


def test_signatures_are_plain_enough_to_be_compared() -> None:
    # The compiler registers an implementation for each and compares parameter names.
    kinds = {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
    }
    functions: list[Callable[..., object]] = list(FUNCTIONS.values())
    for function in functions:
        assert {p.kind for p in inspect.signature(function).parameters.values()} <= kinds


def test_cdiv_outside_a_kernel_rounds_up_and_refuses_zero() -> None:
    assert [tl.cdiv(x, 4) for x in (0, 1, 4, 5)] == [0, 1, 1, 2]
    with pytest.raises(ArgumentValueError, match=r"tl\.cdiv\(1, 0\) divides by zero"):
        tl.cdiv(1, 0)
