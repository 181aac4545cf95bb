"""What the kernels of products are run on, and what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.ported import products
from helpers.ported.case import F8, Arguments, Case, cdiv, f64, half, poison, single


def leaky_product(a: Arguments) -> Any:
    x, y = f64(a["a"], a["b"])
    product = x @ y
    return {"c": np.where(product >= 0, product, 0.01 * product)}


def transposed_product(a: Arguments) -> Any:
    x, y = f64(a["a"], a["b"])
    return {"c": x @ y.T}


def grouped_gemm(a: Arguments) -> Any:
    x, weights = f64(a["x"], a["weights"])
    parts = zip(a["offsets"][:-1], a["offsets"][1:], strict=True)
    return {"out": np.concatenate([x[i:j] @ weights[e] for e, (i, j) in enumerate(parts)])}


def four_bit_matmul(a: Arguments) -> Any:
    group = 32
    packed = a["packed"]
    numbers = np.stack([packed & 15, packed >> 4], 1).reshape(a["k"], a["n"]).astype(np.float64)
    zeros, scales = (np.repeat(x, group, 0) for x in f64(a["zeros"], a["scales"]))
    return {"out": a["x"].astype(np.float64) @ ((numbers - zeros) * scales)}


def block_scaled_matmul(a: Arguments) -> Any:
    x, y, x_scales, y_scales = f64(a["a"], a["b"], a["a_scales"], a["b_scales"])
    x = x * np.repeat(x_scales, 64, 1)[:, : a["k"]]
    y = y * np.repeat(np.repeat(y_scales, 64, 0)[: a["n"]], 64, 1)[:, : a["k"]]
    return {"out": x @ y.T}


def convolution(a: Arguments) -> Any:
    x, weight = f64(a["x"], a["weight"])
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return {"out": np.einsum("chwij,fcij->fhw", windows, weight)}


def max_pool(a: Arguments) -> Any:
    images, height, width = a["x"].shape
    x = a["x"][:, : height // 3 * 3, : width // 3 * 3]
    windows = x.reshape(images, height // 3, 3, width // 3, 3).transpose(0, 1, 3, 2, 4)
    windows = windows.reshape(images, height // 3, width // 3, 9)
    return {"out": windows.max(-1).astype(np.float64), "places": windows.argmax(-1)}


PRODUCTS = {
    "matmul in groups with leaky relu": Case(
        products.matmul_leaky_relu,
        (cdiv(150, 64) * cdiv(208, 64),),
        lambda r: {
            "a": half(r, 150, 112),
            "b": half(r, 112, 208),
            "c": poison(150, 208, dtype=np.float16),
            "m": 150,
            "n": 208,
            "k": 112,
        },
        leaky_product,
        1e-3,
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 2, "ACTIVATION": "leaky_relu"},
    ),
    "persistent matmul by descriptors": Case(
        products.persistent_matmul,
        (5,),
        lambda r: {
            "a": half(r, 300, 96),
            "b": half(r, 208, 96),
            "c": poison(300, 208, dtype=np.float16),
            "m": 300,
            "n": 208,
            "k": 96,
        },
        transposed_product,
        1e-3,
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP": 2},
    ),
    "grouped gemm": Case(
        products.grouped_gemm,
        (4,),
        lambda r: {
            "x": half(r, 150, 48),
            "weights": half(r, 5, 48, 80),
            "out": poison(150, 80),
            "offsets": np.array([0, 70, 70, 71, 135, 150]),
            "experts": 5,
            "n": 80,
            "k": 48,
        },
        grouped_gemm,
        1e-5,
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32},
    ),
    "four bit matmul": Case(
        products.four_bit_matmul,
        (2, 2),
        lambda r: {
            "x": half(r, 40, 128),
            "packed": r.integers(0, 256, (64, 80), np.uint8),
            "scales": half(r, 4, 80),
            "zeros": r.integers(0, 16, (4, 80), np.uint8),
            "out": poison(40, 80),
            "m": 40,
            "n": 80,
            "k": 128,
        },
        four_bit_matmul,
        1e-5,
        {"BLOCK_M": 32, "BLOCK_N": 64, "GROUP": 32},
    ),
    "block scaled matmul": Case(
        products.block_scaled_matmul,
        (2, 3),
        lambda r: {
            "a": single(r, 100, 160).astype(F8),
            "b": single(r, 144, 160).astype(F8),
            "a_scales": np.abs(single(r, 100, 3)),
            "b_scales": np.abs(single(r, 3, 3)),
            "out": poison(100, 144),
            "m": 100,
            "n": 144,
            "k": 160,
        },
        block_scaled_matmul,
        1e-5,
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64},
        hopper_tolerance=2.0**-12,  # it adds 64 products of 8-bit floats with 14 bits
    ),
    "convolution": Case(
        products.convolution,
        (cdiv(13 * 11, 64), 2),
        lambda r: {
            "x": half(r, 20, 13, 11),
            "weight": half(r, 40, 20, 3, 3),
            "out": poison(40, 13, 11),
            "channels": 20,
            "height": 13,
            "width": 11,
            "filters": 40,
        },
        convolution,
        1e-5,
        {"SIDE": 3, "PAD": 1, "BLOCK_P": 64, "BLOCK_F": 32, "BLOCK_K": 32},
    ),
    "max pool": Case(
        products.max_pool,
        (2, 3),
        lambda r: {
            "x": single(r, 3, 29, 32),
            "out": poison(3, 9, 10),
            "places": poison(3, 9, 10, dtype=np.int32),
            "height": 29,
            "width": 32,
        },
        max_pool,
        0.0,
        {"SIDE": 3, "BLOCK": 64},
    ),
}
