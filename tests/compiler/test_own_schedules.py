"""A kernel that fits Hopper's schedule: two texts, each cubin with its launch ABI, the condition
under which it may be launched, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.kernel_source import load_kernel, signature_of
from tilewright.abi.signature import KernelSignature, Specialization
from tilewright.abi.target import Target
from tilewright.language.kernel import Kernel
from tilewright.runtime.expression import compile_expression
from tilewright_compiler import pipeline
from tilewright_compiler.driver import compile_kernel, show
from tilewright_compiler.pipeline import CompiledKernel

HOPPER, AMPERE = Target(9, 0, "a"), Target(8, 0)
OWN = "sm_90a+tma"

TEXT = """
@tl.kernel(divisible=("n", "k", "{more}"))
def k(a, b, c, m, n, k, plane, BLOCK: tl.constexpr = 64):
    x = tl.make_tensor_descriptor(
        a, [tl.num_programs(2), m, k], [plane, k, 1], block_shape=[1, BLOCK, BLOCK]
    )
    y = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BLOCK, BLOCK])
    z = tl.make_tensor_descriptor(c, [m, n * 2], [n * 2, 1], [BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        left = tl.reshape(x.load([tl.program_id(2), row, start]), (BLOCK, BLOCK))
        total = tl.dot(left, y.load([start, column]), total)
    z.store([row, column], total)
"""
TYPES = dict.fromkeys("abc", "*bf16") | dict.fromkeys(("m", "n", "k", "plane"), "i64")


class Dictionary:
    """A store that counts what is put."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.entries[key] = value


def kernel_and_signature(directory: Path, more: str = "plane") -> tuple[Kernel, KernelSignature]:
    kernel = load_kernel(directory, TEXT.format(more=more))
    return kernel, signature_of(kernel, TYPES, specialization="fast")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledKernel:
    kernel, signature = kernel_and_signature(tmp_path_factory.mktemp("own"))
    return compile_kernel(kernel, signature, (HOPPER, AMPERE))


def test_there_are_two_texts_and_a_cubin_more(compiled: CompiledKernel) -> None:
    assert list(compiled.cubins) == [OWN, "sm_90a", "sm_80"]
    assert {cubin.key: cubin.abi is not None for cubin in compiled.cubins.values()} == {
        OWN: True,
        "sm_90a": False,
        "sm_80": False,
    }
    assert list(compiled.own_ptx) == [HOPPER]
    assert ".target sm_90a" in compiled.own_ptx[HOPPER]
    assert "wgmma.mma_async" in compiled.own_ptx[HOPPER]
    assert ".target sm_80" in compiled.ptx
    for cubin in compiled.cubins.values():
        assert (cubin.spill_bytes, cubin.warnings) == (0, ())


def test_the_own_cubin_says_how_it_is_launched(compiled: CompiledKernel) -> None:
    own = compiled.cubins[OWN].abi
    assert own is not None
    assert (own.entry, own.writes) == (compiled.abi.entry, compiled.abi.writes) == ("k", ("c",))
    assert (own.num_threads, compiled.abi.num_threads) == (256, 128)
    assert (own.grid_kind, compiled.abi.grid_kind) == ("persistent", "user")
    assert own.parameters[:7] == compiled.abi.parameters
    maps = [p.tensor_map for p in own.parameters if p.tensor_map is not None]
    assert [(m.pointer, m.sizes, m.strides) for m in maps] == [
        ("a", ("grid2", "m", "k"), ("plane", "k", "1")),
        ("b", ("k", "n"), ("n", "1")),
        ("c", ("m", "(n * 2)"), ("(n * 2)", "1")),
    ]
    assert [m.box for m in maps] == [(1, 64, 64), (64, 64), (64, 64)]
    assert [p.axis for p in own.parameters if p.kind == "grid"] == [0, 1, 2]


def test_the_condition_is_what_the_signature_does_not_promise(compiled: CompiledKernel) -> None:
    own = compiled.cubins[OWN].abi
    assert own is not None
    conditions = own.tma_ok.split(" and ")
    assert {"m > 0", "k > 0", "n > 0", "(n * 2) > 0", "plane >= 0"} <= set(conditions)
    # The arguments are multiples of 16 and fit 31 bits; twice such a number need not.
    assert "(n * 2) <= 2147483647" in conditions
    assert not [text for text in conditions if "%" in text or text.startswith("m <=")]
    positions = {name: at for at, name in enumerate(["a", "b", "c", "m", "n", "k", "plane"])}
    assert compile_expression(own.tma_ok, positions, {})


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        ("fast", ["plane % 8 == 0"]),
        (
            "general",
            [
                "a % 16 == 0",
                "plane % 8 == 0",
                "k % 8 == 0",
                "b % 16 == 0",
                "n % 8 == 0",
                "c % 16 == 0",
                "(n * 2) % 8 == 0",
            ],
        ),
    ],
)
def test_what_is_not_known_to_be_aligned_is_asked(
    form: Specialization, asked: list[str], tmp_path: Path
) -> None:
    kernel, _ = kernel_and_signature(tmp_path, more="k")
    signature = signature_of(kernel, TYPES, specialization=form)
    compiled = compile_kernel(kernel, signature, (HOPPER,))
    own = compiled.cubins[OWN].abi
    assert own is not None
    conditions = own.tma_ok.split(" and ")
    assert [text for text in conditions if "%" in text] == asked


def test_both_texts_are_kept_and_found(tmp_path: Path) -> None:
    kernel, signature = kernel_and_signature(tmp_path)
    store = Dictionary()
    first = compile_kernel(kernel, signature, (HOPPER,), store=store)
    assert len(store.entries) == 4
    second = compile_kernel(kernel, signature, (HOPPER,), store=store)
    assert len(store.entries) == 4
    assert second.cubins == first.cubins
    assert [p.name for p in second.phases if p.is_cached] == ["ptx", "ptxas sm_90a"] * 2


def test_an_assembler_that_is_asked_otherwise_assembles_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, signature = kernel_and_signature(tmp_path)
    store = Dictionary()
    compile_kernel(kernel, signature, (HOPPER,), store=store)
    monkeypatch.setattr(pipeline, "assembler_fingerprint", lambda: "another")
    again = compile_kernel(kernel, signature, (HOPPER,), store=store)
    assert [p.name for p in again.phases if p.is_cached] == ["ptx"] * 2


def test_one_of_the_two_texts_can_be_made_alone(compiled: CompiledKernel, tmp_path: Path) -> None:
    kernel, signature = kernel_and_signature(tmp_path)
    first = compile_kernel(kernel, signature, (HOPPER,), texts="first")
    assert list(first.cubins) == [OWN]
    assert (first.ptx, first.abi) == ("", compiled.cubins[OWN].abi)
    assert first.own_ptx == compiled.own_ptx
    common = compile_kernel(kernel, signature, (HOPPER,), texts="common")
    assert list(common.cubins) == ["sm_90a"]
    assert (common.ptx, common.own_ptx, common.abi) == (compiled.ptx, {}, compiled.abi)
    # A target without a text of its own has the common one first.
    mixed = compile_kernel(kernel, signature, (HOPPER, AMPERE), texts="first")
    assert list(mixed.cubins) == [OWN, "sm_80"]
    assert (mixed.ptx, mixed.abi) == (compiled.ptx, compiled.abi)
    assert compile_kernel(kernel, signature, (), texts="first").ptx == compiled.ptx


SHOWN: dict[str, Callable[[str], bool]] = {
    "optimized": lambda text: "descriptor_load" in text,
    "scheduled": lambda text: "tma_load" in text,
    "mlir": lambda text: "cp.async.bulk.tensor" in text,
    "ptx": lambda text: ".target sm_90a" in text,
    "sass": lambda text: "UTMALDG" in text,
}


@pytest.mark.parametrize("stage", SHOWN)
def test_the_stages_of_one_target_are_shown(stage: str, tmp_path: Path) -> None:
    kernel, signature = kernel_and_signature(tmp_path)
    assert SHOWN[stage](show(kernel, signature, stage, targets=(HOPPER,)))
    common = show(kernel, signature, stage, targets=(AMPERE, HOPPER))
    assert SHOWN[stage](common) == (stage == "optimized")


def test_the_resources_of_all_cubins_are_shown(tmp_path: Path) -> None:
    kernel, signature = kernel_and_signature(tmp_path)
    lines = show(kernel, signature, "resources", targets=(HOPPER,)).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("sm_")] == [OWN, "sm_90a"]
