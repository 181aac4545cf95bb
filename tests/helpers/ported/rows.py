"""Kernels over rows: softmax, layer norm with its gradients, RMS norm, cross entropy, AdamW."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def softmax(x, out, rows, columns, BLOCK: tl.constexpr):
    """Fused softmax; as many programs as the device holds walk over the rows."""
    lanes = tl.arange(0, BLOCK)
    mask = lanes < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        # The loop stores, so that the next row is copied ahead only on this promise.
        values = tl.async_copy(x + row * columns + lanes, mask=mask)
        values = tl.where(mask, values, -float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * columns + lanes, powers / tl.sum(powers, axis=0), mask=mask)


@tl.kernel
def layer_norm(x, weight, bias, out, means, rstds, columns, eps, BLOCK: tl.constexpr):
    """Layer norm of rows of any width, with what the gradients need of each row."""
    row = tl.program_id(0) * columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    # What the mean lost to rounding, in rows far from zero, the second pass finds.
    squares = tl.zeros([BLOCK], tl.float32)
    rest = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        centered = tl.where(lanes < columns, values - mean, 0.0)
        squares += centered * centered
        rest += centered
    shift = tl.sum(rest, axis=0) / columns
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns - shift * shift + eps)
    tl.store(means + tl.program_id(0), mean + shift)
    tl.store(rstds + tl.program_id(0), rstd)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        mask = lanes < columns
        normalized = (tl.load(x + row + lanes, mask=mask).to(tl.float32) - mean - shift) * rstd
        scale = tl.load(weight + lanes, mask=mask).to(tl.float32)
        added = tl.load(bias + lanes, mask=mask).to(tl.float32)
        tl.store(out + row + lanes, normalized * scale + added, mask=mask)


@tl.kernel
def layer_norm_backward(
    grad, x, weight, means, rstds, grad_x, grad_weights, grad_biases, locks, columns,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a row; those of weight and bias are added to a group's under its lock.

    `locks` holds a lock and then a flag, whether somebody wrote, for each group.
    """
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < columns
    values = tl.load(x + row * columns + lanes, mask=mask).to(tl.float32)
    grads = tl.load(grad + row * columns + lanes, mask=mask).to(tl.float32)
    scale = tl.load(weight + lanes, mask=mask).to(tl.float32)
    rstd = tl.load(rstds + row)
    normalized = tl.where(mask, (values - tl.load(means + row)) * rstd, 0.0)
    scaled = tl.where(mask, scale * grads, 0.0)
    along = tl.sum(normalized * scaled, axis=0) / columns
    shift = tl.sum(scaled, axis=0) / columns
    result = (scaled - (normalized * along + shift)) * rstd
    tl.store(grad_x + row * columns + lanes, result, mask=mask)
    group = row % GROUPS
    lock, flag = locks + group, locks + GROUPS + group
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    partial_weight, partial_bias = grads * normalized, grads
    places = group * columns + lanes
    if tl.load(flag) == 0:
        tl.store(flag, 1)
    else:
        partial_weight += tl.load(grad_weights + places, mask=mask)
        partial_bias += tl.load(grad_biases + places, mask=mask)
    tl.store(grad_weights + places, partial_weight, mask=mask)
    tl.store(grad_biases + places, partial_bias, mask=mask)
    tl.atomic_xchg(lock, 0)


@tl.kernel
def rms_norm_with_residual(x, residual, weight, out, columns, eps, BLOCK: tl.constexpr):
    """Add `x` to the residual stream in place, and give the RMS norm of the sum."""
    row = tl.program_id(0) * columns
    lanes = tl.arange(0, BLOCK)
    mask = lanes < columns
    total = tl.load(x + row + lanes, mask=mask).to(tl.float32)
    total += tl.load(residual + row + lanes, mask=mask).to(tl.float32)
    tl.store(residual + row + lanes, total, mask=mask)
    rstd = tl.rsqrt(tl.sum(total * total, axis=0) / columns + eps)
    scale = tl.load(weight + lanes, mask=mask).to(tl.float32)
    tl.store(out + row + lanes, total * rstd * scale, mask=mask)


@tl.kernel
def cross_entropy(
    logits, targets, losses, classes, kept, smoothing, ignored, BLOCK: tl.constexpr
):  # fmt: skip
    """The loss of a row with label smoothing, one pass for the sum; its gradient replaces it."""
    row = logits + tl.program_id(0) * classes
    target = tl.load(targets + tl.program_id(0))
    if target == ignored:
        for start in range(0, classes, BLOCK):
            lanes = start + tl.arange(0, BLOCK)
            tl.store(row + lanes, 0.0, mask=lanes < classes)
        return
    largest = -float("inf")
    total = 0.0
    plain = 0.0
    for start in range(0, classes, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        mask = lanes < classes
        values = tl.load(row + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        plain += tl.sum(tl.where(mask, values, 0.0), axis=0)
        higher = tl.maximum(largest, tl.max(values, axis=0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(values - higher), axis=0)
        largest = higher
    normalizer = largest + tl.log(total)
    chosen = tl.load(row + target).to(tl.float32)
    loss = (1 - smoothing) * (normalizer - chosen) + smoothing * (normalizer - plain / classes)
    tl.store(losses + tl.program_id(0), loss / kept)
    for start in range(0, classes, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        mask = lanes < classes
        values = tl.load(row + lanes, mask=mask).to(tl.float32)
        wanted = tl.where(lanes == target, 1 - smoothing, 0.0) + smoothing / classes
        tl.store(row + lanes, (tl.exp(values - normalizer) - wanted) / kept, mask=mask)


@tl.kernel
def adamw(
    parameters, grads, first, second, n, rate, beta1, beta2, eps, decay, step, BLOCK: tl.constexpr
):  # fmt: skip
    """One step of AdamW, in place: decoupled decay, moments in f32, corrected for their start."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    grad = tl.load(grads + lanes, mask=mask).to(tl.float32)
    m = beta1 * tl.load(first + lanes, mask=mask) + (1 - beta1) * grad
    v = beta2 * tl.load(second + lanes, mask=mask) + (1 - beta2) * grad * grad
    corrected_m = m / (1 - tl.exp(step * tl.log(beta1)))
    corrected_v = v / (1 - tl.exp(step * tl.log(beta2)))
    value = tl.load(parameters + lanes, mask=mask).to(tl.float32) * (1 - rate * decay)
    value -= rate * corrected_m / (tl.sqrt(corrected_v) + eps)
    tl.store(parameters + lanes, value, mask=mask)
    tl.store(first + lanes, m, mask=mask)
    tl.store(second + lanes, v, mask=mask)


@tl.kernel
def quantize_rows(x, out, scales, columns, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    """Quantise each token's row by its largest element, to an 8-bit float or integer."""
    row = tl.program_id(0) * columns
    lanes = tl.arange(0, BLOCK)
    mask = lanes < columns
    values = tl.load(x + row + lanes, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-10) / LARGEST
    tl.store(scales + tl.program_id(0), scale)
    scaled = values / scale
    if out.dtype == tl.int8:
        scaled = tl.libdevice.rint(scaled)
    tl.store(out + row + lanes, scaled.to(out.dtype), mask=mask)


@tl.kernel
def low_memory_dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    """Dropout whose mask is made of a seed, so that nobody has to store it."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    values = tl.load(x + lanes, mask=mask)
    is_kept = tl.rand(seed, lanes) > p
    tl.store(out + lanes, tl.where(is_kept, values / (1 - p), 0.0), mask=mask)


@tl.kernel
def swiglu(gate, up, grad, out, grad_gate, grad_up, n, BLOCK: tl.constexpr):
    """`silu(gate) * up`, and the gradients of both for a given one, in one pass."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    a = tl.load(gate + lanes, mask=mask).to(tl.float32)
    b = tl.load(up + lanes, mask=mask).to(tl.float32)
    g = tl.load(grad + lanes, mask=mask).to(tl.float32)
    sigmoid = tl.sigmoid(a)
    silu = a * sigmoid
    tl.store(out + lanes, silu * b, mask=mask)
    tl.store(grad_up + lanes, g * silu, mask=mask)
    tl.store(grad_gate + lanes, g * b * (sigmoid + silu * (1 - sigmoid)), mask=mask)


@tl.kernel
def walsh_hadamard(x, out, scale, N: tl.constexpr, BITS: tl.constexpr):
    """The fast Walsh-Hadamard transform of rows of 2^BITS elements, in registers."""
    lanes = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + lanes).to(tl.float32)
    for bit in tl.static_range(BITS):
        pairs = tl.reshape(values, (N >> (bit + 1), 2, 1 << bit))
        first, second = tl.split(tl.permute(pairs, 0, 2, 1))
        pairs = tl.permute(tl.join(first + second, first - second), 0, 2, 1)
        values = tl.reshape(pairs, (N,))
    tl.store(out + lanes, values * scale)
