"""The kernels. `prebuilt/signatures/gates.toml` says for which types they are compiled."""

import tilewright.language as tl


@tl.kernel
def swiglu_kernel(gate, value, out, n, BLOCK: tl.constexpr):
    """Write `silu(gate) * value` of `BLOCK` elements, computed in f32."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    v = tl.load(value + offsets, mask=mask).to(tl.float32)
    tl.store(out + offsets, g * tl.sigmoid(g) * v, mask=mask)


@tl.kernel
def swiglu_backward_kernel(gate, value, grad, grad_gate, grad_value, n, BLOCK: tl.constexpr):
    """Write both gradients of `BLOCK` elements, computed in f32."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    v = tl.load(value + offsets, mask=mask).to(tl.float32)
    d = tl.load(grad + offsets, mask=mask).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(grad_gate + offsets, d * v * s * (1 + g * (1 - s)), mask=mask)
    tl.store(grad_value + offsets, d * g * s, mask=mask)
