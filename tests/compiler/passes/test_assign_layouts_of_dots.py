"""Layouts around dots: accumulators stay put, operands are loaded coalesced and converted once."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from helpers import dot_kernels
from helpers.kernel_source import lower_text
from tilewright.abi.signature import ConstexprValue
from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.dot_layouts import layouts_of_dot
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import TileType, element_bytes, element_dtype, shape_of
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.layout.access import vector_width
from tilewright_compiler.layout.convert import Identity, RegisterMove, plan_conversion
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.passes import optimize
from tilewright_compiler.passes.assign_layouts import assign_layouts
from tilewright_compiler.passes.legalize_dot import legalize_dot
from tilewright_compiler.schedule.plan import schedule_module

BF16 = "*bf16"
SIZES: dict[str, ConstexprValue] = {"n": "i64", "k": "i64", "BM": 128, "BN": 128, "BK": 64}


def tiles_of(*names: str) -> dict[str, ConstexprValue]:
    return dict.fromkeys(names, BF16)


def lower(directory: Path, text: str, **parameters: ConstexprValue) -> Module:
    return optimize(lower_text(directory, text, specialization="fast", **parameters))


def assign(directory: Path, text: str, **parameters: ConstexprValue) -> Module:
    module = assign_layouts(legalize_dot(lower(directory, text, **parameters)))
    verify(module)
    for dot in operations(module, "dot"):
        layouts = layouts_of_dot(dot, num_warps=module.signature.num_warps)
        got = tuple(layout_of(value) for value in (*dot.operands, dot.result))
        assert got == (layouts.a, layouts.b, layouts.acc, layouts.acc)
    return module


def operations(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name == name]


def layout_of(value: Value) -> LinearLayout:
    assert isinstance(value.type, TileType)
    assert value.type.layout is not None
    return value.type.layout


def moving_conversions(module: Module) -> list[Operation]:
    """Return the conversions that move data between threads."""
    return [
        conversion
        for conversion in operations(module, "convert_layout")
        if not isinstance(plan_of(conversion), Identity | RegisterMove)
    ]


def plan_of(conversion: Operation) -> object:
    source, target = conversion.operands[0], conversion.result
    size_bytes = element_bytes(source.type)
    return plan_conversion(layout_of(source), layout_of(target), size_bytes=size_bytes)


def loop_conversions(module: Module) -> list[Operation]:
    (loop,) = operations(module, "for")
    return [operation for operation in moving_conversions(module) if operation in [*loop.walk()]]


def definition(module: Module, value: Value) -> Operation:
    return next(o for o in module.kernel.body.walk() if value in o.results)


def assert_converts_what_is_loaded(module: Module, *, loads: int, axes: tuple[int, ...]) -> None:
    """Check that the loop converts each load's tile, in vectors along `axes`, and nothing else."""
    conversions = loop_conversions(module)
    sources = [definition(module, conversion.operands[0]) for conversion in conversions]
    assert [source.name for source in sources] == ["load"] * loads
    for load, axis in zip(sources, axes, strict=True):
        limit = 16 // element_bytes(load.result.type)
        assert vector_width(layout_of(load.result), axis, limit=limit) == limit


def test_a_matmul_converts_operands_in_the_loop_and_the_result_once(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "out")
    module = assign(tmp_path, dot_kernels.MATMUL, **pointers, **SIZES, m="i64")
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    (loop,) = operations(module, "for")
    (dot,) = operations(module, "dot")
    carried = [value for value in loop.results if isinstance(value.type, TileType)]
    assert [layout_of(value) for value in carried] == [layout_of(dot.result)]
    # 16-byte stores of rows beat pairs from the accumulator; what moves is already rounded.
    (conversion,) = [c for c in moving_conversions(module) if c not in loop_conversions(module)]
    assert str(element_dtype(conversion.operands[0].type)) == "bf16"
    (store,) = operations(module, "store")
    assert vector_width(layout_of(store.operands[0]), 1, limit=8) == 8


@pytest.mark.parametrize("blocks", [(128, 256), (256, 256)])
def test_a_result_too_large_to_be_exchanged_is_stored_as_the_dot_leaves_it(
    blocks: tuple[int, int], tmp_path: Path
) -> None:
    text = dot_kernels.GATED.replace(".to(tl.bfloat16)", "")
    pointers = tiles_of("x", "y", "z") | {"out": "*f32"}
    sizes = SIZES | {"BM": blocks[0], "BN": blocks[1], "BK": 16}
    module = assign(tmp_path, text, **pointers, **sizes)
    assert moving_conversions(module) == loop_conversions(module)
    schedule_module(lower(tmp_path, text, **pointers, **sizes))


def test_pointers_that_a_loop_carries_walk_coalesced(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "out")
    module = assign(tmp_path, dot_kernels.WALKING_POINTERS, **pointers, **SIZES)
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))


def test_quantized_weights_are_converted_as_bytes_and_scaled_as_operands(tmp_path: Path) -> None:
    types = {"x": BF16, "y": "*i8", "scales": BF16, "out": BF16}
    module = assign(tmp_path, dot_kernels.DEQUANTIZED, **types, **SIZES)
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    dtypes = {str(element_dtype(c.operands[0].type)) for c in loop_conversions(module)}
    assert dtypes == {"bf16", "i8"}
    (dot,) = operations(module, "dot")
    assert definition(module, dot.operands[1]).name == "mul"


def test_a_transpose_before_a_dot_moves_nothing(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "out")
    module = assign(tmp_path, dot_kernels.TRANSPOSED, **pointers, **SIZES)
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    (dot,) = operations(module, "dot")
    assert definition(module, dot.operands[1]).name == "transpose"


def test_a_chain_keeps_the_first_result_in_registers(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "z", "out")
    sizes = {"BM": 128, "BN": 64, "BK": 64, "BP": 128}
    module = assign(tmp_path, dot_kernels.CHAIN, **pointers, k="i64", **sizes)
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    outside = [c for c in moving_conversions(module) if c not in loop_conversions(module)]
    assert [shape_of(c.operands[0].type) for c in outside] == [(64, 128), (128, 128)]


@pytest.mark.parametrize("width", [32, 64, 128])
def test_attention_moves_nothing_but_what_it_loads_and_stores(tmp_path: Path, width: int) -> None:
    pointers = tiles_of("q", "k", "v", "out")
    sizes = {"BM": 64, "BN": 64, "D": width}
    module = assign(tmp_path, dot_kernels.ATTENTION, **pointers, length="i64", **sizes)
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    outside = [c for c in moving_conversions(module) if c not in loop_conversions(module)]
    assert len(outside) == 2  # the queries before the loop, the result behind it
    for reduce in operations(module, "reduce"):
        assert not any(basis for basis in layout_of(reduce.operands[0]).warp if basis < 64)


def test_two_accumulators_meet_where_they_are(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "z", "out")
    module = assign(tmp_path, dot_kernels.GATED, **pointers, **{**SIZES, "BM": 64})
    assert_converts_what_is_loaded(module, loads=3, axes=(1, 1, 1))
    outside = [c for c in moving_conversions(module) if c not in loop_conversions(module)]
    assert [str(element_dtype(c.operands[0].type)) for c in outside] == ["bf16"]


def test_gradients_of_attention_read_one_load_in_two_ways(tmp_path: Path) -> None:
    pointers = tiles_of("q", "k", "v", "do", "dk", "dv")
    sizes: dict[str, ConstexprValue] = {"BM": 64, "BN": 64, "D": 64, "length": "i64"}
    module = assign(tmp_path, dot_kernels.BACKWARD, **pointers, **sizes, lse="*f32", delta="*f32")
    conversions = loop_conversions(module)
    assert {definition(module, c.operands[0]).name for c in conversions} == {"load"}
    assert len({c.operands[0] for c in conversions}) == 2
    assert len(conversions) == 4


def test_a_fused_layer_keeps_its_hidden_values_in_registers(tmp_path: Path) -> None:
    pointers = tiles_of("x", "gate", "up", "down", "out")
    sizes: dict[str, ConstexprValue] = {"BM": 64, "BN": 64, "BK": 64, "n": "i64"}
    module = assign(tmp_path, dot_kernels.MLP, **pointers, **sizes)
    assert_converts_what_is_loaded(module, loads=3, axes=(1, 1, 1))


def test_gathered_rows_are_loaded_coalesced_and_scattered_after_one_conversion(
    tmp_path: Path,
) -> None:
    module = assign(
        tmp_path, dot_kernels.GATHERED, **tiles_of("x", "w", "out"), **SIZES, index="*i64"
    )
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    (store,) = operations(module, "store")
    assert vector_width(layout_of(store.operands[0]), 1, limit=8) == 8


def test_a_tile_that_is_both_operands_is_loaded_once(tmp_path: Path) -> None:
    sizes: dict[str, ConstexprValue] = {"BM": 64, "BK": 64, "k": "i64"}
    module = assign(tmp_path, dot_kernels.GRAM, **tiles_of("x"), **sizes, out="*f32")
    assert_converts_what_is_loaded(module, loads=2, axes=(1, 1))
    assert len(operations(module, "load")) == 1


def test_an_accumulator_that_is_the_second_operand_is_exchanged_in_16_bits(tmp_path: Path) -> None:
    sizes: dict[str, ConstexprValue] = {"BM": 64, "D": 64, "length": "i64"}
    module = assign(tmp_path, dot_kernels.LINEAR, **tiles_of("q", "k", "v", "out"), **sizes)
    others = [
        c for c in loop_conversions(module) if definition(module, c.operands[0]).name != "load"
    ]
    # The state on its way into the dot, and the result on its way out.
    assert [str(element_dtype(c.operands[0].type)) for c in others] == ["bf16", "bf16"]


def test_an_epilogue_happens_in_the_accumulators_layout(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "bias", "other", "out")
    module = assign(tmp_path, dot_kernels.EPILOGUE, **pointers, **SIZES)
    (dot,) = operations(module, "dot")
    for add in operations(module, "add"):
        if element_bytes(add.result.type) == 4 and add.result.type == dot.result.type:
            assert layout_of(add.result) == layout_of(dot.result)
    # Whatever moves is of 16 bits: nobody converts the accumulator itself.
    dtypes = [str(element_dtype(c.operands[0].type)) for c in moving_conversions(module)]
    assert set(dtypes) == {"bf16"}


def test_small_dots_multiply_in_layouts_of_their_own(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "out")
    sizes = {**SIZES, "BM": 8, "BN": 16, "BK": 8}
    module = assign(tmp_path, dot_kernels.WALKING_POINTERS, **pointers, **sizes)
    (dot,) = operations(module, "dot")
    assert dot.attributes["atom"] == "fma"
    assert layout_of(dot.result).is_injective


def test_a_dot_without_an_atom_is_refused(tmp_path: Path) -> None:
    pointers = tiles_of("x", "y", "out")
    tile = lower(tmp_path, dot_kernels.WALKING_POINTERS, **pointers, **SIZES)
    with pytest.raises(InternalCompilerError, match="legalize_dot"):
        assign_layouts(tile)


@pytest.mark.parametrize("name", ["WALKING_POINTERS", "TRANSPOSED"])
@pytest.mark.parametrize("block", [8, 32], ids=["fma", "mma"])
def test_the_meaning_is_kept(tmp_path: Path, name: str, block: int) -> None:
    extents: dict[str, ConstexprValue] = {"BM": block, "BN": block, "BK": block}
    pointers = tiles_of("x", "y", "out")
    text = getattr(dot_kernels, name)
    tile = lower(tmp_path, text, **pointers, n="i64", k="i64", **extents)
    module = assign_layouts(legalize_dot(tile))
    generator = np.random.default_rng(3)
    inputs = {
        name: generator.standard_normal(3 * block * block).astype(ml_dtypes.bfloat16)
        for name in ("x", "y")
    }
    outputs = []
    for each in (tile, module):
        out = np.zeros(block * block, ml_dtypes.bfloat16)
        run(each, grid=(1, 1, 1), arguments={**inputs, "out": out, "n": block, "k": 3 * block})
        outputs.append(out)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert outputs[0].any()
