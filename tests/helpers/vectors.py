"""Vectors: inputs and right results of operations, as data that the interpreter and a GPU share.

A family is one file, `tests/vectors/<family>.toml`, of entries like

    [[vector]]
    name = "division truncates"
    expression = "a // b"
    a = { i32 = [7, -7, -2147483648] }
    b = { i32 = [2, 2, -1] }
    result = { i32 = [3, -3, -2147483648] }

An array `{ dtype = values }` is a tile parameter of the kernel that the entry becomes, a single
value a run-time scalar; `result`, `result_1`, ... are what the expression (then a tuple) gives.
`statements` may come before the expression and `constants` (a table) are compile-time values.
Values are numbers, `nan`, `inf`, bools, or strings such as "0x1.8p3" for exact floats. Extents are
powers of two, but when all arrays have one axis of one length: then lanes are added and not looked
at. Results are compared by their bits, any NaN equal to any other; `ulps` allows so many steps
between neighbouring floats.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from helpers.written_kernel import written_kernel
from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import parse_dtype
from tilewright.language import Kernel

DIRECTORY = Path(__file__).parent.parent / "vectors"
Array = np.ndarray[Any, np.dtype[Any]]
_WORDS = ("name", "expression", "statements", "constants", "ulps")


@dataclass(frozen=True, slots=True)
class Vector:
    """One entry: what is computed, on what, and what it must give."""

    family: str
    name: str
    expression: str
    statements: str
    constants: Mapping[str, Any]
    inputs: Mapping[str, Array]
    results: tuple[Array, ...]
    ulps: int

    def __str__(self) -> str:
        return f"{self.family}-{self.name}".replace(" ", "-")


def families() -> tuple[str, ...]:
    """Return the names of all families that have a file."""
    return tuple(sorted(path.stem for path in DIRECTORY.glob("*.toml")))


def load_vectors(family: str) -> tuple[Vector, ...]:
    """Return the vectors of a family."""
    text = (DIRECTORY / f"{family}.toml").read_text(encoding="utf-8")
    return tuple(_vector(family, entry) for entry in tomllib.loads(text)["vector"])


def run_vector(vector: Vector, *, on_device: bool) -> tuple[Array, ...]:
    """Return what the kernel of a vector gives, interpreted or on the GPU."""
    from tilewright.runtime.memory import from_numpy

    kernel, inputs, outputs = kernel_and_arrays(vector)
    arrays: list[Any] = [*(array if array.ndim else array[()] for array in inputs), *outputs]
    if on_device:
        arrays = [from_numpy(a) if isinstance(a, np.ndarray) else a for a in arrays]
    kernel[1](*arrays, **vector.constants)
    found = arrays[len(inputs) :]
    given = [array.numpy() for array in found] if on_device else found
    return tuple(
        np.asarray(array)[: result.size].reshape(result.shape)
        for array, result in zip(given, vector.results, strict=True)
    )


def kernel_and_arrays(vector: Vector) -> tuple[Kernel, list[Array], list[Array]]:
    """Return the kernel of a vector with its inputs (scalars have no axes) and poisoned outputs."""
    inputs = [_padded(array) for array in vector.inputs.values()]
    return _kernel(vector), inputs, [_poisoned(result) for result in vector.results]


def differences(vector: Vector, found: tuple[Array, ...]) -> list[str]:
    """Return a line for each element that is not what the vector says."""
    lines = []
    for number, (got, expected) in enumerate(zip(found, vector.results, strict=True)):
        assert got.dtype == expected.dtype
        for place in np.ndindex(expected.shape):
            if not _agree(got[place], expected[place], vector.ulps):
                inputs = ", ".join(
                    f"{name} = {value[place] if value.shape == expected.shape else value}"
                    for name, value in vector.inputs.items()
                )
                lines.append(
                    f"{vector}: result {number} at {place} is {got[place]!r}, expected "
                    f"{expected[place]!r}, for {inputs}"
                )
    return lines


def _vector(family: str, entry: Mapping[str, Any]) -> Vector:
    arrays = {name: _array(value) for name, value in entry.items() if name not in _WORDS}
    results = tuple(array for name, array in arrays.items() if name.startswith("result"))
    assert results, f"{family}: {entry['name']} has no result"
    inputs = {name: array for name, array in arrays.items() if not name.startswith("result")}
    return Vector(
        family,
        entry["name"],
        entry["expression"],
        entry.get("statements", ""),
        entry.get("constants", {}),
        inputs,
        results,
        entry.get("ulps", 0),
    )


def _array(declared: Mapping[str, Any]) -> Array:
    ((name, values),) = declared.items()
    dtype = to_numpy(parse_dtype(name))
    # Objects first: through float64 a 64-bit integer would lose its low bits.
    parsed = np.array(_parsed(values), dtype=object)
    return np.array([dtype.type(value) for value in parsed.ravel()], dtype).reshape(parsed.shape)


def _parsed(values: Any) -> Any:
    if isinstance(values, list):
        return [_parsed(value) for value in values]
    return float.fromhex(values) if isinstance(values, str) else values


def kernel_text(vector: Vector) -> str:
    """Return the text of the kernel that a vector becomes; its parameters are `arguments_of`."""
    results = [f"result_{number}" for number in range(len(vector.results))]
    parameters = [*vector.inputs, *(f"{name}_out" for name in results)]
    parameters += [f"{name}: tl.constexpr" for name in vector.constants]
    lines = ["import tilewright.language as tl", "@tl.kernel", f"def k({', '.join(parameters)}):"]
    for name, array in vector.inputs.items():
        if array.ndim:
            lines.append(f"    {name} = tl.load({name} + {_offsets(_extents(array))})")
    lines += [f"    {line}" for line in vector.statements.strip().splitlines()]
    lines.append(f"    {', '.join(results)} = {vector.expression}")
    for name, result in zip(results, vector.results, strict=True):
        extents = _extents(result)
        # A result of another type or shape is an error of the vector, not something to convert.
        lines.append(f"    tl.static_assert({name}.dtype == {_word(result)}, '{name}: dtype')")
        lines.append(f"    tl.static_assert({name}.shape == {extents}, '{name}: shape')")
        lines.append(f"    tl.store({name}_out{_offsets(extents, ' + ')}, {name})")
    return "\n".join(lines) + "\n"


def arguments_of(vector: Vector) -> dict[str, Array]:
    """Return the arrays that a vector's kernel takes: inputs, and memory for the results."""
    inputs = {name: _padded(value) for name, value in vector.inputs.items()}
    outputs = {f"result_{i}_out": _poisoned(value) for i, value in enumerate(vector.results)}
    return inputs | outputs


def _kernel(vector: Vector) -> Kernel:
    return written_kernel(kernel_text(vector))


def _offsets(extents: tuple[int, ...], lead: str = "") -> str:
    if not extents:
        return ""
    flat = f"tl.arange(0, {prod(extents)})"
    return lead + (flat if len(extents) == 1 else f"tl.reshape({flat}, {extents})")


def _extents(array: Array) -> tuple[int, ...]:
    return tuple(_padded(array).shape)


def _padded(array: Array) -> Array:
    """Return a copy; one axis of another length is extended with zeros to a power of two."""
    if array.ndim != 1 or not array.size & (array.size - 1):
        return array.copy()
    return np.concatenate(
        [array, np.zeros((1 << array.size.bit_length()) - array.size, array.dtype)]
    )


def _poisoned(result: Array) -> Array:
    """Return memory for a result, at least one element, of bytes that no vector expects."""
    size = max(prod(_extents(result)), 1)
    return np.frombuffer(bytearray(b"\x5a" * size * result.itemsize), result.dtype).copy()


def _word(array: Array) -> str:
    from tilewright.abi.numpy_types import from_numpy

    names = {"bf16": "bfloat16", "f8e4m3": "float8e4nv", "f8e5m2": "float8e5", "i1": "int1"}
    dtype: DType = from_numpy(array.dtype)
    return f"tl.{names.get(dtype.name, f'{dtype.kind}{dtype.bits}')}"


def _agree(got: Any, expected: Any, ulps: int) -> bool:
    if got != got or expected != expected:
        return bool(got != got and expected != expected)
    if got.tobytes() == expected.tobytes():
        return True
    return ulps > 0 and abs(_step(got) - _step(expected)) <= ulps


def _step(number: Any) -> int:
    """Return the place of a float among all of its dtype, so that neighbours differ by 1."""
    bits = int.from_bytes(number.tobytes(), "little")
    sign = 1 << (8 * number.nbytes - 1)
    return bits if bits < sign else sign - bits
