"""Results that lie where operands do: an operation gives what it gives for copies of its operands.

Arrays have more elements than the interpreter takes at once, so that some are written before others
are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from helpers.fake_driver import run_with_fake_driver
from helpers.sides import SIDES, HostArray, to_device

ROWS, COLUMNS = 900, 400
Place = Callable[[HostArray], HostArray]


def _shifted(rows: int, columns: int) -> Place:
    """Return a window of an array that begins so many rows and columns into it."""
    return lambda memory: memory[rows : rows + ROWS, columns : columns + COLUMNS]


def _turned(memory: HostArray) -> HostArray:
    return memory.reshape(-1)[: COLUMNS * ROWS].reshape(COLUMNS, ROWS).T


READ = _shifted(1, 4)
PLACES: dict[str, Place] = {
    "the same": READ,
    "a row before": _shifted(0, 4),
    "a row after": _shifted(2, 4),
    "columns before": _shifted(1, 0),
    "columns after": _shifted(1, 7),
    "rows and columns after": _shifted(2, 5),
    "turned": _turned,
}


def _zeros_like_rows(x: Any) -> Any:
    """Return a target for each row, on the side of the rows."""
    target = np.zeros(x.shape[:-1], np.int64)
    return target if isinstance(x, np.ndarray) else tw.from_numpy(target)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "exp": tw.exp,
    "gelu": tw.gelu,
    "softmax": tw.softmax,
    "l2_norm": tw.l2_norm,
    "rms_norm": tw.rms_norm,
    "layer_norm": tw.layer_norm,
    "add": lambda x, out=None: tw.add(x, x, out=out),
    "add rows": lambda x, out=None: tw.add(x[0], x, out=out),
    "mul": lambda x, out=None: tw.mul(x, x, out=out),
    "gelu_backward": lambda x, out=None: tw.gelu_backward(x, x, out=out),
    "softmax_backward": lambda x, out=None: tw.softmax_backward(x, x, out=out),
    "cross_entropy_backward": lambda x, out=None: tw.cross_entropy_backward(
        x, _zeros_like_rows(x), out=out
    ),
    "l2_norm_backward": lambda x, out=None: tw.l2_norm_backward(x, x, out=out),
    "layer_norm_backward": lambda x, out=None: tw.layer_norm_backward(x, x, has_bias=True, out=out),
    "dropout": lambda x, out=None: tw.dropout(x, 0.5, seed=3, out=out),
    "cumsum": lambda x, out=None: tw.cumsum(x, out=out),
    "copy": tw.copy,
}


def _memory() -> HostArray:
    rows = np.random.default_rng(5).standard_normal((ROWS + 3, COLUMNS + 12)).astype(np.float32)
    return np.ascontiguousarray(rows)


def _on(side: str, array: HostArray) -> Any:
    return array if side == "host" else to_device(array)


def _host(array: Any) -> HostArray:
    return np.asarray(array if isinstance(array, np.ndarray) else array.numpy())


def _arrays(result: Any) -> Iterator[Any]:
    """Yield the arrays of a result, which may be several or None."""
    yield from (
        each for each in (result if isinstance(result, tuple) else (result,)) if each is not None
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_result_over_an_operand(operation: str, place: str, side: str) -> None:
    run = OPERATIONS[operation]
    memory = _memory()
    expected = [_host(each).copy() for each in _arrays(run(_on(side, READ(memory).copy())))]
    # What the write leaves alone.
    around = memory.copy()
    PLACES[place](around)[...] = expected[0]
    if side == "host":
        results = list(_arrays(run(READ(memory), out=PLACES[place](memory))))
        after = memory
    else:
        whole = tw.from_numpy(memory)
        x, out = (_window(whole, memory, view(memory)) for view in (READ, PLACES[place]))
        results = list(_arrays(run(x, out=out)))
        after = whole.numpy()
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(_host(result), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after, around, rtol=1e-5, atol=1e-5)


def _window(whole: Any, memory: HostArray, view: HostArray) -> Any:
    """Return the view of an array on a device that `view` is of the host's."""
    offset = (view.ctypes.data - memory.ctypes.data) // memory.itemsize
    strides = tuple(stride // memory.itemsize for stride in view.strides)
    return whole.view((memory.size,), (1,)).view(view.shape, strides, offset=offset)


@pytest.mark.parametrize("name", ["a", "b", "gate", "residual", "bias"])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_product_over_an_operand(name: str, shift: int) -> None:
    random = np.random.default_rng(2).standard_normal
    size = 600
    memory = random((size + 1, size)).astype(np.float32)
    given: dict[str, Any] = {
        key: random((size, size)).astype(np.float32) for key in ("a", "b", "gate", "residual")
    }
    given["bias"] = random(size).astype(np.float32)
    given[name] = memory[0] if name == "bias" else memory[:-1]
    expected = np.array(tw.matmul(**given))
    out = memory[shift : shift + size]
    assert tw.matmul(**given, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("shift", [0, 1])
def test_attention_over_an_operand(name: str, shift: int) -> None:
    random = np.random.default_rng(3).standard_normal
    memory = random((81, 200, 16)).astype(np.float32)
    given: dict[str, Any] = {
        key: random((80, 200, 16)).astype(np.float32) for key in ("q", "k", "v")
    }
    given[name] = memory[:80]
    logarithms = np.empty((80, 200), np.float32)
    expected = np.array(tw.attention(**given, lse=logarithms))
    again = given | {name: memory[:80].copy()}
    # The sums of exponentials may lie over an operand too.
    over = again[name].reshape(-1)[:16000].reshape(80, 200)
    np.testing.assert_allclose(np.array(tw.attention(**again, lse=over)), expected, rtol=1e-5)
    np.testing.assert_allclose(over, logarithms, rtol=1e-5)
    out = memory[shift : shift + 80]
    assert tw.attention(**given, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_a_convolution_over_its_image(shift: int) -> None:
    random = np.random.default_rng(4).standard_normal
    memory = random(294912 + 5).astype(np.float32)
    x = memory[:294912].reshape(2, 9, 128, 128)
    w = random((9, 9, 3, 3)).astype(np.float32)
    expected = np.array(tw.convolution(x, w, padding=1))
    out = memory[shift : shift + 294912].reshape(2, 9, 128, 128)
    assert tw.convolution(x, w, padding=1, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_which_arrays_on_a_device_may_be_written_where_they_lie(tmp_path: Path) -> None:
    program = """
import tilewright as tw, tilewright.language as tl
from tilewright.tensor.axes import must_be_apart
m = tw.empty((4, 8), tl.float32)
other = tw.empty((4, 8), tl.float32)
rows = m[1:]
print(must_be_apart([m, None, other], 2, 0))            # memory of its own
print(must_be_apart([m, m], 1, 1), must_be_apart([m, m], 1, 0))
print(must_be_apart([m[:3], rows], 1, 1))               # other elements
print(must_be_apart([m[:1], rows], 1, 0))               # one ends where the other begins
print(must_be_apart([m.view((8, 4)), m], 1, 1))         # another shape
print(must_be_apart([m.view((4, 4), (8, 2)), m.view((4, 4), (8, 1))], 1, 1))
print(must_be_apart([m, m, m[:1]], 0, 0b010))           # broadcast
print(must_be_apart([m, m, other, m], 3, 0b011))
"""
    done = run_with_fake_driver(program, tmp_path)
    assert done.output.split() == [
        "False", "False", "True", "True", "False", "True", "True", "True", "False",
    ]  # fmt: skip
