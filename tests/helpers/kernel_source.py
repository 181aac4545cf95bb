"""Kernels written as text inside a test: written to a file, imported, lowered and run.

A text may hold what a linter refuses, and its lines are known: its first line is line 1.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy
from tilewright.abi.signature import (
    Constexpr,
    ConstexprValue,
    KernelSignature,
    Specialization,
    declared,
    parse_dtype,
)
from tilewright.language import Kernel
from tilewright.language.parameters import NO_DEFAULT
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.verifier import verify

PRELUDE = "import tilewright.language as tl"


def load_kernel(directory: Path, text: str) -> Kernel:
    """Return the last kernel that a text defines. `tl` is imported for it, on line 1."""
    # A file of its own for each text: Python caches the lines of a file by its name.
    count = len(list(directory.glob("kernels*.py")))
    path = directory / (f"kernels_{count}.py" if count else "kernels.py")
    source = textwrap.dedent(text).strip("\n") + "\n"
    path.write_text(source, encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "kernels"}
    exec(PRELUDE, namespace)
    exec(compile(source, str(path), "exec"), namespace)
    kernels = [value for value in namespace.values() if isinstance(value, Kernel)]
    return max(kernels, key=lambda kernel: kernel.location.line)


def signature_of(
    kernel: Kernel,
    parameters: Mapping[str, ConstexprValue],
    *,
    specialization: Specialization = "general",
    num_warps: int = 4,
) -> KernelSignature:
    """Return a signature: `"*f32"` is a pointer, `"i64"` a scalar, a constexpr its value."""
    declarations: dict[str, DType | tuple[DType] | Constexpr] = {}
    for parameter in kernel.parameters:
        given = parameters.get(parameter.name, parameter.default)
        assert given is not NO_DEFAULT, f"the test gives no type for {parameter.name}"
        if parameter.is_constexpr:
            declarations[parameter.name] = Constexpr(given)
            continue
        assert isinstance(given, str)
        dtype = parse_dtype(given.lstrip("*"))
        declarations[parameter.name] = (dtype,) if given.startswith("*") else dtype
    return declared(
        declarations,
        rule=kernel.rule,
        specialization=specialization,
        num_warps=num_warps,
        num_stages=3,
    )


def lower_text(
    directory: Path,
    text: str,
    *,
    specialization: Specialization = "general",
    **parameters: ConstexprValue,
) -> Module:
    """Lower the last kernel of a text and verify the result."""
    kernel = load_kernel(directory, text)
    module = lower_kernel(kernel, signature_of(kernel, parameters, specialization=specialization))
    verify(module)
    return module


def run_text(
    directory: Path,
    text: str,
    arguments: Mapping[str, Any],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    **constexprs: ConstexprValue,
) -> None:
    """Lower the last kernel of a text for the types of `arguments`, and interpret it on them."""
    types: dict[str, ConstexprValue] = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            types[name] = f"*{from_numpy(value.dtype)}"
        elif isinstance(value, np.generic):
            types[name] = str(from_numpy(value.dtype))
        else:
            types[name] = {bool: "i1", int: "i64", float: "f32"}[type(value)]
    kernel = load_kernel(directory, text)
    module = lower_kernel(kernel, signature_of(kernel, {**types, **constexprs}))
    verify(module)
    run(module, grid=grid, arguments=arguments)
