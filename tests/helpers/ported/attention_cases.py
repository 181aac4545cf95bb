"""What attention and recurrences are run on, and what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.ported import attention
from helpers.ported.case import Arguments, Case, Random, cdiv, f64, half, poison, single, softmax_of


def flash_attention(a: Arguments) -> Any:
    q, k, v = f64(a["q"], a["k"], a["v"])
    scores = q @ k.transpose(0, 2, 1) * a["scale"]
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    logsums = np.log(np.exp(scores - largest).sum(-1)) + largest[..., 0]
    return {"out": softmax_of(scores) @ v, "logsums": logsums}


def paged_attention(a: Arguments) -> Any:
    q, keys, values = f64(a["q"], a["keys"], a["values"])  # q is [sequences, kv_heads, group, dim]
    out = np.zeros(q.shape)
    for sequence, length in enumerate(a["lengths"]):
        if not length:
            continue
        pages = a["tables"][sequence, : cdiv(int(length), 16)]
        for head in range(q.shape[1]):
            k, v = (x[pages, :, head].reshape(-1, q.shape[-1])[:length] for x in (keys, values))
            out[sequence, head] = softmax_of(q[sequence, head] @ k.T * a["scale"]) @ v
    return {"out": out}


def make_paged_attention(random: Random) -> Arguments:
    tables = np.full((3, 4), 10**6, np.int32)  # what lies behind a length is never read
    tables[0, :3], tables[2, :1] = [5, 0, 7], [2]
    return {
        "q": half(random, 3, 2, 4, 32),
        "keys": half(random, 8, 16, 2, 32),
        "values": half(random, 8, 16, 2, 32),
        "out": poison(3, 2, 4, 32, dtype=np.float16),
        "tables": tables,
        "lengths": np.array([35, 0, 16], np.int32),
        "scale": 32**-0.5,
        "max_pages": 4,
        "kv_heads": 2,
    }


def store_in_pages(a: Arguments) -> Any:
    pages = a["pages"].astype(np.float64)
    for token, slot in enumerate(a["slots"]):
        if slot >= 0:
            pages[slot] = a["fresh"][token].astype(a["pages"].dtype)
    return {"pages": pages}


def rotary_embedding(a: Arguments) -> Any:
    x, cosines, sines = f64(a["x"], a["cosines"], a["sines"])
    cosine, sine = (table[a["positions"]][:, None] for table in (cosines, sines))
    first, second = np.split(x, 2, -1)
    rotated = [first * cosine - second * sine, second * cosine + first * sine]
    return {"x": np.concatenate(rotated, -1)}


def delta_rule(a: Arguments) -> Any:
    q, k, v, betas, state = f64(a["q"], a["k"], a["v"], a["betas"], a["state"])
    out = np.zeros(v.shape)
    for t in range(len(q)):
        seen = np.einsum("hkv,hk->hv", state, k[t])
        state = state + np.einsum("hk,hv->hkv", k[t], betas[t][:, None] * (v[t] - seen))
        out[t] = np.einsum("hkv,hk->hv", state, q[t]) * a["scale"]
    return {"out": out, "state": state}


def make_delta_rule(random: Random) -> Arguments:
    keys = single(random, 75, 2, 32)
    return {
        "q": single(random, 75, 2, 32),
        "k": keys / np.linalg.norm(keys, axis=-1, keepdims=True),
        "v": single(random, 75, 2, 16),
        "betas": random.uniform(0, 1, (75, 2)).astype(np.float32),
        "out": poison(75, 2, 16),
        "state": single(random, 2, 32, 16),
        "length": 75,
        "heads": 2,
        "scale": 32**-0.5,
    }


def selective_scan(a: Arguments) -> Any:
    x, delta, rates, b, c, d = f64(*(a[name] for name in ("x", "delta", "a", "b", "c", "d")))
    state = np.zeros(rates.shape)
    out = np.zeros(x.shape)
    for t in range(len(x)):
        step = delta[t][:, None]
        state = np.exp(step * rates) * state + step * x[t][:, None] * b[t]
        out[t] = state @ c[t] + d * x[t]
    return {"out": out}


ATTENTION = {
    "flash attention": Case(
        attention.flash_attention,
        (cdiv(150, 64), 2),
        lambda r: {
            **{name: half(r, 2, 150, 64) for name in "qkv"},
            "out": poison(2, 150, 64, dtype=np.float16),
            "logsums": poison(2, 150),
            "length": 150,
            "scale": 0.125,
        },
        flash_attention,
        1e-3,
        {"DIM": 64, "BLOCK_M": 64, "BLOCK_N": 32},
    ),
    "paged attention": Case(
        attention.paged_attention,
        (3, 2),
        make_paged_attention,
        paged_attention,
        1e-3,
        {"GROUP": 4, "PAGE": 16, "DIM": 32},
    ),
    "store in pages": Case(
        attention.store_in_pages,
        (5,),
        lambda r: {
            "fresh": single(r, 5, 200),
            "pages": half(r, 32, 200),
            "slots": np.array([3, -1, 31, 0, 17], np.int32),
            "width": 200,
        },
        store_in_pages,
        0.0,
        {"BLOCK": 128},
    ),
    "rotary embedding": Case(
        attention.rotary_embedding,
        (6, 3),
        lambda r: {
            "x": half(r, 6, 3, 64),
            "cosines": np.cos(np.outer(np.arange(40), 0.3 ** np.arange(32))).astype(np.float32),
            "sines": np.sin(np.outer(np.arange(40), 0.3 ** np.arange(32))).astype(np.float32),
            "positions": np.array([0, 39, 7, 8, 9, 0]),
            "heads": 3,
        },
        rotary_embedding,
        1e-3,
        {"HALF": 32},
    ),
    "delta rule": Case(
        attention.delta_rule,
        (2,),
        make_delta_rule,
        delta_rule,
        1e-5,
        {"CHUNK": 32, "DIM_K": 32, "DIM_V": 16, "PRECISION": "tf32x3"},
    ),
    "selective scan": Case(
        attention.selective_scan,
        (2,),
        lambda r: {
            "x": single(r, 50, 13),
            "delta": np.abs(single(r, 50, 13)),
            "a": -np.abs(single(r, 13, 8)),
            "b": single(r, 50, 8),
            "c": single(r, 50, 8),
            "d": single(r, 13),
            "out": poison(50, 13),
            "length": 50,
            "channels": 13,
        },
        selective_scan,
        1e-5,
        {"STATES": 8, "BLOCK_C": 8, "BLOCK_T": 16},
    ),
}
