"""Tables of tuned choices as data: buckets, the nearest device, and what is no table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.abi.tuned import Choice, Line, TunedTable, bucket, from_json, nearest, to_json
from tilewright.errors import FormatError

LINE = Line("bf16 bf16 ieee kk", (1, 64, 96, 128), Choice("parts", (16, 64, 256, 4, 5), 3), 1.5, 2)
TABLE = TunedTable(
    "matmul", "90-132", "NVIDIA H200", 13000, "2026-01-31", "0.1.0", "abc",
    (LINE, LINE._replace(sizes=(1, 1, 1, 1), undeclared="blocks: 1 us")),
)  # fmt: skip


def test_a_table_is_the_same_after_writing_and_reading() -> None:
    assert from_json(to_json([TABLE, TABLE]), source="here") == (TABLE, TABLE)


def test_a_bucket_is_half_a_power_of_two_wide() -> None:
    assert bucket((1, 64, 4096)) == (0, 12, 24)
    assert bucket((4096,)) == bucket((3500,)) == bucket((4800,))
    assert bucket((4096,)) != bucket((3400,))
    assert bucket((0,)) != bucket((1,))


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("90-132", "90-132"),
        ("90-114", "90-132"),
        ("90-80", "90-78"),
        ("86-84", "80-108"),
        ("103-148", "100-148"),
        ("120-170", "100-148"),
    ],
)
def test_the_nearest_device_is_of_the_nearest_capability(device: str, expected: str) -> None:
    assert nearest(device, ["80-108", "90-132", "90-78", "100-148"]) == expected
    assert nearest(device, []) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 2),
        ("device", "H200"),
        ("device", "90-"),
        ("device", "9-132"),
        ("line", 5),
        ("line", [{}]),
        ("line", [{**TABLE.to_data()["line"][0], "tiles": [1, 2]}]),
        ("line", [{**TABLE.to_data()["line"][0], "tiles": [16, 64, 0, 4, 5]}]),
        ("line", [{**TABLE.to_data()["line"][0], "parts": -1}]),
        ("driver", "new"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(key: str, value: Any) -> None:
    document = json.loads(to_json([TABLE]))
    document["tables"][0][key] = value
    with pytest.raises(FormatError, match=r"/there/tuned\.json"):
        from_json(json.dumps(document), source="/there/tuned.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "5", "[" * 100_000])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="here is no file of tuned tables"):
        from_json(text, source="here")
