"""Runs a random program in the interpreter and returns what it left in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strategies import PROGRAMS, REGION, Program
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import Pointer
from tilewright_compiler.interpret import tile
from tilewright_compiler.ir.core import Module


def run_program(program: Program, module: Module) -> dict[str, npt.NDArray[np.generic]]:
    """Run `module`, a form of the program's own, and return its output arrays by name."""
    random = np.random.default_rng(0)
    arguments: dict[str, npt.NDArray[np.generic] | int] = {"n": program.n, "m": program.m}
    for name, parameter in module.signature.runtime:
        if isinstance(parameter, Pointer):
            values = random.integers(-8, 8, PROGRAMS * REGION)
            if name.startswith("out_"):
                values[:] = 0
            arguments[name] = values.astype(to_numpy(parameter.dtype))
    tile.run(module, grid=(PROGRAMS, 1, 1), arguments=arguments)
    outputs = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in outputs.items() if name.startswith("out_")}
