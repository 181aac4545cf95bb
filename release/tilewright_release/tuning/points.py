"""What is tuned: an operation with dtypes, sizes and layout, spelled as one line of words.

    matmul bf16 4096x4096x4096 kk
    matmul f8e4m3->f32 8x1024x1024x512 kk
    matmul f32/tf32 2048x2048x2048 kn epilogue
    attention bf16 64x2048x2048x128 causal

Sizes of a product are M, N and K, with a batch before them if there is one, and the letters the
axes along which A and B are contiguous; those of an attention are heads in all, queries, keys and
elements of a head. A point makes its own operands and judges what comes out: products of small
integers have one exact result, and attention is near its definition.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.abi.dtypes import BY_NAME, DType, bfloat16, float16, float32
from tilewright.abi.numpy_types import to_numpy
from tilewright.errors import UsageError
from tilewright.reference.attention import attention as attention_reference
from tilewright.reference.matmul import matmul as matmul_reference
from tilewright.tensor.attention import attention
from tilewright.tensor.matmul import PRECISIONS, RESULTS, matmul

FAMILIES = ("matmul", "attention")

# Scores that the definition of attention is computed for, so that it takes a second at most.
_MOST_SCORES = 1 << 25
# As prebuilt/tolerances.toml allows, relative to the largest element.
_TOLERANCES = {bfloat16: 1.6e-2, float16: 2e-3, float32: 2e-3}

Array = npt.NDArray[Any]


class Operand(NamedTuple):
    """An array of an operation as it lies in memory; `is_turned` if its last axes are exchanged."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    is_turned: bool = False


class Point(Protocol):
    """An operation that is tuned; `str` is its line."""

    @property
    def family(self) -> Literal["matmul", "attention"]:
        """The family of its kernels."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What it reads."""

    @property
    def result(self) -> Operand:
        """What it writes."""

    def values(self, operand: Operand) -> Array:
        """Return what an operand holds, as it lies in memory."""

    def call(self, arrays: Mapping[str, Any], out: Any) -> None:
        """Call the operation on arrays by name, turned as the operands say."""

    def expected(self, arrays: Mapping[str, Any]) -> Array:
        """Return what its definition gives for host arrays, or the first part of it."""

    def problem(self, found: Array, expected: Array, usual: Array) -> str:
        """Return what is wrong with a result; empty if nothing is.

        `usual` is the result of what the library chooses without tables.
        """


@dataclass(frozen=True, slots=True)
class ProductPoint:
    """A product `[batch, m, k] @ [batch, k, n]`; an epilogue is a gate and a residual."""

    dtype: DType
    result_dtype: DType
    precision: str
    sizes: tuple[int, int, int, int]
    layout: str
    has_epilogue: bool = False

    @property
    def family(self) -> Literal["matmul"]:
        """The family of its kernels."""
        return "matmul"

    def __str__(self) -> str:
        batch, *sizes = self.sizes
        dtype = str(self.dtype) if self.precision == "ieee" else f"{self.dtype}/{self.precision}"
        if self.result_dtype != RESULTS[self.dtype][0]:
            dtype += f"->{self.result_dtype}"
        extents = "x".join(map(str, sizes if batch == 1 else self.sizes))
        words = ["matmul", dtype, extents, self.layout, *["epilogue"] * self.has_epilogue]
        return " ".join(words)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """A and B, and what the epilogue reads."""
        batch, m, n, k = self.sizes
        left, right = self.layout[0], self.layout[1]
        outer = () if batch == 1 else (batch,)
        a = (*outer, m, k) if left == "k" else (*outer, k, m)
        b = (*outer, k, n) if right == "n" else (*outer, n, k)
        factors = (
            Operand("a", a, self.dtype, left != "k"),
            Operand("b", b, self.dtype, right != "n"),
        )
        if not self.has_epilogue:
            return factors
        more = ("gate", "residual")
        return (*factors, *(self.result._replace(name=name) for name in more))

    @property
    def result(self) -> Operand:
        """The product."""
        batch, m, n, _ = self.sizes
        return Operand("out", (m, n) if batch == 1 else (batch, m, n), self.result_dtype)

    def values(self, operand: Operand) -> Array:
        """Return small integers, of which every order of summation gives the same."""
        random = _random(self, operand)
        least = 0 if operand.dtype.kind == "uint" else -4
        numbers = random.integers(least, 5, operand.shape, np.int8)
        return numbers.astype(to_numpy(operand.dtype))

    def call(self, arrays: Mapping[str, Any], out: Any) -> None:
        """Multiply."""
        matmul(**arrays, input_precision=self.precision, out_dtype=self.result_dtype, out=out)

    def expected(self, arrays: Mapping[str, Any]) -> Array:
        """Return the exact product, rounded once."""
        return matmul_reference(
            **arrays, input_precision=self.precision, out_dtype=self.result_dtype
        )

    def problem(self, found: Array, expected: Array, usual: Array) -> str:  # noqa: ARG002
        """Return how many elements differ from the exact ones."""
        # Bits first: comparing them is many times faster, and nearly always enough.
        if np.array_equal(found.view(np.uint8), expected.view(np.uint8)):
            return ""
        wrong = int(np.count_nonzero(found != expected))
        return f"{wrong} of {found.size} elements are wrong" if wrong else ""


@dataclass(frozen=True, slots=True)
class AttentionPoint:
    """An attention of so many heads: `sizes` are heads, queries, keys, elements of a head."""

    dtype: DType
    sizes: tuple[int, int, int, int]
    causal: bool = False
    has_bias: bool = False

    @property
    def family(self) -> Literal["attention"]:
        """The family of its kernels."""
        return "attention"

    def __str__(self) -> str:
        words = ["attention", str(self.dtype), "x".join(map(str, self.sizes))]
        return " ".join((*words, *["causal"] * self.causal, *["bias"] * self.has_bias))

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Queries, keys and values, and the bias."""
        heads, queries, keys, dim = self.sizes
        shapes = {"q": (heads, queries, dim), "k": (heads, keys, dim), "v": (heads, keys, dim)}
        if self.has_bias:
            shapes["bias"] = (heads, queries, keys)
        return tuple(Operand(name, shape, self.dtype) for name, shape in shapes.items())

    @property
    def result(self) -> Operand:
        """The mixed values."""
        heads, queries, _, dim = self.sizes
        return Operand("out", (heads, queries, dim), self.dtype)

    def values(self, operand: Operand) -> Array:
        """Return normal numbers."""
        numbers = _random(self, operand).standard_normal(operand.shape, np.float32)
        return numbers.astype(to_numpy(operand.dtype))

    def call(self, arrays: Mapping[str, Any], out: Any) -> None:
        """Attend."""
        attention(**arrays, causal=self.causal, out=out)

    def expected(self, arrays: Mapping[str, Any]) -> Array:
        """Return what the first heads give."""
        _, queries, keys, _ = self.sizes
        heads = max(1, _MOST_SCORES // max(1, queries * keys))
        first = {name: array[:heads] for name, array in arrays.items()}
        result, _ = attention_reference(**first, causal=self.causal)
        return result

    def problem(self, found: Array, expected: Array, usual: Array) -> str:
        """Return how far the first heads are from the definition, and all from what is usual."""
        pairs = {"the definition": (found[: len(expected)], expected), "the usual": (found, usual)}
        for name, (one, other) in pairs.items():
            left, right = one.astype(np.float32), other.astype(np.float32)
            allowed = _TOLERANCES[self.dtype] * float(np.abs(right).max(initial=0))
            far = float(np.abs(left - right).max(initial=0))
            if not far <= allowed:  # NaN is not
                return f"it is {far:.2g} from {name}, {allowed:.2g} is allowed"
        return ""


def parse_point(line: str) -> ProductPoint | AttentionPoint:
    """Read a line of words; raises UsageError that says what is wrong with it."""
    try:
        family, dtypes, extents, *more = line.split()
        sizes = tuple(int(extent) for extent in extents.split("x"))
        if min(sizes) < 1:
            msg = "sizes are at least 1"
            raise ValueError(msg)
        if family == "matmul":
            return _parse_product(dtypes, sizes, more)
        if family == "attention":
            return _parse_attention(dtypes, sizes, more)
        msg = f"{family!r} is none of {', '.join(FAMILIES)}"
        raise ValueError(msg)
    except (ValueError, KeyError) as error:
        msg = (
            f"{line!r} is no point: {error}; one is such as 'matmul bf16 4096x4096x4096 kk' or "
            "'attention bf16 64x2048x2048x128 causal'"
        )
        raise UsageError(msg) from error


def usual_points(families: Iterable[str]) -> list[ProductPoint | AttentionPoint]:
    """Return the points that a family is tuned at unless others are named."""
    return [parse_point(line) for family in families for line in _USUAL[family]]


def _parse_product(dtypes: str, sizes: tuple[int, ...], more: list[str]) -> ProductPoint:
    left, _, result = dtypes.partition("->")
    name, _, precision = left.partition("/")
    dtype, layout = _known(BY_NAME, name, RESULTS), more[0] if more else ""
    if layout not in ("kn", "kk", "mn", "mk") or more[1:] not in ([], ["epilogue"]):
        msg = "after the sizes comes kn, kk, mn or mk, then perhaps epilogue"
        raise ValueError(msg)
    if len(sizes) not in (3, 4):
        msg = "a product has three sizes, or four with a batch"
        raise ValueError(msg)
    m, n, k = sizes[-3:]
    return ProductPoint(
        dtype,
        _known(BY_NAME, result, RESULTS[dtype]) if result else RESULTS[dtype][0],
        _one_of(precision or "ieee", PRECISIONS if dtype == float32 else ("ieee",)),
        (sizes[0] if len(sizes) > 3 else 1, m, n, k),
        layout,
        has_epilogue=len(more) > 1,
    )


def _parse_attention(name: str, sizes: tuple[int, ...], more: list[str]) -> AttentionPoint:
    heads, queries, keys, dim = sizes
    for word in more:
        _one_of(word, ("causal", "bias"))
    return AttentionPoint(
        _known(BY_NAME, name, _TOLERANCES),
        (heads, queries, keys, dim),
        causal="causal" in more,
        has_bias="bias" in more,
    )


def _known(table: Mapping[str, DType], name: str, allowed: Iterable[DType]) -> DType:
    return table[_one_of(name, [str(dtype) for dtype in allowed])]


def _one_of(word: str, allowed: Iterable[str]) -> str:
    known = list(allowed)
    if word not in known:
        msg = f"{word!r} is none of {', '.join(known)}"
        raise ValueError(msg)
    return word


def _random(point: object, operand: Operand) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{point} {operand.name}".encode()))


# The sizes of square, deep and wide layers, of token and pair representations, and of few rows.
_SQUARES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "8192x8192x8192")
_LAYERS = (
    "8192x8192x1024",
    "16384x1280x5120",
    "65536x512x128",
    "65536x128x512",
    "128x8192x8192",
    *(f"{rows}x{width}x{width}" for width in (4096, 8192) for rows in (1, 8, 16, 64)),
)
_USUAL: dict[str, tuple[str, ...]] = {
    "matmul": (
        *(f"matmul bf16 {sizes} kk" for sizes in (*_SQUARES, *_LAYERS)),
        *(f"matmul bf16 {sizes} kn" for sizes in _SQUARES),
        *(f"matmul bf16 {sizes} kk epilogue" for sizes in _SQUARES[1:]),
        *(f"matmul f16 {sizes} kk" for sizes in _SQUARES),
        *(f"matmul f32/tf32 {sizes} kk" for sizes in _SQUARES[:4]),
        *(f"matmul f8e4m3 {sizes} kk" for sizes in _SQUARES[1:]),
    ),
    "attention": tuple(
        f"attention bf16 {sizes}{causal}"
        for sizes in (
            "64x4096x4096x128",
            "128x2048x2048x64",
            "256x1024x1024x64",
            "128x1024x1024x128",
            "128x1000x1000x128",
        )
        for causal in ("", " causal")
    ),
}
