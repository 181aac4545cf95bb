"""Tensor descriptors -> whether the host can make tensor maps of them: what bulk copies need.

A tensor map is made at the launch, from arguments alone, and only of tensors whose base and strides
are multiples of 16 bytes (CUDA driver API, `cuTensorMapEncodeTiled`). What the signature does not
promise is asked of each launch (`analysis.tensor_maps.launch_condition`), and the common schedule
serves those that do not suit. A stride that would suit none is refused here.
"""

from __future__ import annotations

from tilewright_compiler.analysis.tensor_maps import LaunchExpressions, tensor_map_spec
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import DescriptorType
from tilewright_compiler.layout.swizzle import SharedLayout
from tilewright_compiler.schedule.unsuited import Unsuited

_ALIGNMENT_BYTES = 16


class MappedDescriptors:
    """Answers for the descriptors of one module."""

    def __init__(self, module: Module) -> None:
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
        for stride in made.operands[1 + len(type_.block) :]:
            text = self._expressions.of(stride) or ""
            if text.isdecimal() and int(text) * type_.dtype.size_bytes % _ALIGNMENT_BYTES:
                msg = f"a stride of {type_} is {text}, and not {_ALIGNMENT_BYTES} bytes many times"
                raise Unsuited(msg, user)
