"""The public names: what they are is a golden, so that a change of it is seen and meant."""

from __future__ import annotations

import inspect
import re
import sys

import tilewright
import tilewright.language
from helpers.golden import Golden


def test_public_names(golden: Golden) -> None:
    lines = [f"tilewright.{name}{_signature(tilewright, name)}" for name in _names(tilewright)]
    language = tilewright.language
    lines += [
        f"tilewright.language.{name}{_signature(language, name)}" for name in _names(language)
    ]
    assert len(lines) > 40
    golden("\n".join(lines) + "\n")


def test_the_language_has_no_other_names() -> None:
    language = tilewright.language
    others = vars(language).keys() - set(_names(language))
    submodules = {m.rpartition(".")[2] for m in sys.modules if m.startswith(language.__name__)}
    assert not [name for name in others - submodules if not name.startswith("_")]


def test_public_names_have_documentation() -> None:
    for module in (tilewright, tilewright.language):
        for name in _names(module):
            value = getattr(module, name)
            if callable(value) or inspect.ismodule(value):
                assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"


def _names(module: object) -> list[str]:
    names: list[str] = vars(module)["__all__"]
    return sorted(names)


def _signature(module: object, name: str) -> str:
    value = getattr(module, name)
    if not inspect.isfunction(value):
        return ""
    # Annotations are strings, which a signature prints in quotes.
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
