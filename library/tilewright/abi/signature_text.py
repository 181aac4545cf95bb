"""The text of a signature becomes the signature again: the inverse of `str`.

Manifests, caches and decisions hold the text alone. Apart from `signature`, because a launch has no
use for it.
"""

from __future__ import annotations

import ast
import re

from tilewright.abi.signature import (
    Constexpr,
    ConstexprValue,
    KernelSignature,
    Parameter,
    Pointer,
    Scalar,
    parse_dtype,
)
from tilewright.errors import FormatError

_SIGNATURE = re.compile(r"^\((.*)\) (fast|general) num_warps=(\d+) num_stages=(\d+)$", re.DOTALL)
# A name, and a type or a constexpr: a string, or what has no comma in it.
_PARAMETER = re.compile(
    r"""\w+(?::[^,]+|=(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,'"]+))""", re.DOTALL
)


def parse_signature(text: str) -> KernelSignature:
    """Read the text of a signature, as manifests and decisions hold it; raises FormatError."""
    match = _SIGNATURE.match(text)
    if match is None:
        msg = f"{text!r} is not the text of a signature"
        raise FormatError(msg)
    inner, specialization, num_warps, num_stages = match.groups()
    return KernelSignature(
        parameters=tuple(map(_parse_parameter, _split(inner))),
        specialization="fast" if specialization == "fast" else "general",
        num_warps=int(num_warps),
        num_stages=int(num_stages),
    )


def _split(text: str) -> list[str]:
    """Return the parameters of a signature: commas inside of strings do not part them."""
    parts, rest = [], text
    while rest:
        match = _PARAMETER.match(rest)
        if match is None:
            msg = f"{rest!r} does not begin with a parameter of a signature"
            raise FormatError(msg)
        parts.append(match[0])
        rest = rest[match.end() :].removeprefix(", ")
    return parts


def _parse_parameter(text: str) -> tuple[str, Parameter]:
    name, value = re.split("[:=]", text, maxsplit=1)
    if text[len(name)] == "=":
        return name, Constexpr(_parse_value(value))
    dtype, _, flags = value.removeprefix("*").partition(":")
    if value.startswith("*"):
        return name, Pointer(parse_dtype(dtype), aligned=flags == "16")
    return name, Scalar(
        parse_dtype(dtype),
        divisible=flags.startswith("16"),
        unit="u" in flags,
        small=flags.endswith("s"),
    )


def _parse_value(text: str) -> ConstexprValue:
    if text.startswith("dtype("):
        return parse_dtype(text.removeprefix("dtype(").removesuffix(")"))
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        msg = f"{text!r} is not the value of a constexpr"
        raise FormatError(msg) from error
    assert isinstance(value, int | float | str | None)
    return value
