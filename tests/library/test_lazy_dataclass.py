"""Classes of `lazy_dataclass` behave as those of the standard decorator."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest

from tilewright import lazy_dataclass


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list, repr=False)

    def sum(self) -> int:
        return self.x + self.y


@dataclasses.dataclass(frozen=True, slots=True)
class StandardPoint:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list, repr=False)


@lazy_dataclass.dataclass(slots=True)
class Counter:
    start: int
    count: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.count = self.start + 1


@lazy_dataclass.dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    b: int = 1
    a: str


@lazy_dataclass.dataclass(frozen=True, slots=True, eq=False)
class Identity:
    value: int


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: float


@lazy_dataclass.dataclass(frozen=True, slots=True)
class OtherPair:
    left: int
    right: float


def test_init_takes_positions_keywords_and_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(1).tags) == (1, 2, [])
    assert Point(1, y=5).sum() == 6
    assert Point(1).tags is not Point(1).tags


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, [], 4), {}), ((1,), {"z": 1})], ids=str)
def test_wrong_arguments_are_the_same_errors(arguments: tuple[Any, dict[str, Any]]) -> None:
    positional, keywords = arguments
    with pytest.raises(TypeError) as found:
        Point(*positional, **keywords)
    with pytest.raises(TypeError) as expected:
        StandardPoint(*positional, **keywords)
    assert str(found.value) == str(expected.value).replace("StandardPoint", "Point")


def test_repr_is_the_same() -> None:
    assert repr(Point(1, 3)) == repr(StandardPoint(1, 3)).removeprefix("Standard")


def test_equality_and_hash_are_of_the_values_and_the_class() -> None:
    assert Pair(1, 2.0) == Pair(1, 2.0)
    assert Pair(1, 2.0) != Pair(1, 3.0)
    others: list[object] = [OtherPair(1, 2.0), (1, 2.0)]
    assert Pair(1, 2.0) not in others
    assert hash(Pair(1, 2.0)) == hash((1, 2.0))
    assert len({Pair(1, 2.0), Pair(1, 2.0), Pair(2, 2.0)}) == 2


def test_classes_without_equality_are_compared_by_identity() -> None:
    one = Identity(1)
    assert one == one
    assert one != Identity(1)
    assert {one: 1}[one] == 1


def test_frozen_objects_refuse_assignment_and_deletion() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_mutable_objects_take_assignments_and_have_no_hash() -> None:
    counter = Counter(4)
    assert counter.count == 5
    counter.start = 7
    assert counter.start == 7
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_keywords_alone_may_come_in_any_order() -> None:
    assert Named(a="x") == Named(a="x", b=1)
    with pytest.raises(TypeError, match="positional"):
        Named(1, "x")  # type: ignore[call-arg]


def test_functions_of_dataclasses_know_the_fields() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [field.name for field in dataclasses.fields(Point)] == ["x", "y", "tags"]
    assert dataclasses.replace(Point(1), y=9) == Point(1, 9)
    assert dataclasses.asdict(Pair(1, 2.0)) == {"left": 1, "right": 2.0}


def test_objects_match_by_position() -> None:
    value: object = Pair(3, 4.0)
    match value:
        case Pair(left, right):
            assert (left, right) == (3, 4.0)
        case _:
            pytest.fail("no match")


def test_objects_are_copied_and_pickled() -> None:
    point = Point(1, 2, ["a"])
    assert pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point) == point
    assert copy.deepcopy(point).tags is not point.tags


def test_first_objects_in_many_threads() -> None:
    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Fresh:
        value: int

    made: list[Fresh] = []
    threads = [threading.Thread(target=lambda: made.append(Fresh(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert len(made) == 8
