"""Scheduled modules with roles that break a rule are refused, with what is wrong and where."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from helpers.descriptor_kernels import Product
from tilewright.errors import InternalCompilerError
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.schedule.hopper import schedule_hopper
from tilewright_compiler.schedule.verify_scheduled import verify_scheduled

Edit = Callable[[str], str]


@cache
def text() -> str:
    module = schedule_hopper(Product(m=64, n=64, k=32, num_stages=2).module())
    assert module is not None
    return print_module(module)


def replaced(pattern: str, replacement: str) -> Edit:
    """Return an edit that replaces the first match of a pattern."""

    def edit(source: str) -> str:
        changed, count = re.subn(pattern, replacement, source, count=1)
        assert count, f"{pattern} is not in the text"
        return changed

    return edit


def to_producer(line: str) -> Edit:
    """Return an edit that puts a line at the start of the producer."""
    return replaced(r"( *)(roles \{[^}]*\} \{\n)", rf"\1\2\1  {line}\n")


def to_consumer(line: str) -> Edit:
    """Return an edit that puts a line at the start of the consumers."""
    return replaced(r"( *)(\} consumer \{\n)", rf"\1\2\1  {line}\n")


def without_waits(source: str) -> str:
    """Name results of waits after their operands."""
    waits = re.compile(r" *(%\w+) = dot_wait (%\w+) .*\n")
    while (match := waits.search(source)) is not None:
        source = source.replace(match[0], "", 1)
        source = re.sub(rf"{match[1]}\b", match[2], source)
    return source


CASES: dict[str, tuple[Edit, str]] = {
    "wait": (without_waits, "is the result of a dot that may still run"),
    "pending": (
        replaced(r"dot_wait (%\w+) \{pending = 0\}", r"dot_wait \1 {pending = 1}"),
        "is the result of a dot that may still run",
    ),
    "barrier": (to_producer("barrier"), "the producer is one thread"),
    "fence": (to_producer("async_fence"), "the producer is one thread"),
    "tiles": (
        to_producer(
            "%t = arange {start = 0, end = 1} : tile<1xi32, #layout<1; r=; l=0,0,0,0,0; w=0,0>>"
        ),
        "the producer has no tiles",
    ),
    "expect": (
        to_consumer(
            "%slot = mbarrier_slot %full, %zero32 : mbarrier\n"
            "    mbarrier_expect %slot {bytes = 16}"
        ),
        "only the producer does that",
    ),
    "warps": (replaced("producer_warps = 4, ", ""), "does not say how many producer_warps"),
    "mbarriers": (
        replaced(r"(alloc_mbarriers \{arrivals = 1, shared_offset = )\d+", r"\g<1>32772"),
        "mbarriers lie at multiples of 8",
    ),
    "unplaced": (
        replaced(r"(alloc_mbarriers \{arrivals = 1), shared_offset = \d+", r"\1"),
        "has no shared_offset",
    ),
    "alignment": (
        replaced(r"(alignment = 1024, shared_offset = )0\}", r"\g<1>512}"),
        "512 is no multiple of 1024",
    ),
}


def test_schedule_keeps_the_rules() -> None:
    verify_scheduled(parse_module(text()))


@pytest.mark.parametrize(("edit", "message"), CASES.values(), ids=CASES)
def test_broken_rule_is_found(edit: Edit, message: str) -> None:
    source = replaced(r"(\n  roles)", r"\n  %zero32 = constant {value = 0} : i32\1")(text())
    with pytest.raises(InternalCompilerError, match=message):
        verify_scheduled(parse_module(edit(source)))
