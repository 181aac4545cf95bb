"""What the kernels over rows are run on, and what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.ported import rows
from helpers.ported.case import (
    F8,
    Arguments,
    Array,
    Case,
    Random,
    f64,
    half,
    poison,
    sigmoid_of,
    single,
    softmax_of,
)


def softmax(a: Arguments) -> Any:
    return {"out": softmax_of(a["x"].astype(np.float64))}


def layer_norm(a: Arguments) -> Any:
    x, weight, bias = f64(a["x"], a["weight"], a["bias"])
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + a["eps"])
    return {"out": (x - mean) * rstd * weight + bias, "means": mean[:, 0], "rstds": rstd[:, 0]}


def layer_norm_backward(a: Arguments) -> Any:
    grad, x, weight = f64(a["grad"], a["x"], a["weight"])
    mean, rstd = f64(a["means"][:, None], a["rstds"][:, None])
    normalized = (x - mean) * rstd
    scaled = grad * weight
    along = (scaled * normalized).mean(1, keepdims=True)
    groups = np.arange(len(x)) % len(a["grad_weights"])
    sums = [
        np.stack([part[groups == group].sum(0) for group in range(len(a["grad_weights"]))])
        for part in (grad * normalized, grad)
    ]
    return {
        "grad_x": rstd * (scaled - scaled.mean(1, keepdims=True) - normalized * along),
        "grad_weights": sums[0],
        "grad_biases": sums[1],
    }


def make_layer_norm_backward(random: Random) -> Arguments:
    x = half(random, 13, 200)
    return {
        "grad": half(random, 13, 200),
        "x": x,
        "weight": half(random, 200),
        "means": x.astype(np.float64).mean(1).astype(np.float32),
        "rstds": (1 / np.sqrt(x.astype(np.float64).var(1) + 1e-5)).astype(np.float32),
        "grad_x": poison(13, 200, dtype=np.float16),
        "grad_weights": poison(4, 200),
        "grad_biases": poison(4, 200),
        "locks": np.zeros(8, np.int32),
        "columns": 200,
    }


def rms_norm(a: Arguments) -> Any:
    x, residual, weight = f64(a["x"], a["residual"], a["weight"])
    total = x + residual
    rms = np.sqrt((total**2).mean(1, keepdims=True) + a["eps"])
    return {"residual": total, "out": total / rms * weight}


def cross_entropy(a: Arguments) -> Any:
    (logits,) = f64(a["logits"])
    targets, kept, smoothing = a["targets"], a["kept"], a["smoothing"]
    is_kept = targets != a["ignored"]
    logs = np.log(softmax_of(logits))
    wanted = np.full(logits.shape, smoothing / logits.shape[1])
    wanted[np.arange(len(targets)), np.where(is_kept, targets, 0)] += 1 - smoothing
    return {
        "losses": np.where(is_kept, -(wanted * logs).sum(1) / kept, 0),
        "logits": np.where(is_kept[:, None], (np.exp(logs) - wanted) / kept, 0),
    }


def adamw(a: Arguments) -> Any:
    value, grad, first, second = f64(a["parameters"], a["grads"], a["first"], a["second"])
    m = a["beta1"] * first + (1 - a["beta1"]) * grad
    v = a["beta2"] * second + (1 - a["beta2"]) * grad**2
    corrected = (m / (1 - a["beta1"] ** a["step"]), v / (1 - a["beta2"] ** a["step"]))
    step = a["rate"] * corrected[0] / (np.sqrt(corrected[1]) + a["eps"])
    return {
        "parameters": value * (1 - a["rate"] * a["decay"]) - step,
        "first": m,
        "second": v,
    }


def quantize_rows(a: Arguments) -> Any:
    x = a["x"].astype(np.float32)
    largest = np.float32(127 if a["out"].dtype == np.int8 else 448)
    scale = np.abs(x).max(1) / largest
    scaled = x / scale[:, None]
    if a["out"].dtype == np.int8:
        return {"out": np.rint(scaled).astype(np.int8), "scales": scale}
    return {"out": scaled.astype(a["out"].dtype).astype(np.float64), "scales": scale}


def philox_words(seed: int, offsets: Array) -> Array:
    """Return the first word of Philox 4x32-10 for each offset, in whole numbers."""
    words = []
    for offset in offsets.tolist():
        c, key = [offset, 0, 0, 0], [seed, 0]
        for _ in range(10):
            first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [
                second >> 32 ^ c[1] ^ key[0],
                second & 0xFFFFFFFF,
                first >> 32 ^ c[3] ^ key[1],
                first & 0xFFFFFFFF,
            ]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        words.append(c[0])
    return np.array(words, np.uint32)


def dropout(a: Arguments) -> Any:
    words = philox_words(a["seed"], np.arange(a["n"])).view(np.int32)
    uniform = np.where(words < 0, ~words, words).astype(np.float64) * 4.6566127342e-10
    x = a["x"].astype(np.float64)
    return {"out": np.where(uniform > a["p"], x / (1 - a["p"]), 0)}


def swiglu(a: Arguments) -> Any:
    gate, up, grad = f64(a["gate"], a["up"], a["grad"])
    sigmoid = sigmoid_of(gate)
    return {
        "out": gate * sigmoid * up,
        "grad_up": grad * gate * sigmoid,
        "grad_gate": grad * up * sigmoid * (1 + gate * (1 - sigmoid)),
    }


def walsh_hadamard(a: Arguments) -> Any:
    matrix = np.ones((1, 1))
    while len(matrix) < a["x"].shape[1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return {"out": a["x"].astype(np.float64) @ matrix * a["scale"]}


ROWS = {
    "softmax": Case(
        rows.softmax,
        (5,),
        lambda r: {"x": single(r, 23, 781), "out": poison(23, 781), "rows": 23, "columns": 781},
        softmax,
        1e-6,
        {"BLOCK": 1024},
    ),
    "layer norm": Case(
        rows.layer_norm,
        (7,),
        lambda r: {
            "x": half(r, 7, 1500) + np.float16(3),
            "weight": half(r, 1500),
            "bias": half(r, 1500),
            "out": poison(7, 1500, dtype=np.float16),
            "means": poison(7),
            "rstds": poison(7),
            "columns": 1500,
            "eps": 1e-5,
        },
        layer_norm,
        1e-3,
        {"BLOCK": 1024},
    ),
    "layer norm backward": Case(
        rows.layer_norm_backward,
        (13,),
        make_layer_norm_backward,
        layer_norm_backward,
        1e-3,
        {"GROUPS": 4, "BLOCK": 256},
    ),
    "rms norm with residual": Case(
        rows.rms_norm_with_residual,
        (9,),
        lambda r: {
            "x": half(r, 9, 300),
            "residual": half(r, 9, 300),
            "weight": half(r, 300),
            "out": poison(9, 300, dtype=np.float16),
            "columns": 300,
            "eps": 1e-6,
        },
        rms_norm,
        1e-3,
        {"BLOCK": 512},
    ),
    "cross entropy": Case(
        rows.cross_entropy,
        (6,),
        lambda r: {
            "logits": single(r, 6, 1111) * 4,
            "targets": np.array([3, -100, 1110, 0, -100, 500]),
            "losses": np.zeros(6, np.float32),
            "classes": 1111,
            "kept": 4,
            "smoothing": 0.1,
            "ignored": -100,
        },
        cross_entropy,
        1e-6,
        {"BLOCK": 512},
    ),
    "adamw": Case(
        rows.adamw,
        (3,),
        lambda r: {
            "parameters": single(r, 700),
            "grads": half(r, 700),
            "first": single(r, 700),
            "second": single(r, 700) ** 2,
            "n": 700,
            "rate": 1e-2,
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-8,
            "decay": 0.1,
            "step": 7,
        },
        adamw,
        2e-5,
        {"BLOCK": 256},
    ),
    "quantize rows to int8": Case(
        rows.quantize_rows,
        (5,),
        lambda r: {
            "x": half(r, 5, 200),
            "out": poison(5, 200, dtype=np.int8),
            "scales": poison(5),
            "columns": 200,
        },
        quantize_rows,
        1e-6,
        {"LARGEST": 127, "BLOCK": 256},
    ),
    "quantize rows to float8": Case(
        rows.quantize_rows,
        (5,),
        lambda r: {
            "x": half(r, 5, 200),
            "out": poison(5, 200, dtype=F8),
            "scales": poison(5),
            "columns": 200,
        },
        quantize_rows,
        1e-6,
        {"LARGEST": 448, "BLOCK": 256},
    ),
    "low memory dropout": Case(
        rows.low_memory_dropout,
        (2,),
        lambda r: {"x": single(r, 900), "out": poison(900), "n": 900, "p": 0.3, "seed": 123},
        dropout,
        1e-6,
        {"BLOCK": 512},
    ),
    "swiglu": Case(
        rows.swiglu,
        (2,),
        lambda r: {
            **{name: single(r, 900) for name in ("gate", "up", "grad")},
            **{name: poison(900) for name in ("out", "grad_gate", "grad_up")},
            "n": 900,
        },
        swiglu,
        1e-6,
        {"BLOCK": 512},
    ),
    "walsh hadamard": Case(
        rows.walsh_hadamard,
        (3,),
        lambda r: {"x": half(r, 3, 512), "out": poison(3, 512), "scale": 512**-0.5},
        walsh_hadamard,
        1e-6,
        {"N": 512, "BITS": 9},
    ),
}
