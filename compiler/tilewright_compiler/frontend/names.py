"""Names that a kernel takes from outside, and attributes of what they name.

`tilewright.language.kernel` has already checked each name of the source; here its object becomes an
operand.
"""

from __future__ import annotations

import ast
from functools import partial
from types import ModuleType

from tilewright.abi.dtypes import DType
from tilewright.errors import CompileError, KernelNameError, KernelTypeError
from tilewright.language import captures
from tilewright.language.kernel import Kernel
from tilewright.language.registry import is_builtin, is_function
from tilewright.language.types import constexpr
from tilewright_compiler.frontend.builtins import descriptor
from tilewright_compiler.frontend.builtins import types as tile_attributes
from tilewright_compiler.frontend.operands import (
    Constant,
    FunctionReference,
    KernelReference,
    MethodReference,
    Namespace,
    Operand,
    TensorDescriptor,
    describe,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value

_DTYPE_ATTRIBUTES = ("name", "kind", "bits", "size_bytes", "is_float", "is_integer", "is_signed")

# What Triton calls these; the dtype of a pointer is here that of what it points to.
_DTYPE_WORDS = {"primitive_bitwidth": "bits", "itemsize": "size_bytes"}
_SAME_DTYPE = ("element_ty", "scalar")


def check_names(scope: Scope) -> None:
    """Resolve all names that the kernel takes from outside, adding the calls that led to it."""
    try:
        _ = scope.kernel.captures
    except CompileError as error:
        error.locations = (*error.locations, *scope.callers)
        raise


def captured(scope: Scope, name: str) -> Operand:
    """Return what a name means that the kernel takes from outside."""
    found = scope.kernel.captures
    if name not in found:
        # Python makes a name local to the whole function if any statement assigns it.
        msg = f"`{name}` is used before any statement that is lowered assigns it"
        raise KernelNameError(msg)
    return _operand(found[name], name)


def attribute(scope: Scope, operand: Operand, name: str) -> Operand:
    """Build `operand.name`."""
    match operand:
        case Namespace(module=module):
            return _operand(captures.attribute_of(module, name), f"{module.__name__}.{name}")
        case Value():
            return tile_attributes.attribute(scope, operand, name)
        case TensorDescriptor():
            return descriptor.attribute(scope, operand, name)
        case Constant(value=DType() as dtype) if name in _DTYPE_ATTRIBUTES:
            return Constant(getattr(dtype, name))
        case Constant(value=DType() as dtype) if name in _DTYPE_WORDS:
            return Constant(getattr(dtype, _DTYPE_WORDS[name]))
        case Constant(value=DType()) if name in _SAME_DTYPE:
            return operand
        case Constant(value=bool() | int() | float()) if name == "to":
            return MethodReference(name, operand)
        case Constant() if name == "value":
            return operand
        case Constant(value=DType() as dtype):
            msg = (
                f"dtype {dtype} has no attribute `{name}`; it has {', '.join(_DTYPE_ATTRIBUTES)}, "
                "and dtypes are compared by `==`"
            )
            raise KernelTypeError(msg)
    msg = f"{describe(operand)} has no attribute `{name}`"
    raise KernelTypeError(msg)


def is_constexpr_annotation(scope: Scope, annotation: ast.expr) -> bool:
    """Return whether an annotation is `tl.constexpr`, by whatever name it was imported."""
    text = ast.unparse(annotation)
    return captures.is_constexpr_annotation(text, partial(captures.look_up, scope.kernel.fn))


def is_tile_annotation(scope: Scope, annotation: ast.expr) -> bool:
    """Return whether an annotation is `tl.tensor`."""
    text = ast.unparse(annotation)
    return captures.is_tile_annotation(text, partial(captures.look_up, scope.kernel.fn))


def _operand(found: object, name: str) -> Operand:
    match found:
        case Kernel():
            return KernelReference(found)
        case constexpr():
            return Constant(found.value)
        case DType():
            return Constant(found)
        case ModuleType():
            return Namespace(found)
    if found is constexpr:
        return FunctionReference(constexpr, "tl.constexpr")
    if callable(found) and is_function(found):
        return FunctionReference(found, f"tl.{getattr(found, '__name__', name)}")
    if callable(found) and is_builtin(found):
        return FunctionReference(found, name)
    msg = (
        f"`{name}` is a Python {type(found).__name__}, which a kernel cannot use; a number must be"
        " marked "
        "tl.constexpr, a function decorated with @tl.kernel"
    )
    raise KernelNameError(msg)
