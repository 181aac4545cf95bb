"""Elementwise functions of NVIDIA's libdevice, by their names there.

`libdevice {function = "pow"}` takes what one of the function's overloads says and gives its result,
element by element. `FUNCTIONS` is the one table: what an overload takes, what it gives, and its
symbol in libdevice without the `__nv_`. Accuracy is libdevice's (CUDA C++ Programming Guide,
appendix on mathematical functions) and is stated with each function of `tilewright.language`;
suffixes rn, rz, rd and ru are exact results rounded to nearest even, towards zero, down and up.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.abi.dtypes import (
    DType,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint32,
    uint64,
)
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import PointerType, element_dtype, element_type, shape_of

MODES = ("rn", "rz", "rd", "ru")


@dataclass(frozen=True, slots=True)
class Overload:
    """Dtypes of the operands and the result, and the symbol that computes it.

    A `result` of i1 is the symbol's i32 compared with 0.
    """

    operands: tuple[DType, ...]
    result: DType
    symbol: str


def overload_of(operation: Operation) -> Overload | None:
    """Return the overload that an operation names."""
    given = tuple(element_dtype(value.type) for value in operation.operands)
    for overload in FUNCTIONS.get(operation.attributes["function"], ()):
        if overload.operands == given:
            return overload
    return None


_UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "cospi"),
    *("cyl_bessel_i0", "cyl_bessel_i1", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp"),
    *("exp10", "exp2", "expm1", "floor", "lgamma", "log", "log10", "log1p", "log2", "logb"),
    *("nearbyint", "normcdf", "normcdfinv", "rcbrt", "rint", "round", "rsqrt", "sin", "sinh"),
    *("sinpi", "sqrt", "tan", "tanh", "tgamma", "trunc"),
)
_BINARY = (
    *("atan2", "copysign", "fdim", "fmod", "hypot", "nextafter", "pow", "remainder", "rhypot"),
)
_FAST_UNARY = ("cos", "exp10", "exp", "log10", "log2", "log", "sin", "tan", "tanh")
_PREDICATES = {
    "isnan": ("isnanf", "isnand"),
    "isinf": ("isinff", "isinfd"),
    "isfinite": ("finitef", "isfinited"),
    "signbit": ("signbitf", "signbitd"),
}
_FLOATS = ((float32, "f"), (float64, ""))


def _floats(name: str, count: int, extra: tuple[DType, ...] = ()) -> tuple[Overload, ...]:
    return tuple(
        Overload((*(dtype,) * count, *extra), dtype, name + suffix) for dtype, suffix in _FLOATS
    )


def _to_integer(name: str, result: DType) -> tuple[Overload, ...]:
    return tuple(Overload((dtype,), result, name + suffix) for dtype, suffix in _FLOATS)


def _rounded(name: str, count: int, mode: str) -> tuple[Overload, ...]:
    single, double = ("fmaf", "fma") if name == "fma" else (f"f{name}", f"d{name}")
    return (
        Overload((float32,) * count, float32, f"{single}_{mode}"),
        Overload((float64,) * count, float64, f"{double}_{mode}"),
    )


def _integers(
    count: int, symbols: Mapping[DType, str], result: DType | None = None
) -> tuple[Overload, ...]:
    return tuple(
        Overload((dtype,) * count, result or dtype, symbol) for dtype, symbol in symbols.items()
    )


_32 = (int32, uint32)
_64 = (int64, uint64)
_COUNTS = {"clz": ("clz", "clzll"), "ffs": ("ffs", "ffsll"), "popc": ("popc", "popcll")}
_SIGNED_OR_NOT = {"hadd": "uhadd", "rhadd": "urhadd", "mul24": "umul24"}

FUNCTIONS: Mapping[str, tuple[Overload, ...]] = MappingProxyType(
    {
        **{name: _floats(name, 1) for name in _UNARY},
        **{name: _floats(name, 2) for name in _BINARY},
        "pow": (*_floats("pow", 2), *_floats("powi", 1, (int32,))),
        **{name: _floats(name, 1, (int32,)) for name in ("ldexp", "scalbn")},
        "fma": _floats("fma", 3),
        **{name: _floats(name, 3) for name in ("norm3d", "rnorm3d")},
        **{name: _floats(name, 4) for name in ("norm4d", "rnorm4d")},
        "ilogb": _to_integer("ilogb", int32),
        **{name: _to_integer(name, int64) for name in ("llrint", "llround")},
        **{
            name: tuple(
                Overload((dtype,), int1, symbol)
                for (dtype, _), symbol in zip(_FLOATS, symbols, strict=True)
            )
            for name, symbols in _PREDICATES.items()
        },
        "saturatef": (Overload((float32,), float32, "saturatef"),),
        **{
            f"fast_{name}f": (Overload((float32,), float32, f"fast_{name}f"),)
            for name in _FAST_UNARY
        },
        "fast_powf": (Overload((float32,) * 2, float32, "fast_powf"),),
        "fast_dividef": (Overload((float32,) * 2, float32, "fast_fdividef"),),
        **{
            f"{name}_{mode}": _rounded(name, count, mode)
            for name, count in (
                *(("add", 2), ("sub", 2), ("mul", 2), ("div", 2)),
                *(("rcp", 1), ("sqrt", 1), ("fma", 3)),
            )
            for mode in MODES
        },
        **{
            name: _integers(1, dict.fromkeys(_32, narrow) | dict.fromkeys(_64, wide), int32)
            for name, (narrow, wide) in _COUNTS.items()
        },
        "brev": _integers(1, dict.fromkeys(_32, "brev") | dict.fromkeys(_64, "brevll")),
        "mulhi": _integers(
            2, {int32: "mulhi", uint32: "umulhi", int64: "mul64hi", uint64: "umul64hi"}
        ),
        **{
            signed: _integers(2, {int32: signed, uint32: unsigned})
            for signed, unsigned in _SIGNED_OR_NOT.items()
        },
        "byte_perm": _integers(3, dict.fromkeys(_32, "byte_perm")),
        "sad": tuple(
            Overload((dtype, dtype, uint32), uint32, symbol)
            for dtype, symbol in ((int32, "sad"), (uint32, "usad"))
        ),
    }
)


def _verify(operation: Operation) -> str | None:
    function = operation.attributes["function"]
    if function not in FUNCTIONS:
        return f"libdevice has no {function!r} here"
    values = (*operation.operands, operation.result)
    if any(isinstance(element_type(value.type), PointerType) for value in values):
        return "takes numbers"
    if len({shape_of(value.type) for value in values}) > 1:
        return "operands and result have one shape"
    overload = overload_of(operation)
    if overload is None:
        given = ", ".join(str(value.type) for value in operation.operands)
        return f"{function} has no overload for {given}"
    good = element_dtype(operation.result.type) == overload.result
    return None if good else f"{function} gives {overload.result}"


SPECS = (OperationSpec("libdevice", (1, 4), ("function",), verify=_verify),)
