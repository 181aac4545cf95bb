"""Which tensor maps a scheduled kernel needs, and how the host builds each at a launch.

A bulk copy names a descriptor and a tile in shared memory; the two together are a tensor map: the
tensor is the descriptor's, box and swizzle are the tile's (`layout.boxes`). What the host is told
are expressions over launch arguments (`abi.arguments.TensorMapSpec`), so a descriptor must be made
of them: of its pointer argument itself, and of integers that the arguments give.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.abi.arguments import AbiParameter, MapRounding, TensorMapSpec
from tilewright.abi.dtypes import DType
from tilewright.abi.signature import INT31_MAX
from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.axis_info import AxisInfo, analyze
from tilewright_compiler.analysis.ranges import Interval, analyze_ranges
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import DescriptorType, SharedType, element_dtype
from tilewright_compiler.layout.boxes import Boxes, boxes_of
from tilewright_compiler.layout.swizzle import SharedLayout

# Those that are the same on the host, which computes without a width; in the kernel what wraps at
# 64 bits is no size of anything.
_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}

# What the driver demands of a map (CUDA driver API, cuTensorMapEncodeTiled).
_ALIGNMENT = 16
_STRIDE_LIMIT = 1 << 40
_SIZES = Interval(1, INT31_MAX)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map of a kernel: the descriptor that it serves, and how it is built."""

    descriptor: Value
    spec: TensorMapSpec


class LaunchExpressions:
    """What values of a kernel are in terms of its launch arguments."""

    def __init__(self, module: Module) -> None:
        """Read the kernel of a module; calls are inlined."""
        kernel = module.kernel
        self._names = {
            argument: name
            for argument, (name, _) in zip(
                kernel.body.arguments, module.signature.runtime, strict=True
            )
        }
        self._producers: dict[Value, Operation] = {
            result: operation for operation in kernel.body.walk() for result in operation.results
        }

    def producer(self, value: Value) -> Operation | None:
        """Return the operation that gives `value`; None of an argument."""
        return self._producers.get(value)

    def argument(self, value: Value) -> str | None:
        """Return the name of the launch argument that `value` is; None if it is not one."""
        return self._names.get(value)

    def of(self, value: Value) -> str | None:
        """Return the launch expression of an integer scalar; None if there is none."""
        if value in self._names:
            return self._names[value]
        operation = self._producers.get(value)
        if operation is None:
            return None
        match operation.name:
            case "num_programs" | "grid_extent":
                return f"grid{operation.attributes['axis']}"
            case "constant":
                return str(int(operation.attributes["value"]))
            case "multiple_of":
                return self.of(operation.operands[0])
            case "cast" if _is_widening(operation):
                return self.of(operation.operands[0])
            case "add" | "sub" | "mul" if element_dtype(value.type).bits == 64:
                left, right = (self.of(operand) for operand in operation.operands)
                if left is None or right is None:
                    return None
                return f"({left} {_OPERATORS[operation.name]} {right})"
            case _:
                return None


def tensor_map_spec(
    expressions: LaunchExpressions,
    descriptor: Value,
    layout: SharedLayout,
    *,
    groups: int = 1,
    rounding: MapRounding = "",
) -> TensorMapSpec | None:
    """Return how the host builds the map that copies blocks of `descriptor` to tiles of `layout`.

    With `groups`, blocks are copied in as many parts of their rows; `rounding` is what becomes of
    their elements. None if the descriptor is not
    made of launch arguments, or bulk copies do not write that layout.
    """
    type_, made = descriptor.type, expressions.producer(descriptor)
    assert isinstance(type_, DescriptorType), f"{type_} is no descriptor"
    boxes = boxes_of(layout, size_bytes=type_.dtype.size_bytes, groups=groups)
    if made is None or made.name != "make_descriptor" or boxes is None:
        return None
    base, *numbers = made.operands
    pointer = expressions.argument(base)
    texts = [expressions.of(number) for number in numbers]
    known = [text for text in texts if text is not None]
    if pointer is None or len(known) != len(texts):
        return None
    rank = len(type_.block)
    return TensorMapSpec(
        pointer=pointer,
        dtype=type_.dtype,
        sizes=tuple(known[:rank]),
        strides=(*known[rank:], "1"),
        box=type_.padded(boxes.shape),
        swizzle_bytes=boxes.swizzle_bytes,
        rounding=rounding,
    )


def copied_tile(operation: Operation) -> tuple[Value, SharedType, Boxes]:
    """Return descriptor, shared tile and boxes of a `tma_load` or `tma_store`.

    Raises InternalCompilerError if bulk copies do not write that layout.
    """
    descriptor, tile = operation.operands[0], operation.operands[1].type
    assert isinstance(tile, SharedType), f"{operation.name} of {tile}"
    groups: int = operation.attributes.get("groups", 1)
    boxes = boxes_of(tile.layout, size_bytes=tile.dtype.size_bytes, groups=groups)
    if boxes is None:
        msg = f"{operation.name} of {tile}: bulk tensor copies do not write that layout"
        raise InternalCompilerError(msg)
    return descriptor, tile, boxes


def tensor_maps(module: Module) -> Mapping[Operation, TensorMap]:
    """Return the tensor map of each bulk copy of a scheduled module, in program order.

    Raises InternalCompilerError if there is none: the schedule asks `tensor_map_spec` first.
    """
    expressions = LaunchExpressions(module)
    found: dict[Operation, TensorMap] = {}
    for operation in module.kernel.body.walk():
        if operation.name not in ("tma_load", "tma_store"):
            continue
        descriptor, tile, boxes = copied_tile(operation)
        spec = tensor_map_spec(
            expressions,
            descriptor,
            tile.layout,
            groups=boxes.groups,
            rounding=operation.attributes.get("rounding", ""),
        )
        if spec is None:
            msg = f"{operation.name} of a descriptor that no launch argument describes"
            raise InternalCompilerError(msg)
        found[operation] = TensorMap(descriptor, spec)
    return found


def added_parameters(module: Module) -> tuple[AbiParameter, ...]:
    """Return the parameters of a kernel's entry behind its run-time arguments.

    Tensor maps in the order of their first use, equal ones once; then the extents of the logical
    grid that a persistent kernel reads.
    """
    specs = dict.fromkeys(map_.spec for map_ in tensor_maps(module).values())
    axes = sorted(
        {
            operation.attributes["axis"]
            for operation in module.kernel.body.walk()
            if operation.name == "grid_extent"
        }
    )
    return (
        *(
            AbiParameter("tensor_map", f"map{index}", tensor_map=spec)
            for index, spec in enumerate(specs)
        ),
        *(AbiParameter("grid", f"grid{axis}", axis=axis) for axis in axes),
    )


def launch_condition(module: Module) -> str:
    """Return when a scheduled kernel's tensor maps exist: an expression over launch arguments.

    It asks what the signature does not promise: bases and strides that are multiples of 16 bytes,
    sizes from 1 to what a coordinate can tell, strides that a map can hold. Empty for a kernel
    without tensor maps.
    """
    maps = tensor_maps(module)
    if not maps:
        return ""
    facts, ranges = analyze(module), analyze_ranges(module)
    expressions = LaunchExpressions(module)
    found: dict[str, None] = {}
    for map_ in maps.values():
        made = expressions.producer(map_.descriptor)
        assert made is not None, "a descriptor with a map is made here"
        base, *numbers = made.operands
        dtype, rank = map_.spec.dtype, len(map_.spec.sizes)
        if facts[base].divisor % _ALIGNMENT:
            found[f"{map_.spec.pointer} % {_ALIGNMENT} == 0"] = None
        for text, number in zip(map_.spec.sizes, numbers[:rank], strict=True):
            found.update(dict.fromkeys(_size_conditions(text, ranges[number])))
        for text, number in zip(map_.spec.strides, numbers[rank:], strict=False):
            # What is a size as well, as of dense rows, is a size in any case.
            known = ranges[number] if text not in map_.spec.sizes else _SIZES
            conditions = _stride_conditions(text, known, facts[number], dtype)
            found.update(dict.fromkeys(conditions))
    return " and ".join(found)


def _size_conditions(text: str, known: Interval) -> list[str]:
    conditions = [f"{text} > 0"] if known.low < _SIZES.low else []
    return [*conditions, *([f"{text} <= {INT31_MAX}"] if known.high > _SIZES.high else [])]


def _stride_conditions(text: str, known: Interval, facts: AxisInfo, dtype: DType) -> list[str]:
    limit, divisor = _STRIDE_LIMIT // dtype.size_bytes, max(_ALIGNMENT // dtype.size_bytes, 1)
    conditions = [f"{text} >= 0"] if known.low < 0 else []
    if known.high >= limit:
        conditions.append(f"{text} < {limit}")
    if facts.divisor % divisor:
        conditions.append(f"{text} % {divisor} == 0")
    return conditions


def _is_widening(operation: Operation) -> bool:
    source, target = (element_dtype(v.type) for v in (operation.operands[0], operation.result))
    if not source.is_integer or not target.is_integer or source.bits == 1:
        return False
    keeps_sign = source.is_signed == target.is_signed or not source.is_signed
    return source == target or (source.bits < target.bits and keeps_sign)
