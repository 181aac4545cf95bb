"""The text of a signature can be read back, whatever its constexprs are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.abi.dtypes import ALL
from tilewright.abi.signature import (
    Constexpr,
    KernelSignature,
    Parameter,
    Pointer,
    Scalar,
)
from tilewright.abi.signature_text import parse_signature
from tilewright.errors import FormatError

_DTYPES = st.sampled_from(ALL)
_VALUES = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=8), st.none(), _DTYPES
)
_PARAMETERS: st.SearchStrategy[Parameter] = st.one_of(
    st.builds(Pointer, _DTYPES, st.booleans()),
    st.builds(Scalar, _DTYPES, st.booleans(), st.booleans(), st.booleans()),
    st.builds(Constexpr, _VALUES),
)
_NAMES = st.from_regex(r"\A[a-z_][a-z0-9_]{0,5}\Z")


@given(
    st.lists(st.tuples(_NAMES, _PARAMETERS), max_size=6),
    st.sampled_from(("fast", "general")),
    st.integers(1, 32),
    st.integers(1, 9),
)
def test_the_text_gives_the_signature_back(
    parameters: list[tuple[str, Parameter]], specialization: str, num_warps: int, num_stages: int
) -> None:
    signature = KernelSignature(
        tuple(parameters),
        "fast" if specialization == "fast" else "general",
        num_warps,
        num_stages,
    )
    assert parse_signature(str(signature)) == signature


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "(x) fast num_warps=4 num_stages=3",
        "(x:*f33) fast num_warps=4 num_stages=3",
        "(x:*f32,y:*f32) fast num_warps=4 num_stages=3",
        "(x=open('a')) fast num_warps=4 num_stages=3",
        "(x='a) fast num_warps=4 num_stages=3",
        "(x:*f32) slow num_warps=4 num_stages=3",
        "(x:*f32) fast num_warps=four num_stages=3",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_signature(text)
