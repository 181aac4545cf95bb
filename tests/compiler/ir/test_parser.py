"""The text form: what is printed is read back, and what is wrong is refused with its place."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strategies import Program, programs
from tilewright.abi.dtypes import ALL, bfloat16, float32, int32, int64
from tilewright.abi.signature import Constexpr, KernelSignature, Parameter, Pointer, Scalar
from tilewright.errors import FormatError, SourceLocation
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType
from tilewright_compiler.layout.linear import LinearLayout

_HEAD = "signature (n:i64) general num_warps=4 num_stages=3\n\n"


def assert_same(left: object, right: object, pairs: dict[Value, Value]) -> None:
    """Compare two pieces of IR field by field, values by their place, everything with its type."""
    assert type(left) is type(right)
    if isinstance(left, Value):
        assert isinstance(right, Value)
        assert left.type == right.type
        assert pairs.setdefault(left, right) is right
    elif isinstance(left, Module | Function | Block | Operation) and is_dataclass(left):
        for field in fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name), pairs)
    elif isinstance(left, tuple | list):
        assert isinstance(right, tuple | list)
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other, pairs)
    elif isinstance(left, dict):
        assert isinstance(right, dict)
        assert_same(list(left.items()), list(right.items()), pairs)
    else:
        assert left == right or (left != left and right != right), (left, right)
        assert str(left) == str(right), "a zero lost its sign, or a number its kind"


def wrap(operations: list[Operation], signature: KernelSignature | None = None) -> Module:
    signature = signature or KernelSignature(())
    body = Block((), [*operations, Operation("return")])
    return Module({"k": Function("k", body, (), is_kernel=True)}, signature)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_random_module_round_trips(program: Program) -> None:
    text = print_module(program.module)
    parsed = parse_module(text)
    assert print_module(parsed) == text
    assert_same(program.module, parsed, {})


_ATTRIBUTES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(ALL)
    | st.just(LinearLayout((4, 2), (1,), (2, 4, 0, 0, 0), (0, 0))),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(value=_ATTRIBUTES, shared=st.integers(0, 1 << 20))
def test_any_attribute_round_trips(value: object, shared: int) -> None:
    operation = Operation("constant", (), (Value(ScalarType(int32)),), {"value": value, "x": value})
    module = wrap([operation])
    module.attributes["shared_bytes"] = shared
    assert_same(module, parse_module(print_module(module)), {})


_PARAMETERS: st.SearchStrategy[Parameter] = st.one_of(
    st.builds(Pointer, st.sampled_from(ALL), st.booleans()),
    st.builds(Scalar, st.sampled_from(ALL), st.booleans(), st.booleans(), st.booleans()),
    st.builds(
        Constexpr,
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"]))
        | st.sampled_from(ALL),
    ),
)


@given(
    parameters=st.lists(_PARAMETERS, max_size=5),
    specialization=st.sampled_from(["fast", "general"]),
    num_warps=st.sampled_from([1, 2, 4, 8]),
)
def test_any_signature_round_trips(
    parameters: list[Parameter], specialization: str, num_warps: int
) -> None:
    named = tuple((f"p{index}", parameter) for index, parameter in enumerate(parameters))
    signature = KernelSignature(named, specialization, num_warps, 2)  # type: ignore[arg-type]  # sampled from the two
    assert_same(signature, parse_module(print_module(wrap([], signature))).signature, {})


def test_layouts_locations_and_calls_round_trip() -> None:
    place = SourceLocation('a "b".py', 3, 4, 9, "kernel")
    layout = LinearLayout((4, 32), (32, 64), (1, 2, 4, 8, 16), (0, 0))
    tile = TileType((4, 32), ScalarType(bfloat16), layout)
    callee_argument = Value(tile, "a")
    callee = Function(
        "f",
        Block((callee_argument,), [Operation("return", (callee_argument,))]),
        (tile,),
        location=place,
    )
    body = Block((Value(PointerType(bfloat16), "x"),))
    builder = Builder(body, place)
    loaded = builder.value("splat", (builder.value("constant", (), tile.element, value=1.5),), tile)
    builder.create("call", (loaded,), (tile,), callee="f")
    builder.create("return")
    module = Module(
        {"k": Function("k", body, (), is_kernel=True, location=place), "f": callee},
        KernelSignature((("x", Pointer(bfloat16)),)),
        {"shared_bytes": 128},
    )
    text = print_module(module, locations=True)
    assert_same(module, parse_module(text), {})
    assert "loc(" not in print_module(module)


def test_names_are_kept_and_made_unique() -> None:
    names = ["x", "x", "x_1", "", "7", "no name", "acc"]
    values = [Value(ScalarType(int64), name) for name in names]
    operations = [Operation("program_id", (), (value,), {"axis": 0}) for value in values]
    text = print_module(wrap(operations))
    printed = [line.split()[0] for line in text.splitlines() if "program_id" in line]
    assert printed == ["%x", "%x_1", "%x_1_1", "%0", "%1", "%2", "%acc"]
    assert print_module(parse_module(text)) == text


def test_comments_and_free_spacing_are_read() -> None:
    text = (
        _HEAD + "// a comment\nkernel @k(%n: i64)\n{ %1 = add %n, // more\n %n : i64\n return }\n"
    )
    assert print_module(parse_module(text)) == (
        _HEAD + "kernel @k(%n: i64) {\n  %0 = add %n, %n : i64\n  return\n}\n"
    )


def test_value_on_the_next_line_is_not_an_operand() -> None:
    module = parse_module(_HEAD + "kernel @k(%n: i64) {\n  return\n  %0 = add %n, %n : i64\n}\n")
    assert [operation.name for operation in module.kernel.body.operations] == ["return", "add"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%0 = add %a, %n : i64", r"line 4, column 12: %a is not defined before this use"),
        ("%n = add %n, %n : i64", r"%n is defined twice"),
        ("%0 = add %n, %n : i65", r"no dtype is called 'i65'; there are i1, "),
        ("%0 = add %n, %n", r"1 results and 0 result types"),
        ("%0 = constant {value = =} : i64", r"'=' is no attribute value"),
        ("%0 = add %n, %n : tile<4xi64", r"expected '>'"),
        ("$", r"line 4, column 3: unexpected character '\$'"),
        ("if %n {\n %1 = add %n, %n : i64\n yield\n}\nreturn %1", r"%1 is not defined"),
    ],
    ids=["undefined", "twice", "dtype", "types", "attribute", "tile", "character", "scope"],
)  # fmt: skip
def test_wrong_text_is_refused_with_its_place(body: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_module(f"{_HEAD}kernel @k(%n: i64) {{\n  {body}\n}}\n")


def test_float_attribute_keeps_its_kind() -> None:
    module = wrap([Operation("constant", (), (Value(ScalarType(float32)),), {"value": 1.0})])
    assert "value = 1.0" in print_module(module)
    (constant, _) = parse_module(print_module(module)).kernel.body.operations
    assert type(constant.attributes["value"]) is float
