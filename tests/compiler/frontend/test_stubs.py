"""Every function of the language has its implementation, with its parameters and file name."""

from __future__ import annotations

import inspect

import pytest

import tilewright.language as tl
from tilewright.language.registry import BUILTINS, FUNCTIONS
from tilewright_compiler.frontend.builtins import python, registry

EXPECTED_AT_LEAST = 40


def test_language_was_found() -> None:
    assert len(FUNCTIONS) >= EXPECTED_AT_LEAST


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_is_implemented_with_the_same_parameters(name: str) -> None:
    stub = FUNCTIONS[name]
    implementation = registry.implementation_of(stub)
    assert registry.parameters_of(implementation)[1:] == registry.parameters_of(stub)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_implementation_is_in_the_file_of_the_stub(name: str) -> None:
    stub = FUNCTIONS[name]
    family = stub.__module__.rpartition(".")[2]
    module = inspect.getmodule(registry.implementation_of(stub))
    assert module is not None
    assert module.__name__ == f"tilewright_compiler.frontend.builtins.{family}"


def test_python_builtins_are_those_that_the_language_knows() -> None:
    assert set(python.IMPLEMENTATIONS) == set(BUILTINS)


def test_other_parameters_are_refused() -> None:
    def load(_scope: object, pointer: object, masc: object) -> None:
        del pointer, masc

    with pytest.raises(AssertionError, match=r"load has the parameters .*mask.*masc"):
        registry.implements(tl.load)(load)


def test_second_implementation_is_refused() -> None:
    with pytest.raises(AssertionError, match="load is implemented twice"):
        registry.implements(tl.load)(registry.implementation_of(tl.load))
