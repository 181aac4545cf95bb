"""What a launch can reach, and what every way of missing it says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.abi.dtypes import DType, bfloat16, float32, int8, int64
from tilewright.errors import ArgumentError, InterpreterError, OutOfBoundsError, SourceLocation
from tilewright_compiler.interpret.memory import Access, Memory

HERE = SourceLocation("k.py", 7, 4, 9, "inner")
THERE = SourceLocation("k.py", 20, 0, 5, "outer")


def access(verb: str, dtype: DType = float32) -> Access:
    return Access(verb, dtype, "k", (HERE, THERE), lambda position: (position, 0, 0))


def at(memory: Memory, name: str, offsets: list[int], size: int = 4) -> Any:
    """Return addresses [programs = len(offsets)] of elements of an argument."""
    return memory.address(name) + size * np.array(offsets)


def read(memory: Memory, name: str, offsets: list[int]) -> list[float]:
    found: list[float] = memory.load(
        at(memory, name, offsets), None, None, access=access("load")
    ).tolist()
    return found


def write(memory: Memory, name: str, offsets: list[int], values: list[float]) -> None:
    memory.store(
        at(memory, name, offsets), np.array(values, np.float32), None, access=access("store")
    )


def test_strides_of_any_sign_reach_the_elements() -> None:
    base = np.arange(12, dtype=np.float32)
    memory = Memory({"x": base[10:1:-3], "y": base[1::2]})
    assert read(memory, "x", [0, -3, -6]) == [10, 7, 4]
    assert read(memory, "y", [0, 2]) == [1, 3]


def test_views_of_one_buffer_alias() -> None:
    base = np.zeros(8, np.float32)
    memory = Memory({"x": base, "y": base[4:], "z": np.zeros(8, np.float32)})
    write(memory, "y", [0, 1], [5, 6])
    assert read(memory, "x", [4, 5]) == [5, 6]
    assert base.tolist() == [0, 0, 0, 0, 5, 6, 0, 0]
    assert memory.share("x", "y")
    assert not memory.share("x", "z")


def test_arrays_over_foreign_memory_that_overlap_alias() -> None:
    raw = bytearray(32)
    memory = Memory(
        {"x": np.frombuffer(raw, np.float32, 6), "y": np.frombuffer(raw, np.float32, 6, 8)}
    )
    write(memory, "y", [0], [3])
    assert read(memory, "x", [2]) == [3]
    with pytest.raises(
        OutOfBoundsError, match=r"'x' at element offset 8, its memory holds .* 0 to 7"
    ):
        read(memory, "x", [8])


def test_a_load_takes_each_lane_from_its_own_argument() -> None:
    memory = Memory({"x": np.full(2, 1, np.float32), "y": np.full(2, 2, np.float32)})
    addresses = np.concatenate([at(memory, "y", [1]), at(memory, "x", [0, 1])])
    assert memory.load(addresses, None, None, access=access("load")).tolist() == [2, 1, 1]
    memory.store(addresses, np.array([7, 8, 9], np.float32), None, access=access("store"))
    assert read(memory, "x", [0, 1]) + read(memory, "y", [0, 1]) == [8, 9, 2, 7]


def test_inactive_lanes_touch_nothing_and_give_other() -> None:
    memory = Memory({"x": np.ones(1, np.float32)})
    addresses, mask = at(memory, "x", [10**9, 0]), np.array([False, True])
    assert memory.load(addresses, mask, None, access=access("load")).tolist() == [0, 1]
    other = np.array([5.0, 5.0], np.float32)
    assert memory.load(addresses, mask, other, access=access("load")).tolist() == [5, 1]
    assert memory.load(addresses, ~mask[1:], other, access=access("load")).tolist() == [5, 5]
    memory.store(addresses, other, mask, access=access("store"))
    assert read(memory, "x", [0]) == [5]


def test_a_store_without_active_lanes_is_none() -> None:
    memory = Memory({"x": np.ones(1, np.float32)})
    lanes = at(memory, "x", [5])
    memory.store(lanes, np.zeros(1, np.float32), np.array([False]), access=access("store"))
    assert memory.stores == 0


def test_leaving_an_argument_names_everything() -> None:
    memory = Memory({"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)})
    with pytest.raises(OutOfBoundsError) as caught:
        write(memory, "y", [3, 4], [1, 1])
    message = str(caught.value)
    assert message.splitlines()[0] == (
        "kernel 'k', program (1, 0, 0): store of f32 outside of argument 'y' at element offset 4, "
        "its memory holds offsets 0 to 3. Mask the lanes that lie outside"
    )
    assert "  at k.py:7:5: in inner\n  called from k.py:20:1: in outer" in message
    assert memory.stores == 0
    assert read(memory, "y", [3]) == [0]


@pytest.mark.parametrize("offset", [-1, -5, 2**38, -(2**38)])
def test_far_and_near_misses_are_caught(offset: int) -> None:
    memory = Memory({"x": np.zeros(4, np.float32)})
    with pytest.raises(OutOfBoundsError, match=f"argument 'x' at element offset {offset},"):
        read(memory, "x", [offset])


@pytest.mark.parametrize("offset", [2**60, -(2**60)])
def test_an_offset_beyond_all_arguments_is_caught(offset: int) -> None:
    memory = Memory({"x": np.zeros(4, np.float32)})
    with pytest.raises(OutOfBoundsError, match="belongs to no argument"):
        read(memory, "x", [offset])


def test_a_masked_store_names_the_program_that_missed() -> None:
    memory = Memory({"x": np.zeros(2, np.float32)})
    lanes, mask = at(memory, "x", [9, 0, 9]), np.array([False, True, True])
    with pytest.raises(OutOfBoundsError, match=r"program \(2, 0, 0\)"):
        memory.store(lanes, np.zeros(3, np.float32), mask, access=access("store"))


@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=str)
def test_empty_arrays_hold_nothing(shape: tuple[int, ...]) -> None:
    memory = Memory({"x": np.zeros(shape, np.float32), "y": np.zeros(0, np.float32)})
    with pytest.raises(OutOfBoundsError, match="argument 'x' at element offset 0, which is empty"):
        read(memory, "x", [0])


def test_the_buffer_behind_a_view_is_reachable() -> None:
    memory = Memory({"x": np.arange(8, dtype=np.float32)[2:4]})
    assert read(memory, "x", [-2, 5]) == [0, 7]
    with pytest.raises(OutOfBoundsError, match="its memory holds offsets -2 to 5"):
        read(memory, "x", [6])


def test_the_buffer_behind_a_strided_view_is_reachable() -> None:
    base = np.arange(4, dtype=np.float32)
    empty = np.lib.stride_tricks.as_strided(base, (4, 0), (4, 0))
    repeated = np.lib.stride_tricks.as_strided(base[2:], (3, 2), (0, 4))
    memory = Memory({"x": empty, "y": repeated})
    assert read(memory, "x", [0, 3]) + read(memory, "y", [0, 1]) == [0, 3, 2, 3]
    assert memory.share("x", "y")


def test_read_only_arrays_can_be_read_only() -> None:
    x = np.broadcast_to(np.float32(3), (4,))
    memory = Memory({"x": x})
    assert read(memory, "x", [0]) == [3]
    with pytest.raises(InterpreterError, match="stores to argument 'x', which is read-only"):
        write(memory, "x", [0], [1])
    assert x[0] == 3


def test_access_between_elements_is_misaligned() -> None:
    memory = Memory({"x": np.zeros(4, np.float32)})
    with pytest.raises(
        InterpreterError, match="load of f32 at an address that is no multiple of 4"
    ):
        memory.load(at(memory, "x", [1], size=2), None, None, access=access("load"))


def test_misaligned_arrays_are_refused() -> None:
    array = np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32)
    aligned = array.__array_interface__["data"][0] % 4 == 0
    assert not aligned  # bytearrays start at a multiple of 8
    with pytest.raises(ArgumentError, match="'x' is a f32 array at an address that is no multiple"):
        Memory({"x": array})


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        (int8, np.arange(5, dtype=np.int8)),
        (int64, np.frombuffer(bytearray(48), np.uint8)[8:].view(np.int64)),
        (bfloat16, np.arange(5).astype(ml_dtypes.bfloat16)[1:]),
    ],
    ids=["i8", "i64 inside bytes", "bf16"],
)
def test_every_width_is_stored_and_loaded(dtype: DType, array: np.ndarray[Any, Any]) -> None:
    memory = Memory({"x": array})
    lanes = at(memory, "x", [2, 3], size=dtype.size_bytes)
    memory.store(lanes, np.array([9, 11]).astype(array.dtype), None, access=access("store", dtype))
    assert array[2:4].astype(int).tolist() == [9, 11]
    assert memory.load(lanes, None, None, access=access("load", dtype)).dtype == array.dtype
