"""What operations refuse: every argument that does not fit is an error of ours that names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from helpers.fake_driver import run_with_fake_driver
from tilewright.errors import ArgumentError, ArgumentValueError, IndexRangeError, TilewrightError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
HEADS = np.ones((2, 3, 16), np.float32)
IMAGE, FILTERS = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 2, 3, 3), np.float32)
INDEX = np.zeros(3, np.int64)
INDICES = np.zeros((3, 4), np.int64)

# Arguments that fit, by the words of the operations.
FITTING: dict[Callable[..., Any], dict[str, Any]] = {
    **{
        operation: {"x": X}
        for operation in (
            tw.sum, tw.mean, tw.max, tw.min, tw.argmax, tw.argmin, tw.var, tw.std, tw.cumsum,
            tw.cumprod, tw.copy, tw.contiguous, tw.transpose, tw.sort, tw.argsort, tw.histogram,
            tw.softmax, tw.layer_norm, tw.rms_norm, tw.l2_norm, tw.exp, tw.gelu,
        )
    },
    **{
        operation: {"x": X, "dy": X}
        for operation in (
            tw.gelu_backward, tw.l2_norm_backward, tw.rms_norm_backward, tw.layer_norm_backward,
        )
    },
    tw.add: {"x": X, "y": X},
    tw.mul: {"x": X, "y": X},
    tw.softmax_backward: {"y": X, "dy": X},
    tw.bincount: {"x": INDEX},
    tw.permute: {"x": X, "axes": (1, 0)},
    tw.topk: {"x": X, "k": 2},
    tw.gather: {"x": X, "index": INDICES},
    tw.take: {"x": X, "index": INDEX},
    tw.scatter_add: {"x": X, "index": INDICES, "src": X},
    tw.index_add: {"x": X, "index": INDEX, "src": X},
    tw.dropout: {"x": X, "p": 0.5, "seed": 1},
    tw.rand: {"shape": (3, 4), "seed": 1, "out": X.copy()},
    tw.randn: {"shape": (3, 4), "seed": 1, "out": X.copy()},
    tw.randint: {"low": 0, "high": 5, "shape": (3, 4), "seed": 1, "out": INDICES.copy()},
    tw.matmul: {"a": X, "b": X.T},
    tw.attention: {"q": HEADS, "k": HEADS, "v": HEADS},
    tw.attention_backward: {
        **dict.fromkeys(("q", "k", "v", "y", "dy"), HEADS.astype(np.float16)),
        "lse": HEADS[..., 0].copy(),
    },
    tw.cross_entropy: {"x": X, "target": INDEX},
    tw.cross_entropy_backward: {"x": X, "target": INDEX},
    tw.linear_cross_entropy: {"x": X, "linear_weight": X, "target": INDEX},
    tw.linear_cross_entropy_backward: {"x": X, "linear_weight": X, "target": INDEX},
    tw.convolution: {"x": IMAGE, "w": FILTERS},
}  # fmt: skip

HOSTILE: tuple[Any, ...] = (
    None,
    "False",
    b"abc",
    [1.5, 2.5],
    {"a": 1},
    2**70,
    0.25,
    float("nan"),
    np.float32(3),
    np.zeros(3, complex),
    np.array([None, 1], object),
    np.zeros(3, ">f4"),
    np.zeros(3, [("a", "f4"), ("b", "i4")]),
    np.zeros(3, [("a", "f4"), ("b", "i1")])["a"],
    np.array(["a"]),
    np.zeros(3, "M8[s]"),
    np.ma.array([1.0, 2.0], mask=[False, True], dtype=np.float32),
    np.ones((3, 4), bool),
    np.ones((1,) * 7, np.float32),
)


def refused_or_done(operation: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """Call an operation; return the text of our error, or nothing. Other errors pass."""
    try:
        operation(**arguments)
    except TilewrightError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("operation", FITTING, ids=lambda operation: operation.__name__)
def test_nothing_but_our_errors_comes_of_any_argument(operation: Callable[..., Any]) -> None:
    assert refused_or_done(operation, FITTING[operation]) == ""
    for name, value in product(inspect.signature(operation).parameters, HOSTILE):
        refused_or_done(operation, FITTING[operation] | {name: value})


@pytest.mark.parametrize("operation", FITTING, ids=lambda operation: operation.__name__)
def test_an_array_that_is_needed_is_named(operation: Callable[..., Any]) -> None:
    arrays = [
        name
        for name, parameter in inspect.signature(operation).parameters.items()
        if isinstance(FITTING[operation].get(name), np.ndarray) and name != "out"
        if parameter.default is parameter.empty
    ]
    for name in arrays:
        for value, kind in ((None, "NoneType"), ([1.0], "list")):
            text = refused_or_done(operation, FITTING[operation] | {name: value})
            assert text.startswith(f"{name} is of {kind}; an array is needed")
        text = refused_or_done(operation, FITTING[operation] | {name: np.zeros(3, complex)})
        assert text.startswith(f"{name} cannot be taken: NumPy dtype complex128 has no element")


FLAGS = [
    (tw.sum, "keepdim"),
    (tw.argmax, "keepdim"),
    (tw.sort, "descending"),
    (tw.argsort, "descending"),
    (tw.topk, "largest"),
    (tw.gather, "check"),
    (tw.take, "check"),
    (tw.scatter_add, "check"),
    (tw.scatter_add, "deterministic"),
    (tw.index_add, "check"),
    (tw.index_add, "deterministic"),
    (tw.cross_entropy, "check"),
    (tw.linear_cross_entropy, "check"),
    (tw.attention, "causal"),
    (tw.attention_backward, "causal"),
    (tw.layer_norm_backward, "has_bias"),
]


@pytest.mark.parametrize(("operation", "name"), FLAGS, ids=lambda x: getattr(x, "__name__", x))
def test_words_are_no_truth_values(operation: Callable[..., Any], name: str) -> None:
    for value in (True, np.False_, 1):
        assert refused_or_done(operation, FITTING[operation] | {name: value}) == ""
    text = refused_or_done(operation, FITTING[operation] | {name: "False"})
    assert text == f"{name} is of str; True or False is needed"


@pytest.mark.parametrize("operation", [tw.copy, tw.cumsum, tw.softmax, tw.exp, tw.rms_norm])
def test_a_broadcast_array_takes_no_result(operation: Callable[..., Any]) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4))
    with pytest.raises(ArgumentError, match=r"out of shape .* several of its elements lie at one"):
        operation(X, out=out)
    assert not out.any()


@pytest.mark.parametrize("operation", [tw.copy, tw.cumsum, tw.softmax, tw.exp, tw.rms_norm])
def test_a_read_only_array_takes_no_result(operation: Callable[..., Any]) -> None:
    out = np.zeros((3, 4), np.float32)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="out is read-only; pass an array that may be written"):
        operation(X, out=out)


_DEVICES = """
import numpy as np
import tilewright as tw
from tilewright.abi.dtypes import float32, int64

def refused(expected, operation, *arrays, **options):
    try:
        operation(*arrays, **options)
    except tw.errors.ArgumentError as error:
        assert expected in str(error), error
    else:
        raise AssertionError("was accepted")

x, there = (tw.empty((3, 4), float32, device=device) for device in (0, 1))
index = tw.empty((3,), int64, device=1)
for name, other in (("device 1", there), ("host", np.zeros((3, 4), np.float32))):
    places = "all be on the host or all on one device, got "
    refused(places + f"out: {name}, input: device 0", tw.exp, x, out=other)
    refused(places + f"out: {name}, input: device 0", tw.cumsum, x, out=other)
    refused(places + f"x: device 0, y: {name}", tw.add, x, other)
refused(places + "x: device 0, index: device 1", tw.index_add, x, index, x)
refused(places + "x: device 0, index: device 1", tw.take, x, index)

class Strange:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface

for interface in (5, {"shape": (3,)}):
    refused("a dict with shape, typestr and data is needed", tw.exp, Strange(interface))
for device in ("cuda", 2**40, True, None):
    refused("the number of a device is needed", tw.empty, 3, float32, device=device)
    refused("the number of a device is needed", tw.rand, 3, seed=1, device=device)
refused("device 9 does not exist", tw.rand, 3, seed=1, device=9)
refused("has more bytes than can be addressed", tw.rand, 2**62, seed=1)
"""


def test_arrays_of_several_places_are_refused_by_name(tmp_path: Path) -> None:
    run_with_fake_driver(_DEVICES, tmp_path, FAKE_CUDA_DEVICES="9.0,9.0")


def test_axes_say_what_is_allowed_of_empty_arrays_too() -> None:
    with pytest.raises(ArgumentError, match="axis is 9, of an array with 2 axes; it lies between "):
        tw.cumsum(np.zeros((0, 3), np.float32), axis=9)
    with pytest.raises(ArgumentError, match="axes is of int; a sequence of the axes of x"):
        tw.permute(X, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-(2**63) - 1, 2**64])
def test_seeds_are_checked_where_nothing_is_drawn(seed: int) -> None:
    nothing = np.zeros(0, np.float32)
    with pytest.raises(ArgumentValueError, match="it has 64 bits, from -2"):
        tw.rand(0, seed=seed, out=nothing)
    with pytest.raises(ArgumentValueError, match="it has 64 bits, from -2"):
        tw.dropout(nothing, 0.5, seed=seed)


def test_a_correction_is_a_number_of_elements() -> None:
    assert tw.var(X, correction=2) == pytest.approx(np.var(X, ddof=2))
    with pytest.raises(ArgumentError, match="correction is of float; an int is needed"):
        tw.var(X, correction=0.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="correction is -9223372036854775808; it lies"):
        tw.std(X, correction=-(2**63))


@pytest.mark.parametrize(
    "limits",
    [(-1.7e308, 1.7e308), (0.0, 5e-324), (1e300, 1e300), (-1e39, 1e39)],
    ids=["wide", "narrow", "far", "beyond f32"],
)
def test_a_range_has_parts_that_the_kernel_can_compute(limits: tuple[float, float]) -> None:
    with pytest.raises(ArgumentValueError, match="has no 4 equal parts"):
        tw.histogram(X, 4, range=limits)


def test_a_range_is_two_numbers() -> None:
    with pytest.raises(ArgumentError, match=r"range is \(1,\); two numbers are needed"):
        tw.histogram(X, range=(1,))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="range is 3; two numbers are needed"):
        tw.histogram(X, range=3)  # type: ignore[arg-type]
    counts = tw.histogram(X, 2, range=(0, 11))
    assert isinstance(counts, np.ndarray)
    assert counts.tolist() == [6, 6]


@pytest.mark.parametrize("largest", [2**62, 2**63 - 1])
def test_more_bins_than_can_be_addressed(largest: int) -> None:
    with pytest.raises(ArgumentError, match="more bytes than can be addressed"):
        tw.bincount(np.array([largest]))
    with pytest.raises(ArgumentError, match="more bytes than can be addressed"):
        tw.bincount(INDEX, minlength=largest)


def test_integers_that_64_bits_with_a_sign_do_not_hold() -> None:
    with pytest.raises(IndexRangeError, match="and x has 9223372036854775813"):
        tw.bincount(np.array([2**63 + 5], np.uint64))
