"""Tensor descriptors -> whether the host can make tensor maps of them: what bulk copies need.

A tensor map is made at the launch, from arguments alone, and only of tensors whose base and strides
are multiples of 16 bytes (CUDA driver API, `cuTensorMapEncodeTiled`). That must be known of the
signature: a launch that could fail is no replacement for one that works.
"""

from __future__ import annotations

from tilewright_compiler.analysis.axis_info import analyze
from tilewright_compiler.analysis.tensor_maps import LaunchExpressions, tensor_map_spec
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import DescriptorType
from tilewright_compiler.layout.swizzle import SharedLayout
from tilewright_compiler.schedule.unsuited import Unsuited

_ALIGNMENT_BYTES = 16


class MappedDescriptors:
    """Answers for the descriptors of one module."""

    def __init__(self, module: Module) -> None:
        self._facts = analyze(module)
        self._expressions = LaunchExpressions(module)

    def check(
        self, descriptor: Value, layout: SharedLayout, *, user: Operation, groups: int = 1
    ) -> None:
        """Demand that bulk copies can move blocks between a descriptor and tiles of a layout.

        With `groups`, in as many parts of their rows. Raises Unsuited, naming `user`.
        """
        type_, made = descriptor.type, self._expressions.producer(descriptor)
        assert isinstance(type_, DescriptorType), "the verifier checks types"
        spec = tensor_map_spec(self._expressions, descriptor, layout, groups=groups)
        if spec is None or made is None:
            msg = f"no tensor map moves {type_}: not made of launch arguments, or too large"
            raise Unsuited(msg, user)
        base, *numbers = made.operands
        if self._facts[base].divisibility[0] % _ALIGNMENT_BYTES:
            msg = f"the base of {type_} is not known to be a multiple of {_ALIGNMENT_BYTES} bytes"
            raise Unsuited(msg, user)
        for stride in numbers[len(type_.block) :]:
            if self._facts[stride].divisibility[0] * type_.dtype.size_bytes % _ALIGNMENT_BYTES:
                msg = f"a stride of {type_} is not known to be {_ALIGNMENT_BYTES} bytes many times"
                raise Unsuited(msg, user)
