"""Products of descriptor blocks under the Hopper schedule: its text, what it computes, and what it
leaves to the other schedule.

`golden/.../test_hopper/<case>.{before,after}.tile` show whole kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from helpers.descriptor_kernels import Product
from helpers.golden import Golden, golden_directory
from helpers.mutations import find
from tilewright_compiler.analysis.tensor_maps import launch_condition
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.hopper import schedule_hopper, why_not

_GOLDEN = golden_directory(Path(__file__).parents[2], Path(__file__))
_CASES = sorted(path.name.removesuffix(".before.tile") for path in _GOLDEN.glob("*.before.tile"))

SEEDS = range(2)


def source(case: str) -> str:
    return (_GOLDEN / f"{case}.before.tile").read_text(encoding="utf-8")


def module_of(text: str) -> Module:
    module = parse_module(text)
    verify(module)
    return optimize(module)


def schedule(module: Module) -> Module:
    result = schedule_hopper(module)
    assert result is not None, why_not(module)
    verify(result)
    return result


@pytest.mark.parametrize("case", _CASES)
def test_schedule_gives_the_golden_text(case: str, golden: Golden) -> None:
    golden(print_module(schedule(module_of(source(case)))), name=f"{case}.after.tile")


PRODUCTS = [
    Product(),
    Product(dtype="f32", b_unit="k"),
    Product(b_unit="k"),
    Product(a_unit="m", b_unit="k"),
    Product(a_unit="m"),
    Product(m=128, n=64, k=64, num_warps=8, out="bf16"),
    Product(m=256, n=16, k=16, num_warps=8),
    Product(n=128, num_warps=8, out="f16", dtype="f16"),
    Product(dtype="i8", out="i32", b_unit="k"),
    Product(dtype="u8", out="i32", b_unit="k"),
    Product(dtype="f8e4m3", k=64, b_unit="k"),
    Product(dtype="f8e5m2", k=128, n=64, b_unit="k", out="f16"),
    Product(num_stages=1),
    Product(num_stages=2),
]


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
@pytest.mark.parametrize("sizes", [(128, 64, 64), (70, 90, 100), (1, 1, 1), (64, 32, 0)])
def test_product(product: Product, sizes: tuple[int, int, int]) -> None:
    result = schedule(product.module())
    for seed in SEEDS:
        arguments, expected = product.arguments(*sizes)
        scheduled.run(result, grid=product.grid(*sizes[:2]), arguments=arguments, seed=seed)
        np.testing.assert_allclose(
            arguments["c"].astype(np.float64), expected.astype(np.float64), rtol=1e-2
        )


def run(case: str, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
    for seed in SEEDS:
        scheduled.run(
            schedule(module_of(source(case))), grid=grid, arguments=dict(arguments), seed=seed
        )


def matrix(rows: int, columns: int, seed: int) -> NDArray[Any]:
    """Return small numbers, aligned as tensor maps want it."""
    memory = np.zeros(rows * columns + 32, bfloat16)
    start = -(memory.ctypes.data // 2) % 32
    result: NDArray[Any] = memory[start : start + rows * columns].reshape(rows, columns)
    result[:] = np.random.default_rng(seed).integers(-3, 4, (rows, columns)) / 2
    return result


def test_two_products_of_one_operand() -> None:
    m, n, k = 100, 48, 80
    a, b, b2, c = matrix(m, k, 0), matrix(k, n, 1), matrix(k, n, 2), matrix(m, n, 3)
    run("gated", (2, 2, 1), {"a": a, "b": b, "b2": b2, "c": c, "m": m, "n": n, "k": k})
    left, up, gate = (array.astype(np.float32) for array in (a, b2, b))
    expected = np.maximum(left @ gate, 0) * (left @ up)
    np.testing.assert_allclose(c.astype(np.float32), expected, rtol=1e-2)


@pytest.mark.parametrize("n", [1, 32, 33, 130])
def test_products_that_feed_each_other(n: int) -> None:
    m = 100
    q, k, v = matrix(m, 64, 0), matrix(n, 64, 1), matrix(n, 64, 2)
    memory = np.zeros(m * 64 + 16, np.float32)
    start = -(memory.ctypes.data // 4) % 16
    o = memory[start : start + m * 64].reshape(m, 64)
    run("attention", (2, 1, 1), {"q": q, "k": k, "v": v, "o": o, "m": m, "n": n})
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 8
    weights = np.exp2(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(o, expected, atol=2e-2)


def test_rotated_loop_starts_both_products_before_it_waits() -> None:
    """The second of the iteration before runs while the first one's result is worked on."""
    (roles,) = find(schedule(module_of(source("attention"))), "roles")
    loops = [operation for operation in roles.regions[1].walk() if operation.name == "for"]
    body = loops[-1].regions[0].operations
    names = [operation.name for operation in body if operation.name in ("dot", "dot_wait")]
    pending = [o.attributes["pending"] for o in body if o.name == "dot_wait"]
    assert names == ["dot", "dot", "dot_wait", "dot_wait"]
    assert pending == [1, 0]


def test_three_factors_and_stores_by_pointers() -> None:
    m, n, k = 100, 80, 48
    a, b, c = matrix(m, k, 0), matrix(k, n, 1), matrix(n, 64, 2)
    out = np.zeros((m, 64), np.float32)
    run("three_factors", (2, 1, 1), {"a": a, "b": b, "c": c, "out": out, "m": m, "n": n, "k": k})
    left, middle, right = (array.astype(np.float32) for array in (a, b, c))
    expected = (left @ middle).astype(bfloat16).astype(np.float32) @ right
    np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1)


def test_fewer_stages_are_used_where_memory_is_short() -> None:
    module = Product(m=64, n=64, k=64, num_stages=4).module()
    result = schedule_hopper(module, shared_limit=64 * 1024)
    assert result is not None
    assert result.attributes["num_stages"] == 2
    assert result.attributes["shared_bytes"] <= 64 * 1024
    assert schedule_hopper(module, shared_limit=16 * 1024) is None


def test_accumulators_are_stored_as_they_lie() -> None:
    """Parts of an accumulator need no exchange: no conversion, and two buffers of one line."""
    result = schedule(Product(m=128, n=128, k=64, num_warps=8, out="bf16").module())
    assert not find(result, "convert_layout")
    stores = find(result, "shared_store")
    assert len(stores) == 2
    for store in stores:
        layout = getattr(store.operands[0].type, "layout", None)
        assert isinstance(layout, LinearLayout)
        assert layout.shape == (128, 64)


@pytest.mark.parametrize(
    ("product", "reason"),
    [
        (Product(m=32), "4 warps do not share 32 rows"),
        (Product(num_warps=2), "2 warps do not share 64 rows"),
        (Product(dtype="i8", out="i32"), "contiguous along the axis that is not reduced"),
        (Product(dtype="f8e4m3"), "contiguous along the axis that is not reduced"),
        (Product(dtype="f8e4m3", k=256, b_unit="k"), "no more than 128 products"),
        (
            Product(dtype="f8e5m2", m=128, k=64, num_warps=4, n=128, b_unit="k"),
            "take 256 registers",
        ),
        (Product(dtype="f32"), "contiguous along the axis that is not reduced"),
        (Product(n=8), "less than 32 bytes"),
        (Product(m=512, n=32), "no tensor map"),
        (Product(m=512, n=64, num_warps=32, a_unit="m"), "no room for a producer"),
        (Product(m=128, n=256), "accumulators take 256 registers"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_left_alone(product: Product, reason: str) -> None:
    module = product.module()
    assert schedule_hopper(module) is None
    assert reason in str(why_not(module))


def test_f32_goes_by_warpgroups_only_rounded_to_tf32() -> None:
    text = Product(dtype="f32", b_unit="k").text()
    rounded = [
        tile.attributes.get("rounding") for tile in find(schedule(module_of(text)), "tma_load")
    ]
    assert rounded == ["tf32", "tf32"]
    assert "does not multiply f32" in str(why_not(module_of(text.replace('"tf32"', '"ieee"'))))
    more = text.replace(
        "    %sum = dot %left, %right, %acc",
        "    %more = add %acc, %left : tile<64x32xf32>\n    %sum = dot %left, %right, %more",
    )
    assert "is read as it is, too" in str(why_not(module_of(more)))


@pytest.mark.parametrize(
    ("promise", "less", "asked"),
    [("lda:i64:16s", "lda:i64:s", "lda % 8 == 0"), ("a:*bf16:16", "a:*bf16", "a % 16 == 0")],
)
def test_alignment_that_is_not_promised_is_asked_of_the_launch(
    promise: str, less: str, asked: str
) -> None:
    conditions = []
    for text in (Product().text(), Product().text().replace(promise, less)):
        module = schedule_hopper(module_of(text))
        assert module is not None
        conditions.append(launch_condition(module).split(" and "))
    assert asked not in conditions[0]
    assert asked in conditions[1]


def test_stride_that_no_launch_could_have_right_is_left_alone() -> None:
    text = Product().text()
    line = "  %da = make_descriptor %a, %m, %k, %lda"
    for stride, reason in ((104, None), (100, "a stride of descriptor<64x32xbf16> is 100")):
        fixed = f"  %odd = constant {{value = {stride}}} : i64\n{line.replace('%lda', '%odd')}"
        found = why_not(module_of(text.replace(line, fixed)))
        assert found is None if reason is None else reason in str(found)


def test_descriptors_of_a_program_are_left_alone() -> None:
    text = Product().text()
    line = next(line for line in text.splitlines() if "%da = make_descriptor" in line)
    moved = text.replace(line + "\n", "")
    moved = moved.replace(
        "  %r0 = mul",
        "  %rest = sub %m, %row : i64\n" + line.replace("%m,", "%rest,") + "\n  %r0 = mul",
    )
    assert "not made of launch arguments" in str(why_not(module_of(moved)))


def indirect(first_row: str) -> str:
    """Return a product whose rows start where `first_row` says; `starts` is one more argument."""
    text = Product().text()
    text = text.replace("signature (", "signature (starts:*i64:16, ")
    text = text.replace("@product(", "@product(%starts: ptr<i64>, ")
    return text.replace("%r0 = mul %row, %bm : i64", first_row)


LOADED = (
    "%place = addptr %starts, %row : ptr<i64>\n"
    '  %r0 = load %place {cache = "", eviction = ""} : i64'
)


def test_places_may_come_from_memory() -> None:
    arguments, expected = Product().arguments(128, 32, 64)
    arguments["starts"] = np.array([64, 0])
    result = schedule(module_of(indirect(LOADED)))
    for seed in SEEDS:
        arguments["c"][:] = 0
        scheduled.run(result, grid=(2, 1, 1), arguments=arguments, seed=seed)
        np.testing.assert_allclose(arguments["c"], expected)


def test_places_in_memory_that_the_kernel_writes_are_left_alone() -> None:
    text = indirect(LOADED)
    end = "  descriptor_store"
    written = text.replace(end, f'  store %place, %r0 {{cache = "", eviction = ""}}\n{end}')
    assert "memory that the kernel writes" in str(why_not(module_of(written)))


def test_places_that_tiles_give_are_left_alone() -> None:
    first_row = (
        "%twos = arange {start = 0, end = 2} : tile<2xi32>\n"
        '  %most = reduce %twos {axis = 0, kind = "max"} : i32\n'
        "  %wide = cast %most : i64\n"
        "  %r0 = mul %row, %wide : i64"
    )
    assert "depends on a tile" in str(why_not(module_of(indirect(first_row))))


@pytest.mark.parametrize(("argument", "is_left"), [("a", True), ("c", False)])
def test_blocks_that_are_read_after_a_write_to_them_are_left_alone(
    argument: str, is_left: bool
) -> None:
    product = Product(out="bf16")
    write = (
        f"    %where = addptr %{argument}, %k0 : ptr<bf16>\n"
        "    %none = constant {value = 0.0} : bf16\n"
        '    store %where, %none {cache = "", eviction = ""}\n'
    )
    text = product.text().replace("    yield %sum", write + "    yield %sum")
    reason = why_not(module_of(text))
    assert is_left == ("after the program has written" in str(reason))
