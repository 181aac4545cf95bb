"""Functions of libdevice: the overload that a call means, and its operands as it takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import tilewright.language as tl
from tilewright.abi.dtypes import DType, float32, promote
from tilewright.errors import KernelTypeError
from tilewright.language.registry import FUNCTIONS as STUBS
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins.registry import Stub, implements
from tilewright_compiler.frontend.infer_types import common_shape, dtype_of_number
from tilewright_compiler.frontend.operands import Constant, Operand, describe
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.ops.libdevice import FUNCTIONS, Overload
from tilewright_compiler.ir.types import ScalarType, element_dtype, like

_PREFIX = "libdevice."
_BITS = {
    "float_as_int": (tl.float32, tl.int32),
    "float_as_uint": (tl.float32, tl.uint32),
    "int_as_float": (tl.int32, tl.float32),
    "uint_as_float": (tl.uint32, tl.float32),
    "double_as_longlong": (tl.float64, tl.int64),
    "longlong_as_double": (tl.int64, tl.float64),
}


def _implement(stub: Stub) -> None:
    name = stub.__name__.removeprefix(_PREFIX)

    def function(scope: Scope, *operands: Operand) -> Operand:
        return _call(scope, name, operands)

    _register(stub, function)


def _implement_bits(stub: Stub) -> None:
    name = stub.__name__.removeprefix(_PREFIX)
    source, target = _BITS[name]

    def function(scope: Scope, *operands: Operand) -> Operand:
        (x,) = operands
        if dtype_of_number(x, f"tl.libdevice.{name}") != source and isinstance(x, Value):
            msg = f"tl.libdevice.{name} takes {source}, got {describe(x)}"
            raise KernelTypeError(msg)
        value = convert.as_number(scope, x, source, f"tl.libdevice.{name}")
        return scope.builder.value("bitcast", (value,), like(value.type, ScalarType(target)))

    _register(stub, function)


def _register(stub: Stub, function: Callable[..., Operand]) -> None:
    """Register `function` under the parameters of the stub, which it takes in their order."""
    parameters = inspect.signature(stub).parameters

    def implementation(scope: Scope, **arguments: Operand) -> Operand:
        return function(scope, *(arguments[name] for name in parameters))

    signature = inspect.signature(stub)
    scope = inspect.Parameter("scope", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(implementation)["__signature__"] = signature.replace(
        parameters=(scope, *parameters.values())
    )
    implements(stub)(implementation)


def _call(scope: Scope, name: str, operands: tuple[Operand, ...]) -> Operand:
    what = f"tl.libdevice.{name}"
    overload = _overload(name, operands, what)
    shape = common_shape(operands)
    values = [
        convert.broadcast(scope, convert.as_number(scope, operand, dtype, what), shape)
        for operand, dtype in zip(operands, overload.operands, strict=True)
    ]
    type_ = like(values[0].type, ScalarType(overload.result))
    result = scope.builder.value("libdevice", values, type_, function=name)
    narrow = _narrow_result(operands, overload)
    return result if narrow is None else convert.cast(scope, result, narrow)


def _overload(name: str, operands: tuple[Operand, ...], what: str) -> Overload:
    """Return the first overload that the operands are, or else the first they can become.

    They become wider floats, and integers floats; integers stay what they are.
    """
    overloads = FUNCTIONS[name]
    dtypes = [dtype_of_number(operand, what) for operand in operands]
    for takes in (_is, _becomes):
        for overload in overloads:
            triples = zip(operands, dtypes, overload.operands, strict=True)
            if all(takes(operand, dtype, wanted) for operand, dtype, wanted in triples):
                return overload
    accepted = "; ".join(dict.fromkeys(", ".join(map(str, o.operands)) for o in overloads))
    given = ", ".join(map(describe, operands))
    msg = f"{what} takes {accepted}, got {given}; cast with .to(...)"
    raise KernelTypeError(msg)


def _is(operand: Operand, dtype: DType, wanted: DType) -> bool:
    if isinstance(operand, Constant):
        return wanted.is_float or dtype.is_integer
    return dtype == wanted


def _becomes(operand: Operand, dtype: DType, wanted: DType) -> bool:
    if isinstance(operand, Constant) or not dtype.has_arithmetic:
        return _is(operand, dtype, wanted)
    if not wanted.is_float:
        return dtype == wanted
    return promote(dtype, wanted) == wanted


def _narrow_result(operands: tuple[Operand, ...], overload: Overload) -> DType | None:
    """Return the 16-bit float in which the result is given, if the operands are of one."""
    if overload.result != float32:
        return None
    dtypes = {
        element_dtype(operand.type)
        for operand, dtype in zip(operands, overload.operands, strict=True)
        if isinstance(operand, Value) and dtype.is_float
    }
    narrow = dtypes.pop() if len(dtypes) == 1 else float32
    return narrow if narrow.is_float and narrow.bits == 16 else None


for _name in sorted(STUBS):
    if _name.startswith(_PREFIX):
        (_implement_bits if _name.removeprefix(_PREFIX) in _BITS else _implement)(STUBS[_name])
