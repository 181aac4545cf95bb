"""The matrix instructions of a warp: what its lanes give each other, by `ptx_matrix`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from helpers import ptx_matrix
from helpers.ptx_arithmetic import Array
from helpers.ptx_program import Instruction, names_of

if TYPE_CHECKING:
    from helpers.ptx_interpreter import Machine

WARP = 32


def load_matrices(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Read matrices of 8 x 8 halves, whose rows the lanes name (ldmatrix)."""
    machine.check_whole_warps(instruction, threads)
    address = machine.address(instruction.operands[1], threads).reshape(-1, WARP)
    by_warp = threads.reshape(-1, WARP)
    for matrix, target in enumerate(names_of(instruction.operands[0])):
        lanes = slice(8 * matrix, 8 * matrix + 8)
        rows_at, readers = address[:, lanes].reshape(-1), by_warp[:, lanes].reshape(-1)
        machine.check_aligned(instruction, rows_at, 16)
        rows = machine.gather(instruction, readers, rows_at, 16).reshape(-1, 8, 16)
        words = ptx_matrix.matrix_words(rows, is_transposed="trans" in instruction.opcode)
        machine.write(target, threads, words.reshape(-1), "u32")


def store_matrices(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Write matrices of 8 x 8 halves, whose rows the lanes name (stmatrix)."""
    machine.check_whole_warps(instruction, threads)
    address = machine.address(instruction.operands[0], threads).reshape(-1, WARP)
    by_warp = threads.reshape(-1, WARP)
    for matrix, name in enumerate(names_of(instruction.operands[1])):
        lanes = slice(8 * matrix, 8 * matrix + 8)
        words = machine.read(name, threads, "u32").reshape(-1, WARP)
        rows = ptx_matrix.matrix_rows(words, is_transposed="trans" in instruction.opcode).reshape(
            -1, 16
        )
        writers = by_warp[:, lanes].reshape(-1)
        machine.scatter(instruction, writers, address[:, lanes].reshape(-1), rows)


def multiply(machine: Machine, instruction: Instruction, threads: Array) -> None:
    """Multiply fragments (mma.sync)."""
    machine.check_whole_warps(instruction, threads)
    *_, shape, _, _, d_type, a_type, b_type, c_type = instruction.opcode
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    registers = []
    for operand, type_ in zip(instruction.operands[1:], (a_type, b_type, c_type), strict=True):
        word = type_ if type_ in ("f64", "f32", "s32") else "u32"
        names = names_of(operand)
        registers.append([machine.read(name, threads, word).reshape(-1, WARP) for name in names])
    result = ptx_matrix.multiply((m, n, k), (a_type, b_type, c_type), *registers)
    for name, values in zip(names_of(instruction.operands[0]), result, strict=True):
        machine.write(name, threads, values.reshape(-1), d_type)


EXECUTE: dict[str, Callable[[Machine, Instruction, Array], None]] = {
    "ldmatrix": load_matrices,
    "stmatrix": store_matrices,
    "mma": multiply,
}
