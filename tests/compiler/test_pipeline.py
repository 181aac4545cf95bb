"""The whole way: caches, determinism, and the PTX of real kernels run against the interpreter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from helpers.emitted import ORDERS
from helpers.kernel_source import load_kernel, signature_of
from helpers.ptx_interpreter import Order, launch
from helpers.tile_operation import Array
from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int64
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import (
    Constexpr,
    ConstexprValue,
    KernelSignature,
    Specialization,
    declared,
)
from tilewright.abi.target import Target
from tilewright.errors import (
    ArgumentError,
    InternalCompilerError,
    KernelTypeError,
    KernelValueError,
    UnsupportedTargetError,
)
from tilewright.kernels.elementwise import add
from tilewright.kernels.softmax import softmax, softmax_looped
from tilewright.language.kernel import Kernel
from tilewright_compiler import pipeline
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.driver import build_key, compile_kernel, interpret_kernel, show
from tilewright_compiler.ir.core import Module
from tilewright_compiler.options import CompileOptions
from tilewright_compiler.pipeline import CompiledKernel
from tilewright_compiler.schedule.plan import schedule_module
from tilewright_compiler.snapshots import STAGES

_SM_80 = Target(8, 0)


@dataclass
class _Dictionary:
    """A store that counts."""

    entries: dict[str, bytes] = field(default_factory=dict)
    puts: int = 0

    def get(self, key: str) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.entries[key] = value
        self.puts += 1


def _signature(
    kernel: Kernel,
    dtype: DType,
    specialization: Specialization = "fast",
    *,
    num_warps: int = 4,
    **constexprs: int,
) -> KernelSignature:
    """Return a signature whose parameters are tensors x, y, out, and 64-bit integers."""
    parameters: dict[str, DType | tuple[DType] | Constexpr] = {}
    for parameter in kernel.parameters:
        if parameter.is_constexpr:
            parameters[parameter.name] = Constexpr(constexprs[parameter.name])
        else:
            is_tensor = parameter.name in ("x", "y", "out")
            parameters[parameter.name] = (dtype,) if is_tensor else int64
    return declared(
        parameters,
        rule=kernel.rule,
        specialization=specialization,
        num_warps=num_warps,
        num_stages=3,
    )


_SOFTMAX = _signature(softmax, float32, BLOCK_M=1, BLOCK_N=1024)


def test_cubins_for_every_target_without_spills() -> None:
    compiled = compile_kernel(softmax, _SOFTMAX, tuple(TARGETS))
    assert set(compiled.cubins) == {str(target) for target in TARGETS}
    assert all(cubin.spill_bytes == 0 for cubin in compiled.cubins.values())
    assert all(cubin.registers <= 64 for cubin in compiled.cubins.values())
    assert compiled.abi.writes == ("out",)
    assert [p.name for p in compiled.abi.parameters][:2] == ["x", "out"]


def test_fast_kernel_moves_16_bytes_at_a_time() -> None:
    ptx = compile_kernel(softmax, _SOFTMAX, ()).ptx
    # Two vectors a thread, in the branch of full tiles and in that of masked ones.
    assert len(re.findall(r"ld\.global\.v4", ptx)) == 4
    assert len(re.findall(r"st\.global\.v4", ptx)) == 4


def test_no_target_means_ptx_only() -> None:
    compiled = compile_kernel(softmax, _SOFTMAX, ())
    assert compiled.cubins == {}
    assert ".target sm_80" in compiled.ptx


def test_second_compilation_makes_nothing() -> None:
    store = _Dictionary()
    first = compile_kernel(softmax, _SOFTMAX, (_SM_80,), store=store)
    assert store.puts == 2
    second = compile_kernel(softmax, _SOFTMAX, (_SM_80,), store=store)
    assert store.puts == 2
    assert second.cubins == first.cubins
    assert [p.name for p in second.phases if p.is_cached] == ["ptx", "ptxas sm_80"]


def test_further_target_reuses_the_ptx() -> None:
    store = _Dictionary()
    compile_kernel(softmax, _SOFTMAX, (_SM_80,), store=store)
    compile_kernel(softmax, _SOFTMAX, (_SM_80, Target(9, 0, "a")), store=store)
    assert store.puts == 3


def test_other_bytes_in_the_store_are_not_returned() -> None:
    store = _Dictionary()
    good = compile_kernel(softmax, _SOFTMAX, (_SM_80,), store=store)
    for key, value in store.entries.items():
        store.entries[key] = value[:-7]
    again = compile_kernel(softmax, _SOFTMAX, (_SM_80,), store=store)
    assert again.ptx == good.ptx
    assert again.cubins == good.cubins


def test_too_much_shared_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(module: Module) -> Module:
        scheduled = schedule_module(module)
        scheduled.attributes["shared_bytes"] = 120_000
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_module", greedy)
    compile_kernel(softmax, _SOFTMAX, (Target(9, 0, "a"),))
    with pytest.raises(UnsupportedTargetError, match="120000 bytes of shared memory"):
        compile_kernel(softmax, _SOFTMAX, (_SM_80,))


def test_unknown_target_is_refused() -> None:
    with pytest.raises(UnsupportedTargetError, match="sm_70"):
        compile_kernel(softmax, _SOFTMAX, (Target(7, 0),))


def test_fault_of_ours_names_kernel_and_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        msg = "boom"
        raise IndexError(msg)

    monkeypatch.setattr(pipeline, "lower_kernel", broken)
    with pytest.raises(InternalCompilerError, match=r"softmax.*BLOCK_N=1024.*IndexError: boom"):
        compile_kernel(softmax, _SOFTMAX, ())


def test_fault_of_the_user_passes_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        msg = "wrong types"
        raise KernelTypeError(msg)

    monkeypatch.setattr(pipeline, "lower_kernel", refuse)
    with pytest.raises(KernelTypeError, match="wrong types"):
        compile_kernel(softmax, _SOFTMAX, ())


def test_build_key_depends_on_target_and_options() -> None:
    options = CompileOptions(llvm_level=1)
    made = {
        build_key("a" * 64, _SM_80),
        build_key("a" * 64, None),
        build_key("a" * 64, _SM_80, options),
        build_key("b" * 64, _SM_80),
    }
    assert len(made) == 4


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_shown(stage: str) -> None:
    text = show(softmax, _SOFTMAX, stage, targets=(_SM_80,))
    sign = {
        "source": "def softmax(",
        "tile": "kernel @softmax",
        "optimized": "kernel @softmax",
        "scheduled": "#layout<",
        "mlir": "llvm.func @softmax",
        "ptx": ".entry softmax(",
        "sass": "LDG.E.128",
        "resources": "sm_80",
    }
    assert sign[stage] in text


def test_unknown_stage_is_refused() -> None:
    with pytest.raises(ArgumentError, match="there is no stage 'llvm'"):
        show(softmax, _SOFTMAX, "llvm")


# Real kernels, as PTX, against the interpreter.


def _random(shape: tuple[int, ...], dtype: DType) -> Array:
    return np.random.default_rng(11).standard_normal(shape).astype(to_numpy(dtype))


@cache
def _compiled(kernel: Kernel, signature: KernelSignature) -> CompiledKernel:
    return compile_kernel(kernel, signature, ())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("specialization", ["fast", "general"])
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
@pytest.mark.parametrize("looped", [False, True], ids=["whole", "looped"])
def test_softmax(
    *, looped: bool, dtype: DType, specialization: Specialization, order: Order
) -> None:
    rows, columns = 3, 1000 if not looped else 5003
    stride = -(-columns // 16) * 16 if specialization == "fast" else columns + 1
    x = _random((rows, stride), dtype)
    out = np.zeros_like(x)
    kernel = softmax_looped if looped else softmax
    tiles = {"BLOCK_N": 2048} if looped else {"BLOCK_M": 2, "BLOCK_N": 1024}
    signature = _signature(kernel, dtype, specialization, **tiles)
    grid = (rows if looped else 2, 1, 1)
    sizes = (rows, 1, columns, stride, stride, 1, stride, stride, 1)
    compiled = _compiled(kernel, signature)
    run = launch(
        compiled.ptx,
        grid=grid,
        arguments=[x, out, *sizes],
        shared_bytes=compiled.abi.shared_bytes,
        order=order,
    )
    expected = np.zeros_like(x)
    names = [name for name, _ in signature.runtime]
    values: list[Array | float] = [x, expected, *sizes]
    arguments = dict(zip(names, values, strict=True))
    interpret_kernel(kernel, signature, grid=grid, arguments=arguments)
    # Both compute in f32 and round once; sums are taken in another order.
    tolerance = {float32: 2e-6, float16: 1e-3, bfloat16: 8e-3}[dtype]
    np.testing.assert_allclose(
        out[:, :columns].astype(np.float64), expected[:, :columns].astype(np.float64), tolerance
    )
    assert run.stored_bytes == rows * columns * x.itemsize
    assert not out[:, columns:].astype(bool).any()


@pytest.mark.parametrize("specialization", ["fast", "general"])
@pytest.mark.parametrize("columns", [1, 1001, 2048])
def test_add_is_exact(columns: int, specialization: Specialization) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16)
    x, y = (_random((5, 2048), bfloat16) for _ in range(2))
    out = np.zeros((5, 2048), dtype)
    signature = _signature(add, bfloat16, specialization, BLOCK_M=1, BLOCK_N=1024)
    strides = (0, 0, 2048, 1)
    sizes = (1, 1, 5, columns, *strides, *strides, *strides)
    compiled = compile_kernel(add, signature, ())
    launch(compiled.ptx, grid=(2, 3, 1), arguments=[x, y, out, *sizes])
    np.testing.assert_array_equal(out[:, :columns], (x + y)[:, :columns])
    assert not out[:, columns:].astype(bool).any()


def test_launch_in_place_is_right() -> None:
    x = _random((4, 1008), float32)
    expected = np.exp(x[:, :1000].astype(np.float64))
    expected /= expected.sum(1, keepdims=True)
    sizes = (4, 1, 1000, 1008, 1008, 1, 1008, 1008, 1)
    compiled = compile_kernel(softmax, _SOFTMAX, ())
    launch(
        compiled.ptx,
        grid=(4, 1, 1),
        arguments=[x, x, *sizes],
        shared_bytes=compiled.abi.shared_bytes,
        order="descending",
    )
    np.testing.assert_allclose(x[:, :1000], expected, rtol=2e-6)


@pytest.mark.parametrize(
    "name",
    ["größe", "_", "_x", "WARP_SZ", "vprintf", "__assertfail", "__nv_sinf", "tilewright_shared"],
)
def test_a_kernel_may_have_any_name_of_pythons(name: str, tmp_path: Path) -> None:
    text = f"""
@tl.kernel
def {name}(x, n):
    tl.device_assert(n > 0)
    i = tl.arange(0, 64)
    tl.store(x + i, tl.sin(tl.load(x + 63 - i)))
"""
    kernel = load_kernel(tmp_path, text)
    compiled = compile_kernel(
        kernel, signature_of(kernel, {"x": "*f32", "n": "i64"}), (Target(8, 0),)
    )
    assert f".visible .entry {compiled.abi.entry}(" in compiled.ptx


def test_more_parameters_than_a_launch_takes_are_refused(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(600)]
    text = f"@tl.kernel\ndef k(x, {', '.join(names)}):\n    tl.store(x, p1)\n"
    kernel = load_kernel(tmp_path, text)
    types: dict[str, ConstexprValue] = {"x": "*i64", **dict.fromkeys(names, "i64")}
    with pytest.raises(KernelValueError, match="4808 bytes of parameters, and a launch takes 4096"):
        compile_kernel(kernel, signature_of(kernel, types), ())
