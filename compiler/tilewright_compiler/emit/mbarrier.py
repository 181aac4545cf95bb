"""Mbarriers in shared memory: counting arrivals and bytes, and waiting for a phase.

Arrivals and waits are inline PTX that LLVM takes to touch all memory, so nothing that shared memory
holds moves across one. A wait is a loop, since the hardware's own wait may give up.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.errors import InternalCompilerError
from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.emit.shared_access import advanced, moved, symbol_address
from tilewright_compiler.emit.types import SHARED_POINTER
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import MbarrierType
from tilewright_compiler.layout.linear import NUM_LANES

MBARRIER_BYTES = 8

# The label is made unique for each copy of the text that LLVM may make.
_WAIT = (
    "{ .reg .pred done; W${:uid}: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
    "@!done bra W${:uid}; }"
)
_ARRIVE = "mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];"
_EXPECT = "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;"


def _emit_alloc(emitter: KernelEmitter, operation: Operation) -> None:
    offset = operation.attributes.get("shared_offset")
    if offset is None:
        msg = f"{operation.result.type} has no place: the schedule must allocate it first"
        raise InternalCompilerError(msg)
    emitter.arrivals[operation.result] = operation.attributes["arrivals"]
    emitter.define(operation.result, [symbol_address(emitter.text, offset)])


def _emit_init(emitter: KernelEmitter, operation: Operation) -> None:
    (ring,) = operation.operands
    text, type_ = emitter.text, ring.type
    assert isinstance(type_, MbarrierType), f"{type_} is no ring of mbarriers"
    assert type_.slots is not None, "the verifier lets only rings pass"
    arrivals = text.i32(emitter.arrivals[ring])
    is_first = text.value(f'llvm.icmp "eq" {emitter.threads.thread}, {text.i32(0)} : i32')
    text.line(f"scf.if {is_first} {{")
    with text.nested():
        for slot in range(type_.slots):
            address = advanced(text, emitter.scalar(ring), slot * MBARRIER_BYTES)
            text.line(f"nvvm.mbarrier.init {address}, {arrivals} : {SHARED_POINTER}, i32")
        # Copies arrive from outside of what the barrier that follows orders.
        text.line("nvvm.fence.mbarrier.init")
    text.line("}")


def _emit_slot(emitter: KernelEmitter, operation: Operation) -> None:
    ring, index = operation.operands
    text = emitter.text
    size = text.i32(MBARRIER_BYTES)
    distance = text.value(f"llvm.mul {emitter.scalar(index)}, {size} overflow<nsw, nuw> : i32")
    emitter.define(operation.result, [moved(text, emitter.scalar(ring), distance)])


def _emit_wait(emitter: KernelEmitter, operation: Operation) -> None:
    mbarrier, parity = (emitter.scalar(operand) for operand in operation.operands)
    emitter.text.assembly(_WAIT, [(mbarrier, SHARED_POINTER, "r"), (parity, "i32", "r")])


def _emit_arrive(emitter: KernelEmitter, operation: Operation) -> None:
    text = emitter.text
    operand = (emitter.scalar(operation.operands[0]), SHARED_POINTER, "r")
    if emitter.is_producer:
        text.assembly(_ARRIVE, [operand])
        return
    # What the other lanes read comes before the arrival of their first. Where all that reads is
    # `wgmma`, they have met when they waited for it.
    if emitter.form.has_lanes_that_read:
        text.line(f"nvvm.bar.warp.sync {text.i32(-1)} : i32")
    is_first = emitter.threads.is_representative(free_lane=NUM_LANES - 1, free_warp=0)
    # A branch, so that what gives the address is not computed in the uniform registers that the
    # descriptors of the next products wait for: 2 % of a large product.
    text.line(f"scf.if {is_first} {{")
    with text.nested():
        text.assembly(_ARRIVE, [operand])
    text.line("}")


def _emit_expect(emitter: KernelEmitter, operation: Operation) -> None:
    mbarrier = emitter.scalar(operation.operands[0])
    size = emitter.text.i32(operation.attributes["bytes"])
    operands = [(mbarrier, SHARED_POINTER, "r"), (size, "i32", "r")]
    emitter.text.assembly(_EXPECT, operands, guard=emitter.one_thread())


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "alloc_mbarriers": _emit_alloc,
        "mbarrier_init": _emit_init,
        "mbarrier_slot": _emit_slot,
        "mbarrier_wait": _emit_wait,
        "mbarrier_arrive": _emit_arrive,
        "mbarrier_expect": _emit_expect,
    }
)
