"""What counting, sorting and gathering are run on, and what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.ported import routing
from helpers.ported.case import Arguments, Case, Random, f64, half, poison, single, softmax_of


def gate_top_k(a: Arguments) -> Any:
    chosen = np.argsort(-a["logits"].astype(np.float64), axis=1, kind="stable")[:, :4]
    best = np.take_along_axis(a["logits"].astype(np.float64), chosen, 1)
    return {"weights": softmax_of(best), "chosen": chosen}


def align_tokens(a: Arguments) -> Any:
    experts, width = 8, 16
    counts = np.bincount(a["chosen"], minlength=experts)
    rounded = -(-counts // width) * width
    starts = np.cumsum(rounded) - rounded
    order = np.full(a["order"].shape, -77)
    order[: rounded.sum()] = a["padding"]
    for expert in range(experts):
        places = np.flatnonzero(a["chosen"] == expert)
        order[starts[expert] : starts[expert] + len(places)] = places
    return {"order": order, "starts": starts, "counts": counts}


def histogram(a: Arguments) -> Any:
    bins = np.floor((a["x"] - np.float32(a["low"])) / np.float32(a["width"]))
    is_in = (bins >= 0) & (bins < 32)
    return {"counts": np.bincount(bins[is_in].astype(int), minlength=32)}


def embedding_bag(a: Arguments, mode: str) -> Any:
    (table,) = f64(a["table"])
    bags = zip(a["offsets"][:-1], a["offsets"][1:], strict=True)
    sums = [(table[a["indices"][i:j]].sum(0), max(j - i, 1)) for i, j in bags]
    return {"out": np.stack([s / (n if mode == "mean" else 1) for s, n in sums])}


def embedding_bag_backward(a: Arguments) -> Any:
    grad_table = np.zeros(a["grad_table"].shape)
    bag = np.repeat(np.arange(len(a["offsets"]) - 1), np.diff(a["offsets"]))
    np.add.at(grad_table, a["indices"], a["grad"].astype(np.float64)[bag])
    return {"grad_table": grad_table}


def jagged_mean(a: Arguments) -> Any:
    (values,) = f64(a["values"])
    parts = zip(a["offsets"][:-1], a["offsets"][1:], strict=True)
    nothing = np.full(values.shape[1], np.nan)
    return {"out": np.stack([values[i:j].mean(0) if j > i else nothing for i, j in parts])}


OFFSETS = np.array([0, 3, 3, 40, 41, 60])


def bags(random: Random, mode: str) -> Arguments:
    arrays: Arguments = {"indices": random.integers(0, 20, 60, np.int32), "offsets": OFFSETS}
    if mode == "backward":
        arrays = {"grad": single(random, 5, 100), **arrays, "grad_table": np.zeros((20, 100))}
        arrays["grad_table"] = arrays["grad_table"].astype(np.float32)
    else:
        arrays = {"table": half(random, 20, 100), **arrays, "out": poison(5, 100)}
    return {**arrays, "width": 100}


ROUTING = {
    "gate top k": Case(
        routing.gate_top_k,
        (9,),
        lambda r: {
            "logits": half(r, 9, 60),
            "weights": poison(9, 4),
            "chosen": poison(9, 4, dtype=np.int32),
            "experts": 60,
        },
        gate_top_k,
        1e-6,
        {"K": 4, "BLOCK": 64},
    ),
    "align tokens": Case(
        routing.align_tokens,
        (1,),
        lambda r: {
            "chosen": np.concatenate([r.integers(0, 7, 300), np.zeros(1)]).astype(np.int32),
            "order": poison(512, dtype=np.int32),
            "starts": poison(8, dtype=np.int32),
            "counts": poison(8, dtype=np.int32),
            "n": 301,
            "padding": 301,
        },
        align_tokens,
        0.0,
        {"EXPERTS": 8, "BLOCK": 128, "ROUND": 16},
    ),
    "histogram": Case(
        routing.histogram,
        (4,),
        lambda r: {
            "x": single(r, 1900),
            "counts": np.zeros(32, np.int32),
            "n": 1900,
            "low": -2.0,
            "width": 0.125,
        },
        histogram,
        0.0,
        {"BINS": 32, "BLOCK": 512},
    ),
    "embedding bag": Case(
        routing.embedding_bag,
        (5, 2),
        lambda r: bags(r, "mean"),
        lambda a: embedding_bag(a, "mean"),
        1e-6,
        {"MODE": "mean", "BLOCK": 64},
    ),
    "embedding bag backward": Case(
        routing.embedding_bag_backward,
        (5, 2),
        lambda r: bags(r, "backward"),
        embedding_bag_backward,
        1e-6,
        {"BLOCK": 64},
    ),
    "jagged mean": Case(
        routing.jagged_mean,
        (5, 2),
        lambda r: {
            "values": single(r, 60, 50),
            "offsets": OFFSETS,
            "out": poison(5, 50),
            "width": 50,
        },
        jagged_mean,
        1e-6,
        {"BLOCK_R": 16, "BLOCK_C": 32},
    ),
    "running sum": Case(
        routing.running_sum,
        (8,),
        lambda r: {
            "x": r.integers(-1000, 1000, 1900, np.int32),
            "out": poison(1900, dtype=np.int32),
            "tickets": np.zeros(1, np.int32),
            "states": np.zeros(8, np.int64),
            "n": 1900,
        },
        lambda a: {"out": np.cumsum(a["x"])},
        0.0,
        {"BLOCK": 256},
    ),
}
