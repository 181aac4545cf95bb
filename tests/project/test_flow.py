"""The flow table of the README: every arrow exists, and what one gives the next one takes."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from tilewright_compiler.snapshots import STAGES
from tilewright_release.main import main

_ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| (\d+) \| (.+?) \| `([\w.]+)` \| `(\w+)` \| `(.+?)` \|$", re.MULTILINE)

# 8 to 9 goes over the disk, and what 10 chooses from is an entry of the manifest that 8 wrote.
_JOINED = {(n, n + 1) for n in (*range(1, 8), 10, 11)}


@dataclass(frozen=True, slots=True)
class Arrow:
    number: int
    name: str
    function: Callable[..., object]
    gives: str
    seen_by: str


def _arrows() -> list[Arrow]:
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## The way of the data")[2].partition("\n## ")[0]
    return [
        Arrow(int(number), function, _import(function), gives, seen_by)
        for number, _, function, gives, seen_by in _ROW.findall(section)
    ]


def _import(name: str) -> Callable[..., object]:
    module, _, function = name.rpartition(".")
    found: Callable[..., object] = getattr(importlib.import_module(module), function)
    return found


def test_the_table_lists_the_arrows_in_order() -> None:
    assert [arrow.number for arrow in _arrows()] == list(range(1, 14))


@pytest.mark.parametrize("arrow", _arrows(), ids=lambda arrow: arrow.name)
def test_an_arrow_gives_what_the_table_says(arrow: Arrow) -> None:
    assert arrow.gives in {_name(kind) for kind in _classes(_hints(arrow)["return"])}
    assert inspect.getdoc(arrow.function), f"{arrow.name} has no docstring"


@pytest.mark.parametrize(
    ("first", "then"),
    [pair for pair in pairwise(_arrows()) if (pair[0].number, pair[1].number) in _JOINED],
    ids=lambda arrow: str(arrow.number),
)
def test_an_arrow_takes_what_the_one_before_gives(first: Arrow, then: Arrow) -> None:
    given = set(_classes(_hints(first)["return"])) - {NoneType}
    taken = {
        kind for name, hint in _hints(then).items() if name != "return" for kind in _classes(hint)
    }
    assert given & taken, f"{first.name} gives {given}, {then.name} takes {taken}"


def test_the_commands_of_the_table_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = capsys.readouterr().out
    for arrow in _arrows():
        words = arrow.seen_by.split()
        if words[:2] == ["tilewright", "dev"]:
            assert words[2] in commands
        if "--stage" in words:
            assert words[words.index("--stage") + 1] in STAGES


def _hints(arrow: Arrow) -> dict[str, Any]:
    return typing.get_type_hints(arrow.function)


def _classes(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    # A launch plan is a class of the extension, which types it by name only.
    for argument in typing.get_args(hint):
        yield from _classes(argument)


def _name(kind: type) -> str:
    return "None" if kind is NoneType else kind.__name__
