"""Functions of NVIDIA's libdevice, for what `tl` has no name for, or another accuracy.

`tl.libdevice.pow(x, y)`. Functions of floats compute in f32 or f64; f16 and bf16 are computed in
f32 and rounded once, integers are taken as f32 where a float is wanted. Operands broadcast. "n ulp"
is the largest distance from the right result in units in the last place, as NVIDIA states it; the
interpreter computes in f64 and rounds. Not here are Bessel functions of the second kind and of
other orders, functions of several results, and conversions, which `x.to(...)` has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile

__all__ = [
    "acos", "acosh", "add_rd", "add_rn", "add_ru", "add_rz", "asin", "asinh", "atan", "atan2",
    "atanh", "brev", "byte_perm", "cbrt", "ceil", "clz", "copysign", "cos", "cosh", "cospi",
    "cyl_bessel_i0", "cyl_bessel_i1", "div_rd", "div_rn", "div_ru", "div_rz",
    "double_as_longlong", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp", "exp2", "exp10",
    "expm1", "fast_cosf", "fast_dividef", "fast_exp10f", "fast_expf", "fast_log2f", "fast_log10f",
    "fast_logf", "fast_powf", "fast_sinf", "fast_tanf", "fast_tanhf", "fdim", "ffs",
    "float_as_int", "float_as_uint", "floor", "fma", "fma_rd", "fma_rn", "fma_ru", "fma_rz",
    "fmod", "hadd", "hypot", "ilogb", "int_as_float", "isfinite", "isinf", "isnan", "ldexp",
    "lgamma", "llrint", "llround", "log", "log1p", "log2", "log10", "logb", "longlong_as_double",
    "mul24", "mul_rd", "mul_rn", "mul_ru", "mul_rz", "mulhi", "nearbyint", "nextafter", "norm3d",
    "norm4d", "normcdf", "normcdfinv", "popc", "pow", "rcbrt", "rcp_rd", "rcp_rn", "rcp_ru",
    "rcp_rz", "remainder", "rhadd", "rhypot", "rint", "rnorm3d", "rnorm4d", "round", "rsqrt",
    "sad", "saturatef", "scalbn", "signbit", "sin", "sinh", "sinpi", "sqrt", "sqrt_rd", "sqrt_rn",
    "sqrt_ru", "sqrt_rz", "sub_rd", "sub_rn", "sub_ru", "sub_rz", "tan", "tanh", "tgamma",
    "trunc", "uint_as_float",
]  # fmt: skip


def _function(name: str, document: str, parameters: str = "x") -> Callable[..., Tile]:
    """Put the stub of a function on the list, under its name with `libdevice.` before it."""

    def stub(*operands: Operand) -> Tile:
        del operands
        outside_kernel(stub)

    names = parameters.split(", ")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(stub)["__signature__"] = inspect.Signature(
        [inspect.Parameter(each, kind, annotation="Operand") for each in names],
        return_annotation="Tile",
    )
    stub.__name__ = stub.__qualname__ = f"libdevice.{name}"
    stub.__annotations__ = {**dict.fromkeys(names, "Operand"), "return": "Tile"}
    stub.__doc__ = document
    return operation(stub)


acos = _function("acos", "Return the arc cosine in [0, pi]; NaN beyond -1 and 1: 2 ulp.")
acosh = _function(
    "acosh", "Return the inverse hyperbolic cosine; NaN below 1: 4 ulp in f32, 3 in f64."
)
asin = _function("asin", "Return the arc sine in [-pi/2, pi/2]; NaN beyond -1 and 1: 2 ulp.")
asinh = _function("asinh", "Return the inverse hyperbolic sine: 3 ulp.")
atan = _function("atan", "Return the arc tangent in [-pi/2, pi/2]: 2 ulp.")
atanh = _function(
    "atanh", "Return the inverse hyperbolic tangent; NaN beyond -1 and 1: 3 ulp in f32, 2 in f64."
)
cbrt = _function("cbrt", "Return the cube root, of negative numbers too: 1 ulp.")
ceil = _function("ceil", "Return the smallest integer not below `x`, as a float: exact.")
cos = _function("cos", "Return the cosine of `x` in radians, of any size: 2 ulp.")
cosh = _function("cosh", "Return the hyperbolic cosine: 2 ulp in f32, 1 in f64.")
cospi = _function(
    "cospi", "Return the cosine of `pi x`: exact at multiples of 1/2, 1 ulp in f32, 2 in f64."
)
cyl_bessel_i0 = _function(
    "cyl_bessel_i0", "Return the modified Bessel function of the first kind of order 0: 6 ulp."
)
cyl_bessel_i1 = _function(
    "cyl_bessel_i1", "Return the modified Bessel function of the first kind of order 1: 6 ulp."
)
erf = _function("erf", "Return the error function: 2 ulp.")
erfc = _function(
    "erfc", "Return the complement of the error function, `1 - erf(x)`: 4 ulp in f32, 5 in f64."
)
erfcinv = _function(
    "erfcinv", "Return the inverse of `erfc`; NaN beyond 0 and 2: 4 ulp in f32, 6 in f64."
)
erfcx = _function(
    "erfcx", "Return the scaled complement of the error function, `exp(x * x) * erfc(x)`: 4 ulp."
)
erfinv = _function(
    "erfinv", "Return the inverse of `erf`; NaN beyond -1 and 1: 2 ulp in f32, 5 in f64."
)
exp = _function("exp", "Return `e ** x`: 2 ulp in f32, 1 in f64.")
exp10 = _function("exp10", "Return `10 ** x`: 2 ulp in f32, 1 in f64.")
exp2 = _function("exp2", "Return `2 ** x`: 2 ulp in f32, 1 in f64.")
expm1 = _function("expm1", "Return `e ** x - 1`, also where `x` is small: 1 ulp.")
floor = _function("floor", "Return the largest integer not above `x`, as a float: exact.")
lgamma = _function(
    "lgamma",
    "Return the logarithm of the magnitude of the gamma function; f32 outside "
    "(-10.001, -2.264): 6 ulp in f32, 4 in f64.",
)
log = _function("log", "Return the natural logarithm: 1 ulp.")
log10 = _function("log10", "Return the logarithm to base 10: 2 ulp in f32, 1 in f64.")
log1p = _function(
    "log1p", "Return the natural logarithm of `1 + x`, also where `x` is small: 1 ulp."
)
log2 = _function("log2", "Return the logarithm to base 2: 1 ulp.")
logb = _function("logb", "Return the exponent of `x` to base 2, as a float; -inf at 0: exact.")
nearbyint = _function(
    "nearbyint", "Return `x` rounded to an integer, ties to even, as a float: exact."
)
normcdf = _function(
    "normcdf", "Return the cumulative distribution function of the normal distribution: 5 ulp."
)
normcdfinv = _function(
    "normcdfinv", "Return the inverse of `normcdf`; NaN beyond 0 and 1: 5 ulp in f32, 8 in f64."
)
rcbrt = _function("rcbrt", "Return `1 / cbrt(x)`: 1 ulp.")
rint = _function("rint", "Return `x` rounded to an integer, ties to even, as a float: exact.")
round = _function(
    "round", "Return `x` rounded to an integer, ties away from zero, as a float: exact."
)
rsqrt = _function("rsqrt", "Return `1 / sqrt(x)`: 2 ulp in f32, 1 in f64.")
sin = _function("sin", "Return the sine of `x` in radians, of any size: 2 ulp.")
sinh = _function("sinh", "Return the hyperbolic sine: 3 ulp in f32, 2 in f64.")
sinpi = _function(
    "sinpi", "Return the sine of `pi x`: exact at multiples of 1/2, 1 ulp in f32, 2 in f64."
)
sqrt = _function("sqrt", "Return the square root: exact.")
tan = _function("tan", "Return the tangent of `x` in radians, of any size: 4 ulp in f32, 2 in f64.")
tanh = _function("tanh", "Return the hyperbolic tangent: 2 ulp in f32, 1 in f64.")
tgamma = _function(
    "tgamma", "Return the gamma function; NaN at negative integers: 5 ulp in f32, 10 in f64."
)
trunc = _function("trunc", "Return `x` rounded to an integer towards zero, as a float: exact.")
atan2 = _function(
    "atan2", "Return the angle of the point `(y, x)` in [-pi, pi]: 3 ulp in f32, 2 in f64.", "x, y"
)
copysign = _function("copysign", "Return the magnitude of `x` with the sign of `y`: exact.", "x, y")
fdim = _function("fdim", "Return `x - y` where that is positive, else 0: exact.", "x, y")
fmod = _function(
    "fmod", "Return the remainder of `x / y` truncated, with the sign of `x`: exact.", "x, y"
)
hypot = _function(
    "hypot", "Return `sqrt(x * x + y * y)` without overflow: 3 ulp in f32, 2 in f64.", "x, y"
)
nextafter = _function("nextafter", "Return the float next to `x` towards `y`: exact.", "x, y")
pow = _function(
    "pow",
    "Return `x ** y`; `y` may be an int32, then by repeated multiplication: 4 ulp in "
    "f32, 2 in f64.",
    "x, y",
)
remainder = _function(
    "remainder",
    "Return `x - n y` with `n` the integer nearest to `x / y`, ties to even: exact.",
    "x, y",
)
rhypot = _function("rhypot", "Return `1 / hypot(x, y)`: 2 ulp in f32, 1 in f64.", "x, y")
ldexp = _function("ldexp", "Return `x * 2 ** n`; `n` is an int32: exact.", "x, n")
scalbn = _function("scalbn", "Return `x * 2 ** n`; `n` is an int32: exact.", "x, n")
fma = _function("fma", "Return `x * y + z` rounded once: exact.", "x, y, z")
norm3d = _function(
    "norm3d",
    "Return `sqrt(x * x + y * y + z * z)` without overflow: 3 ulp in f32, 2 in f64.",
    "x, y, z",
)
rnorm3d = _function("rnorm3d", "Return `1 / norm3d(x, y, z)`: 2 ulp in f32, 1 in f64.", "x, y, z")
norm4d = _function(
    "norm4d",
    "Return the length of `(x, y, z, t)` without overflow: 3 ulp in f32, 2 in f64.",
    "x, y, z, t",
)
rnorm4d = _function(
    "rnorm4d", "Return `1 / norm4d(x, y, z, t)`: 2 ulp in f32, 1 in f64.", "x, y, z, t"
)

ilogb = _function(
    "ilogb",
    "Return the exponent of `x` to base 2 as an int32; the lowest int32 at 0 and NaN, "
    "the highest at infinity.",
)
llrint = _function("llrint", "Return `x` rounded to an int64, ties to even.")
llround = _function("llround", "Return `x` rounded to an int64, ties away from zero.")
isnan = _function("isnan", "Return whether `x` is NaN, an int1.")
isinf = _function("isinf", "Return whether `x` is infinite, an int1.")
isfinite = _function("isfinite", "Return whether `x` is neither infinite nor NaN, an int1.")
signbit = _function("signbit", "Return whether the sign of `x` is set, of -0 and NaN too, an int1.")
saturatef = _function("saturatef", "Return the f32 `x` clamped to [0, 1]; 0 for NaN.")

fast_cosf = _function(
    "fast_cosf", "Return approximately, in f32, the cosine, absolute error 2**-21 in [-pi, pi]."
)
fast_sinf = _function(
    "fast_sinf", "Return approximately, in f32, the sine, absolute error 2**-21 in [-pi, pi]."
)
fast_tanf = _function("fast_tanf", "Return approximately, in f32, `fast_sinf(x) / fast_cosf(x)`.")
fast_expf = _function("fast_expf", "Return approximately, in f32, `e ** x`, 2 + 1.2 |x| ulp.")
fast_exp10f = _function("fast_exp10f", "Return approximately, in f32, `10 ** x`, 2 + 3 |x| ulp.")
fast_logf = _function(
    "fast_logf",
    "Return approximately, in f32, the natural logarithm, absolute error 2**-21 in "
    "[0.5, 2], else 3 ulp.",
)
fast_log2f = _function(
    "fast_log2f",
    "Return approximately, in f32, the logarithm to base 2, absolute error 2**-22 in "
    "[0.5, 2], else 2 ulp.",
)
fast_log10f = _function(
    "fast_log10f",
    "Return approximately, in f32, the logarithm to base 10, absolute error 2**-22 in "
    "[0.5, 2], else 3 ulp.",
)
fast_tanhf = _function(
    "fast_tanhf", "Return approximately, in f32, the hyperbolic tangent, relative error 2**-10.9."
)
fast_powf = _function("fast_powf", "Return approximately, in f32, `exp2(y * log2(x))`.", "x, y")
fast_dividef = _function(
    "fast_dividef",
    "Return approximately, in f32, `x / y`: 2 ulp for `2**-126 <= |y| <= 2**126`, else 0 may come.",
    "x, y",
)

add_rn = _function("add_rn", "Return `x + y` rounded to nearest even.", "x, y")
add_rz = _function("add_rz", "Return `x + y` rounded towards zero.", "x, y")
add_rd = _function("add_rd", "Return `x + y` rounded down.", "x, y")
add_ru = _function("add_ru", "Return `x + y` rounded up.", "x, y")
sub_rn = _function("sub_rn", "Return `x - y` rounded to nearest even.", "x, y")
sub_rz = _function("sub_rz", "Return `x - y` rounded towards zero.", "x, y")
sub_rd = _function("sub_rd", "Return `x - y` rounded down.", "x, y")
sub_ru = _function("sub_ru", "Return `x - y` rounded up.", "x, y")
mul_rn = _function("mul_rn", "Return `x * y` rounded to nearest even.", "x, y")
mul_rz = _function("mul_rz", "Return `x * y` rounded towards zero.", "x, y")
mul_rd = _function("mul_rd", "Return `x * y` rounded down.", "x, y")
mul_ru = _function("mul_ru", "Return `x * y` rounded up.", "x, y")
div_rn = _function("div_rn", "Return `x / y` rounded to nearest even.", "x, y")
div_rz = _function("div_rz", "Return `x / y` rounded towards zero.", "x, y")
div_rd = _function("div_rd", "Return `x / y` rounded down.", "x, y")
div_ru = _function("div_ru", "Return `x / y` rounded up.", "x, y")
rcp_rn = _function("rcp_rn", "Return `1 / x` rounded to nearest even.")
rcp_rz = _function("rcp_rz", "Return `1 / x` rounded towards zero.")
rcp_rd = _function("rcp_rd", "Return `1 / x` rounded down.")
rcp_ru = _function("rcp_ru", "Return `1 / x` rounded up.")
sqrt_rn = _function("sqrt_rn", "Return `sqrt(x)` rounded to nearest even.")
sqrt_rz = _function("sqrt_rz", "Return `sqrt(x)` rounded towards zero.")
sqrt_rd = _function("sqrt_rd", "Return `sqrt(x)` rounded down.")
sqrt_ru = _function("sqrt_ru", "Return `sqrt(x)` rounded up.")
fma_rn = _function("fma_rn", "Return `x * y + z` rounded to nearest even.", "x, y, z")
fma_rz = _function("fma_rz", "Return `x * y + z` rounded towards zero.", "x, y, z")
fma_rd = _function("fma_rd", "Return `x * y + z` rounded down.", "x, y, z")
fma_ru = _function("fma_ru", "Return `x * y + z` rounded up.", "x, y, z")

clz = _function("clz", "Return the number of leading zeros of a 32- or 64-bit integer, an int32.")
popc = _function("popc", "Return the number of bits set in a 32- or 64-bit integer, an int32.")
ffs = _function(
    "ffs",
    "Return the place of the lowest bit set in a 32- or 64-bit integer, from 1; 0 for 0; an int32.",
)
brev = _function("brev", "Return the bits of a 32- or 64-bit integer in reverse order.")
mulhi = _function(
    "mulhi",
    "Return the upper half of the product of two 32- or 64-bit integers, by their sign.",
    "x, y",
)
mul24 = _function(
    "mul24",
    "Return the lower 32 bits of the product of the lower 24 bits of two integers, by their sign.",
    "x, y",
)
hadd = _function(
    "hadd", "Return the mean of two 32-bit integers without overflow, rounded down.", "x, y"
)
rhadd = _function(
    "rhadd", "Return the mean of two 32-bit integers without overflow, rounded up.", "x, y"
)
sad = _function(
    "sad", "Return `|x - y| + z` of 32-bit integers `x` and `y`, a uint32 as `z` is.", "x, y, z"
)
byte_perm = _function(
    "byte_perm",
    "Return the bytes of the eight of `x`, then `y`, that the four lowest digits of `s` name.",
    "x, y, s",
)
float_as_int = _function("float_as_int", "Return the bits of an f32 as an int32.")
float_as_uint = _function("float_as_uint", "Return the bits of an f32 as a uint32.")
int_as_float = _function("int_as_float", "Return the f32 that has the bits of an int32.")
uint_as_float = _function("uint_as_float", "Return the f32 that has the bits of a uint32.")
double_as_longlong = _function("double_as_longlong", "Return the bits of an f64 as an int64.")
longlong_as_double = _function(
    "longlong_as_double", "Return the f64 that has the bits of an int64."
)
