"""Whole kernels of the library as tile IR text."""

from __future__ import annotations

import pytest

from helpers.golden import Golden
from helpers.kernel_source import signature_of
from tilewright.abi.signature import ConstexprValue, Specialization
from tilewright.kernels import elementwise, norm, reduce, softmax
from tilewright.language import Kernel
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify

KERNELS = [
    elementwise.add, elementwise.mul, elementwise.exp, elementwise.gelu,
    softmax.softmax, softmax.softmax_looped, norm.layer_norm, norm.layer_norm_looped,
    reduce.sum_rows, reduce.sum_rows_looped, reduce.max_rows, reduce.max_rows_looped,
]  # fmt: skip
POINTERS = ("x", "y", "out", "weight", "bias")


def _lower(kernel: Kernel, dtype: str, specialization: Specialization) -> Module:
    parameters: dict[str, ConstexprValue] = {
        parameter.name: f"*{dtype}" if parameter.name in POINTERS else "i64"
        for parameter in kernel.parameters
    }
    parameters |= {"eps": "f32", "BLOCK_M": 4, "BLOCK_N": 64}
    signature = signature_of(kernel, parameters, specialization=specialization)
    module = lower_kernel(kernel, signature)
    verify(module)
    return module


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_both_specializations_compute_in_the_same_types(kernel: Kernel, dtype: str) -> None:
    general, fast = (_lower(kernel, dtype, which) for which in ("general", "fast"))

    def operations(module: Module) -> list[str]:
        return [
            f"{operation.name} {[str(result.type) for result in operation.results]}"
            for function in module.functions.values()
            for operation in function.body.walk()
        ]

    units = len(kernel.rule.unit)
    assert operations(fast)[:units] == ["constant ['i64']"] * units
    assert operations(fast)[units:] == operations(general)


@pytest.mark.parametrize(
    ("kernel", "specialization"),
    [(elementwise.gelu, "general"), (softmax.softmax_looped, "fast"), (norm.layer_norm, "general")],
    ids=["gelu", "softmax_looped", "layer_norm"],
)
def test_golden(kernel: Kernel, specialization: Specialization, golden: Golden) -> None:
    golden(print_module(_lower(kernel, "bf16", specialization)))


def test_lowering_twice_gives_the_same_text() -> None:
    texts = {print_module(_lower(norm.layer_norm_looped, "f16", "fast")) for _ in range(2)}
    assert len(texts) == 1
