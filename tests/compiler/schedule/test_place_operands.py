"""Which operands dots read from shared memory by themselves, and which stay in registers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers import dot_kernels
from helpers.kernel_source import lower_text
from tilewright.abi.signature import ConstexprValue
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.types import SharedType
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

DTYPES = {"bf16": "tl.bfloat16", "f16": "tl.float16", "f32": "tl.float32"}


def attention(
    directory: Path, dtype: str, *, queries: int = 64, keys: int = 64, width: int = 64
) -> Module:
    pointers: dict[str, ConstexprValue] = dict.fromkeys(("q", "k", "v", "out"), f"*{dtype}")
    sizes: dict[str, ConstexprValue] = {"BM": queries, "BN": keys, "D": width, "length": "i64"}
    text = dot_kernels.ATTENTION.replace("tl.bfloat16", DTYPES[dtype])
    return optimize(lower_text(directory, text, specialization="fast", **pointers, **sizes))


def in_shared(module: Module) -> list[tuple[bool, bool]]:
    """Say of the factors of each dot whether they are read from shared memory."""
    dots = [operation for operation in module.kernel.body.walk() if operation.name == "dot"]
    return [
        (isinstance(dot.operands[0].type, SharedType), isinstance(dot.operands[1].type, SharedType))
        for dot in dots
    ]


def test_fragments_of_queries_and_probabilities_stay_in_registers(tmp_path: Path) -> None:
    module = schedule_module(attention(tmp_path, "bf16"))
    assert in_shared(module) == [(False, True), (False, True)]


def test_long_rows_do_not_fill_the_registers_all_the_while(tmp_path: Path) -> None:
    module = schedule_module(attention(tmp_path, "bf16", keys=16, width=512))
    assert in_shared(module) == [(True, True), (False, True)]


def test_factors_of_multiply_adds_are_never_copied_into_registers(tmp_path: Path) -> None:
    module = schedule_module(attention(tmp_path, "f32", keys=32))
    assert in_shared(module) == [(True, True), (True, True)]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_attention_through_shared_memory_has_no_race(tmp_path: Path, dtype: str) -> None:
    module = attention(tmp_path, dtype, queries=32, keys=16, width=32)
    generator = np.random.default_rng(5)
    kind = np.float32 if dtype == "f32" else np.float16
    inputs = {name: generator.standard_normal((64, 32)).astype(kind) for name in ("q", "k", "v")}
    outputs = []
    for run, program in ((tile.run, module), (scheduled.run, schedule_module(module))):
        out = np.zeros((32, 32), kind)
        run(program, grid=(1, 1, 1), arguments={**inputs, "out": out, "length": 48})
        outputs.append(out)
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-2 if dtype == "f16" else 1e-5)
    assert outputs[0].any()
