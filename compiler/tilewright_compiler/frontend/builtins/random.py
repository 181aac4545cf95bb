"""Philox from multiplications and xors, and what is made of its words.

Rounds are unrolled. Words that are known stay numbers, so that a counter's zeros cost nothing.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.abi.dtypes import DType, float32, int32, int64, uint32, uint64
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments, math
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import common_dtype, common_shape
from tilewright_compiler.frontend.operands import Constant, Operand, TupleOperand, describe
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, like

_MAX_ROUNDS = 16
_ZERO = Constant(0)


@dataclass(frozen=True, slots=True)
class _Form:
    """Philox of words of one width (Salmon et al., "Parallel random numbers", 2011, table 2).

    `multipliers` are for the first and third word, `weyl` is added to the two keys each round;
    `scale` takes the largest signed number below 1.
    """

    dtype: DType
    signed: DType
    multipliers: tuple[int, int]
    weyl: tuple[int, int]
    scale: float


_WORDS_32 = _Form(
    uint32, int32, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 4.6566127342e-10
)
_WORDS_64 = _Form(
    uint64,
    int64,
    (0xD2E7470EE14C6C93, 0xCA5A826395121157),
    (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
    1.0842020432385337e-19,
)


@implements(tl.philox)
def philox(
    scope: Scope,
    seed: Operand,
    c0: Operand,
    c1: Operand,
    c2: Operand,
    c3: Operand,
    n_rounds: Operand,
) -> Operand:
    """Build the four words of a counter."""
    dtype = _integer_dtype((c0, c1, c2, c3), "a counter of tl.philox")
    form = _WORDS_64 if dtype.bits == 64 else _WORDS_32
    counter = [_word(scope, word, form) for word in (c0, c1, c2, c3)]
    return TupleOperand(_rounds(scope, seed, counter, form, n_rounds, "tl.philox"))


@implements(tl.randint4x)
def randint4x(scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand) -> Operand:
    """Build four words for each offset."""
    return TupleOperand(_words_at(scope, seed, offset, n_rounds, "tl.randint4x"))


@implements(tl.randint)
def randint(scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand) -> Operand:
    """Build a word for each offset."""
    return _words_at(scope, seed, offset, n_rounds, "tl.randint")[0]


@implements(tl.rand4x)
def rand4x(scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand) -> Operand:
    """Build four uniform numbers for each offset."""
    words = _words_at(scope, seed, offset, n_rounds, "tl.rand4x")
    return TupleOperand(tuple(_uniform(scope, word) for word in words))


@implements(tl.rand)
def rand(scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand) -> Operand:
    """Build a uniform number for each offset."""
    return _uniform(scope, _words_at(scope, seed, offset, n_rounds, "tl.rand")[0])


@implements(tl.randn4x)
def randn4x(scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand) -> Operand:
    """Build four normal numbers for each offset."""
    words = _words_at(scope, seed, offset, n_rounds, "tl.randn4x")
    first, second, third, fourth = (_uniform(scope, word) for word in words)
    return TupleOperand((*_normal(scope, first, second), *_normal(scope, third, fourth)))


@implements(tl.randn)
def randn(scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand) -> Operand:
    """Build a normal number for each offset."""
    first, second, *_ = _words_at(scope, seed, offset, n_rounds, "tl.randn")
    return _normal(scope, _uniform(scope, first), _uniform(scope, second))[0]


@implements(tl.uint_to_uniform_float)
def uint_to_uniform_float(scope: Scope, x: Operand) -> Operand:
    """Build a number in [0, 1) of each integer."""
    dtype = _integer_dtype((x,), "`x` of tl.uint_to_uniform_float")
    if dtype.bits < 32:
        msg = f"tl.uint_to_uniform_float takes integers of 32 or 64 bits, got {describe(x)}"
        raise KernelTypeError(msg)
    return _uniform(scope, convert.as_value(scope, x))


@implements(tl.pair_uniform_to_normal)
def pair_uniform_to_normal(scope: Scope, u1: Operand, u2: Operand) -> Operand:
    """Build two normal numbers of two uniform ones."""
    common_dtype((u1, u2), "tl.pair_uniform_to_normal")
    return TupleOperand(_normal(scope, u1, u2))


def _words_at(
    scope: Scope, seed: Operand, offset: Operand, n_rounds: Operand, what: str
) -> tuple[Operand, ...]:
    """Build the words of the counter (low half of the offset, high half, 0, 0)."""
    dtype = _integer_dtype((offset,), f"`offset` of {what}")
    low = _word(scope, offset, _WORDS_32)
    high: Operand = _ZERO
    if dtype.bits == 64:
        high = _word(scope, _upper_half(scope, offset), _WORDS_32)
    return _rounds(scope, seed, [low, high, _ZERO, _ZERO], _WORDS_32, n_rounds, what)


def _rounds(
    scope: Scope,
    seed: Operand,
    counter: list[Operand],
    form: _Form,
    n_rounds: Operand,
    what: str,
) -> tuple[Operand, ...]:
    count = arguments.integer(n_rounds, f"`n_rounds` of {what}")
    if not 1 <= count <= _MAX_ROUNDS:
        msg = f"`n_rounds` of {what} is {count}; it is 1 to {_MAX_ROUNDS}, and 10 for full quality"
        raise KernelValueError(msg)
    keys = _keys(scope, seed, form, what)
    first, second, third, fourth = counter
    for _ in range(count):
        wide_first = _product(scope, first, form.multipliers[0], form)
        wide_third = _product(scope, third, form.multipliers[1], form)
        first = _xor(scope, _xor(scope, wide_third[0], second, form), keys[0], form)
        third = _xor(scope, _xor(scope, wide_first[0], fourth, form), keys[1], form)
        second, fourth = wide_third[1], wide_first[1]
        keys = [_sum(scope, key, step, form) for key, step in zip(keys, form.weyl, strict=True)]
    shape = common_shape((first, second, third, fourth))
    return tuple(
        convert.broadcast(scope, convert.as_number(scope, word, form.dtype, what), shape)
        for word in (first, second, third, fourth)
    )


def _keys(scope: Scope, seed: Operand, form: _Form, what: str) -> list[Operand]:
    dtype = _integer_dtype((seed,), f"`seed` of {what}")
    if form is _WORDS_64:
        return [_word(scope, seed, form), _ZERO]
    if isinstance(seed, Value) and dtype.bits < 64:
        seed = convert.cast(scope, seed, int64)
    return [_word(scope, seed, form), _word(scope, _upper_half(scope, seed), form)]


def _upper_half(scope: Scope, operand: Operand) -> Operand:
    if isinstance(operand, Constant):
        return Constant(_number(operand) >> 32)
    return operators.binary(scope, ">>", operand, Constant(32))


def _word(scope: Scope, operand: Operand, form: _Form) -> Operand:
    """Return the lowest bits as a word; a known one stays a number."""
    if isinstance(operand, Constant):
        return Constant(_number(operand) & (1 << form.dtype.bits) - 1)
    return convert.as_number(scope, operand, form.dtype, "tl.philox")


def _product(scope: Scope, word: Operand, multiplier: int, form: _Form) -> tuple[Operand, Operand]:
    """Build the upper and the lower half of a product."""
    if isinstance(word, Constant):
        high, low = divmod(_number(word) * multiplier, 1 << form.dtype.bits)
        return Constant(high), Constant(low)
    operands = (word, Constant(multiplier))
    high_half = operators.elementwise(scope, "mulhi", operands, form.dtype, "tl.philox")
    return high_half, operators.elementwise(scope, "mul", operands, form.dtype, "tl.philox")


def _xor(scope: Scope, left: Operand, right: Operand, form: _Form) -> Operand:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(_number(left) ^ _number(right))
    if left == _ZERO:
        return right
    if right == _ZERO:
        return left
    return operators.elementwise(scope, "xor", (left, right), form.dtype, "tl.philox")


def _sum(scope: Scope, key: Operand, step: int, form: _Form) -> Operand:
    if isinstance(key, Constant):
        return Constant((_number(key) + step) & (1 << form.dtype.bits) - 1)
    return operators.elementwise(scope, "add", (key, Constant(step)), form.dtype, "tl.philox")


def _uniform(scope: Scope, word: Operand) -> Value:
    assert isinstance(word, Value)
    form = _WORDS_64 if element_dtype(word.type).bits == 64 else _WORDS_32
    signed = word
    if element_dtype(word.type) != form.signed:
        signed = scope.builder.value("bitcast", (word,), like(word.type, ScalarType(form.signed)))
    is_negative = operators.compare(scope, "<", signed, _ZERO)
    positive = math.where(scope, is_negative, operators.invert(scope, signed), signed)
    number = convert.as_number(scope, positive, float32, "tl.rand")
    return operators.elementwise(scope, "mul", (number, Constant(form.scale)), float32, "tl.rand")


def _normal(scope: Scope, u1: Operand, u2: Operand) -> tuple[Operand, Operand]:
    radius_from = math.extremum(scope, "max", u1, Constant(1.0e-7), "tl.randn")
    angle = operators.binary(scope, "*", u2, Constant(6.283185307179586))
    squared = operators.binary(scope, "*", math.log(scope, radius_from), Constant(-2.0))
    radius = math.sqrt(scope, squared)
    return (
        operators.binary(scope, "*", radius, math.cos(scope, angle)),
        operators.binary(scope, "*", radius, math.sin(scope, angle)),
    )


def _integer_dtype(operands: tuple[Operand, ...], what: str) -> DType:
    dtype = common_dtype(operands, what)
    if not dtype.is_integer:
        described = ", ".join(map(describe, operands))
        msg = f"{what} is an integer, got {described}"
        raise KernelTypeError(msg)
    return dtype


def _number(operand: Constant) -> int:
    assert isinstance(operand.value, int)
    return operand.value
