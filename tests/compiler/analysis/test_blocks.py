"""Which accesses of pointers move blocks, of which tensor, and why others do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.kernel_source import lower_text
from helpers.mutations import find
from tilewright_compiler.analysis.blocks import BlockAccess, block_accesses
from tilewright_compiler.analysis.polynomials import Atom, Polynomial
from tilewright_compiler.ir.core import Module, Value
from tilewright_compiler.ir.types import shape_of
from tilewright_compiler.passes import optimize

_KERNEL = """
@tl.kernel
def kernel(a, out, index, m, n, k, stride):
    rows = {rows}
    columns = {columns}
    tile = tl.load({pointer}, mask={mask}{other})
    tl.store(out + tl.arange(0, 32)[:, None] * 64 + tl.arange(0, 64)[None, :], tile)
"""
_PLAIN = {
    "rows": "tl.program_id(0) * 32 + tl.arange(0, 32)",
    "columns": "tl.program_id(1) * 64 + tl.arange(0, 64)",
    "pointer": "a + rows[:, None] * stride + columns[None, :]",
    "mask": "(rows < m)[:, None] & (columns < n)[None, :]",
    "other": "",
}


def access(directory: Path, **changes: str) -> tuple[Module, BlockAccess | str]:
    """Return the only load of a kernel as a block, or why it is none."""
    module = optimize(
        lower_text(
            directory,
            _KERNEL.format(**{**_PLAIN, **changes}),
            specialization="fast",
            **dict.fromkeys(("a", "out"), "*f16"),
            index="*i32",
            **dict.fromkeys(("m", "n", "k", "stride"), "i64"),
        )
    )
    loads = [load for load in find(module, "load") if len(shape_of(load.result.type)) == 2]
    assert len(loads) == 1
    found, reasons = block_accesses(module, loads)
    return module, found.get(loads[0]) or reasons[loads[0]]


def text(value: Polynomial, module: Module) -> str:
    """Return a polynomial as text: arguments by their names, programs by their axis."""
    made = {o.result: o for o in module.kernel.body.walk() if len(o.results) == 1}

    def name(found: Atom) -> str:
        assert isinstance(found, Value)
        operation = made.get(found)
        if operation is None:
            return found.name
        axis = operation.attributes.get("axis", "")
        return f"p{axis}" if operation.name == "program_id" else operation.name

    terms = []
    for monomial, coefficient in value.terms.items():
        factors = sorted(name(found) for found, power in monomial for _ in range(power))
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        terms.append("*".join(factors))
    return " + ".join(sorted(terms)) or "0"


def axes(found: BlockAccess | str, module: Module) -> list[tuple[str, str, str]]:
    assert isinstance(found, BlockAccess), found
    return [
        (text(axis.place, module), text(axis.size, module), text(axis.stride, module))
        for axis in found.axes
    ]


ROWS, COLUMNS = ("32*p0", "m", "stride"), ("64*p1", "n", "1")
MANY = "2147483647"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [ROWS, COLUMNS]),
        # Sides of comparisons, and their order, are no matter.
        ({"mask": "(m > rows)[:, None] & (columns <= n - 1)[None, :]"}, [ROWS, COLUMNS]),
        ({"mask": "(rows[:, None] - m < 0) & (columns[None, :] < n)"}, [ROWS, COLUMNS]),
        ({"other": ", other=0.0"}, [ROWS, COLUMNS]),
        # What programs add by a stride of its own is an axis.
        (
            {"pointer": "a + tl.program_id(2) * k + rows[:, None] * stride + columns[None, :]"},
            [("p2", MANY, "k"), ROWS, COLUMNS],
        ),
        # An offset of whole rows, in the address or in the index.
        (
            {"rows": "k + tl.program_id(0) * 32 + tl.arange(0, 32)"},
            [("32*p0", "-1*k + m", "stride"), COLUMNS],
        ),
        # Bounded from below by the mask, not by what is known.
        (
            {
                "rows": "tl.program_id(0) * 32 - 16 + tl.arange(0, 32)",
                "mask": "((rows >= 0) & (rows < m))[:, None] & (columns < n)[None, :]",
            },
            [("-16 + 32*p0", "m", "stride"), COLUMNS],
        ),
        # No mask where 31 bits suffice.
        (
            {"mask": "(rows < m)[:, None]", "columns": "tl.arange(0, 64)"},
            [ROWS, ("0", MANY, "1")],
        ),
    ],
    ids=str,
)
def test_blocks(
    changes: dict[str, str], expected: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    module, found = access(tmp_path, **changes)
    found_axes = axes(found, module)
    if "k + tl.program_id" in changes.get("rows", ""):
        # The offset of the launch's rows is one more axis, of one element at its stride.
        assert found_axes[0] == ("1", MANY, "k*stride")
        found_axes = found_axes[1:]
    assert found_axes == expected


def test_a_tile_contiguous_along_its_first_axis_is_turned(tmp_path: Path) -> None:
    module, found = access(tmp_path, pointer="a + rows[:, None] + columns[None, :] * stride")
    assert isinstance(found, BlockAccess)
    assert found.is_turned
    assert axes(found, module) == [("64*p1", "n", "stride"), ("32*p0", "m", "1")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": "(tl.program_id(0) * 32 + tl.arange(0, 32)) % m"}, "sums and products"),
        ({"rows": "tl.load(index + tl.arange(0, 32)).to(tl.int64)"}, "sums and products"),
        ({"rows": "k * tl.program_id(0) + tl.arange(0, 32)"}, "not negative is not known"),
        ({"rows": "tl.program_id(0) * 32 - 16 + tl.arange(0, 32)"}, "not negative is not known"),
        ({"pointer": "a + rows[:, None] * columns[None, :]"}, "grow evenly"),
        ({"pointer": "a + rows[:, None] * stride + 2 * columns[None, :]"}, "along neither axis"),
        ({"pointer": "a + rows[:, None] + columns[None, :]"}, "or along both"),
        (
            {"pointer": "a + rows[:, None] * tl.program_id(2) + columns[None, :]"},
            "none of the launch",
        ),
        ({"pointer": "a + 1 + rows[:, None] * stride + columns[None, :]"}, "no offset of whole"),
        ({"mask": "(rows < m)[:, None] | (columns < n)[None, :]"}, "no conjunction"),
        ({"mask": "(rows != m)[:, None] & (columns < n)[None, :]"}, "more than bounds"),
        (
            {"mask": "(rows < m)[:, None] & (rows < k)[:, None] & (columns < n)[None, :]"},
            "bounds an axis twice",
        ),
        ({"mask": "rows[:, None] + columns[None, :] < m"}, "of two axes"),
        ({"mask": "(2 * rows < m)[:, None] & (columns < n)[None, :]"}, "not by its index"),
        ({"mask": "(rows < m)[:, None]"}, "may need more than 31 bits"),
        ({"other": ", other=1.0"}, "is not 0"),
    ],
    ids=str,
)
def test_what_is_no_block(changes: dict[str, str], reason: str, tmp_path: Path) -> None:
    _, found = access(tmp_path, **changes)
    assert isinstance(found, str), found
    assert reason in found
