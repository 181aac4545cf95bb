"""Products of blocks of tensor descriptors, as text: `C = A @ B` for each way that tensors lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.abi.dtypes import BY_NAME
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize


@dataclass(frozen=True, slots=True)
class Product:
    """A matmul of blocks `m x k` by `k x n`; `a_unit` and `b_unit` say which axis is contiguous."""

    m: int = 64
    n: int = 32
    k: int = 32
    num_warps: int = 4
    num_stages: int = 3
    dtype: str = "bf16"
    out: str = "f32"
    a_unit: str = "k"
    b_unit: str = "n"

    def module(self) -> Module:
        """Return the optimised module."""
        module = parse_module(self.text())
        verify(module)
        return optimize(module)

    def text(self) -> str:
        m, n, k, dtype = self.m, self.n, self.k, self.dtype
        acc = "i32" if dtype in ("i8", "u8") else "f32"
        zero = "0" if acc == "i32" else "0.0"
        a_shape, a_place = (
            (f"{m}x{k}", "%r0, %k0") if self.a_unit == "k" else (f"{k}x{m}", "%k0, %r0")
        )
        b_shape, b_place = (
            (f"{k}x{n}", "%k0, %c0") if self.b_unit == "n" else (f"{n}x{k}", "%c0, %k0")
        )
        a_sizes = "%m, %k, %lda" if self.a_unit == "k" else "%k, %m, %lda"
        b_sizes = "%k, %n, %ldb" if self.b_unit == "n" else "%n, %k, %ldb"
        turn = "transpose {} {{order = (1, 0)}} : tile<{}x{}>"
        left = (
            f"    %left = {turn.format('%a0', f'{m}x{k}', dtype)}\n" if self.a_unit == "m" else ""
        )
        right = (
            f"    %right = {turn.format('%b0', f'{k}x{n}', dtype)}\n" if self.b_unit == "k" else ""
        )
        a_name = "%a0" if left else "%left"
        b_name = "%b0" if right else "%right"
        precision = "tf32" if dtype == "f32" else "ieee"
        out = "" if self.out == acc else f"  %out = cast %total : tile<{m}x{n}x{self.out}>\n"
        value = "%out" if out else "%total"
        return f"""\
signature (a:*{dtype}:16, b:*{dtype}:16, c:*{self.out}:16, m:i64:s, n:i64:s, k:i64:s, lda:i64:16s, \
ldb:i64:16s, ldc:i64:16s) fast num_warps={self.num_warps} num_stages={self.num_stages}

kernel @product(%a: ptr<{dtype}>, %b: ptr<{dtype}>, %c: ptr<{self.out}>, %m: i64, %n: i64, \
%k: i64, %lda: i64, %ldb: i64, %ldc: i64) {{
  %da = make_descriptor %a, {a_sizes} : descriptor<{a_shape}x{dtype}>
  %db = make_descriptor %b, {b_sizes} : descriptor<{b_shape}x{dtype}>
  %dc = make_descriptor %c, %m, %n, %ldc : descriptor<{m}x{n}x{self.out}>
  %zero = constant {{value = 0}} : i64
  %bm = constant {{value = {m}}} : i64
  %bn = constant {{value = {n}}} : i64
  %bk = constant {{value = {k}}} : i64
  %row = program_id {{axis = 0}} : i64
  %column = program_id {{axis = 1}} : i64
  %r0 = mul %row, %bm : i64
  %c0 = mul %column, %bn : i64
  %nothing = constant {{value = {zero}}} : {acc}
  %acc0 = splat %nothing : tile<{m}x{n}x{acc}>
  %total = for %zero, %k, %bk, %acc0 : tile<{m}x{n}x{acc}> \
(%k0: i64, %acc: tile<{m}x{n}x{acc}>) {{
    {a_name} = descriptor_load %da, {a_place} : tile<{a_shape}x{dtype}>
    {b_name} = descriptor_load %db, {b_place} : tile<{b_shape}x{dtype}>
{left}{right}\
    %sum = dot %left, %right, %acc {{precision = "{precision}"}} : tile<{m}x{n}x{acc}>
    yield %sum
  }}
{out}\
  descriptor_store %dc, {value}, %r0, %c0
  return
}}
"""

    def arguments(self, m: int, n: int, k: int) -> tuple[dict[str, Any], NDArray[Any]]:
        """Return arguments for a product of these sizes, rows padded, and what `c` must become."""
        random = np.random.default_rng(m * 1000 + n * 100 + k)
        dtype, out = to_numpy(BY_NAME[self.dtype]), to_numpy(BY_NAME[self.out])

        def matrix(rows: int, columns: int, type_: Any) -> NDArray[Any]:
            pitch = -(-columns // 16) * 16
            memory = np.zeros(rows * pitch * type_.itemsize + 64, np.uint8)
            start = -memory.ctypes.data % 64
            flat = memory[start : start + rows * pitch * type_.itemsize].view(type_)
            low = 0 if self.dtype == "u8" else -4
            flat[:] = random.integers(low, 5, flat.size).astype(type_)
            result: NDArray[Any] = flat.reshape(rows, pitch)[:, :columns]
            return result

        a = matrix(*((m, k) if self.a_unit == "k" else (k, m)), dtype)
        b = matrix(*((k, n) if self.b_unit == "n" else (n, k)), dtype)
        c = matrix(m, n, out)
        left = a if self.a_unit == "k" else a.T
        right = b if self.b_unit == "n" else b.T
        expected = (left.astype(np.float64) @ right.astype(np.float64)).astype(out)
        pitches = {
            f"ld{name}": array.strides[0] // array.itemsize
            for name, array in zip("abc", (a, b, c), strict=True)
        }
        return {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k, **pitches}, expected

    def grid(self, m: int, n: int) -> tuple[int, int, int]:
        """Return the grid for a product of these sizes."""
        return -(-m // self.m), -(-n // self.n), 1
