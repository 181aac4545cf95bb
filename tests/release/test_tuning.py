"""`tilewright tune`: candidates are planned, checked, timed and kept, and a killed run goes on."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_checkout import ROOT, SmallCheckout
from tilewright import settings
from tilewright.abi.target import Target
from tilewright.abi.tuned import FILE_NAME, Choice, Line, TunedTable, from_json
from tilewright.cli.main import main as tilewright
from tilewright.errors import FormatError, ReleaseError, UsageError
from tilewright.tensor import tuned
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signature_file
from tilewright_release.tuning import command
from tilewright_release.tuning.candidates import Candidate
from tilewright_release.tuning.compilation import compile_candidates, plan_points
from tilewright_release.tuning.plan import Plan, PlannedPoint, read_plan
from tilewright_release.tuning.points import FAMILIES, parse_point, usual_points
from tilewright_release.tuning.tables import (
    read_tuned,
    to_toml,
    undeclared_choices,
    write_bundled,
    write_to_folder,
)
from tilewright_release.tuning.timing import USUAL, Journal, time_plan, time_point

HOPPER, AMPERE = Target(9, 0, "a"), Target(8, 0)
FIRST = Choice("matmul", (128, 128, 16, 8, 3))
SECOND = Choice("matmul", (32, 64, 16, 4, 3))
OTHER = Choice("matmul", (16, 64, 16, 4, 3))
POINTS = ("matmul f32 32x48x64 kn", "matmul f32 2x16x32x16 mk epilogue")


class HostBench:
    """The interpreter as the device, and made-up times by the name of a choice."""

    def __init__(self, times: Mapping[str, float], *, wrong: str = "", die_at: int = 10**9) -> None:
        self.times = times
        self.wrong = wrong
        self.die_at = die_at
        self.cleared = 0
        self.points = 0

    def place(self, values: Any) -> Any:
        return values.copy()

    def turned(self, array: Any) -> Any:
        return array.swapaxes(-1, -2)

    def clear(self, array: Any) -> None:
        self.cleared += 1
        array[...] = 0

    def read(self, array: Any) -> Any:
        trial = tuned._trial.get()
        is_wrong = bool(self.wrong) and trial is not None and str(trial.choice) == self.wrong
        return array + 1 if is_wrong else array.copy()

    def record(self, call: Callable[[], None]) -> Callable[[], None]:
        return call

    def measure(self, contenders: Mapping[str, Callable[[], None]]) -> dict[str, list[float]]:
        self.points += 1
        if self.points > self.die_at:
            raise KeyboardInterrupt
        return {name: [self.times[name], self.times[name] + 9, 0.0] for name in contenders}


TIMES = {USUAL: 5.0, str(FIRST): 4.0, str(SECOND): 3.0, str(OTHER): 2.0}


def _plan(*lines: str) -> Plan:
    candidates = (Candidate(FIRST, True), Candidate(SECOND, True), Candidate(OTHER, False))
    points = tuple(PlannedPoint(parse_point(line), candidates) for line in lines or POINTS)
    return Plan("sm_90a", "0.1.0", "abc", points)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    settings.settings.cache_clear()
    yield tmp_path / "cache"
    monkeypatch.undo()
    settings.settings.cache_clear()
    tuned.forget_tables()


def _tables(bench: HostBench, plan: Plan, folder: Path | None, **more: Any) -> list[Path]:
    return command.time_tables(
        plan, bench, kind="90-132", gpu="a GPU", driver_version=13000, folder=folder,
        **({"seconds": None} | more),
    )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_points_are_what_their_lines_say(family: str) -> None:
    points = usual_points([family])
    assert points
    for point in points:
        assert parse_point(str(point)) == point
    assert parse_point("matmul f8e4m3->f32 2x3x4x5 mk epilogue").operands[0].shape == (2, 5, 3)


@pytest.mark.parametrize(
    "line",
    [
        "", "matmul", "matmul bf16 4x4x4", "matmul bf16 4x4 kk", "matmul bf16 4x0x4 kk",
        "matmul bf16/tf32 4x4x4 kk", "matmul bf17 4x4x4 kk", "matmul bf16->f64 4x4x4 kk",
        "matmul bf16 4x4x4 nk", "matmul bf16 4x4x4 kk gate", "attention bf16 4x4x4",
        "attention i8 1x4x4x4", "attention bf16 1x4x4x4 masked", "softmax bf16 4x4",
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"is no point: .* one is such as"):
        parse_point(line)


def test_declared_candidates_launch_what_is_declared() -> None:
    lines = ("matmul bf16 256x256x256 kk epilogue", "matmul f8e4m3 256x256x256 kn",
             "matmul i8 64x64x64 kk", "attention bf16 4x256x256x64 bias")  # fmt: skip
    points = [parse_point(line) for line in lines]
    known = {
        (entry.kernel.qualified_name, str(entry.signature))
        for path in sorted(Checkout(ROOT).signatures.glob("*.toml"))
        if path.stem in ("matmul", "attention", "movement")
        for entry in read_signature_file(path, root=ROOT)
    }
    for target in (HOPPER, AMPERE):
        for point, candidates in plan_points(points, target=target, declared_only=True).items():
            assert candidates, point
            launched = {
                (k.qualified_name, str(s)) for found in candidates.values() for k, s in found
            }
            assert launched <= known, point
    # 8-bit floats are multiplied along K: the other factor is copied, and a way without is none.
    f8 = next(iter(plan_points(points[1:2], target=HOPPER, declared_only=True).values()))
    copies = {choice.copied for choice, _ in f8 if choice.kernel in ("blocks", "parts", "halves")}
    assert copies == {(1,)}


def test_others_are_tried_too_and_few_rows_get_no_tall_tiles() -> None:
    point = parse_point("matmul bf16 8x4096x4096 kk")
    (candidates,) = plan_points([point], target=HOPPER, declared_only=False).values()
    others = [choice for choice, is_declared in candidates if not is_declared]
    assert {choice.kernel for choice in others} == {"blocks", "parts"}
    assert max(choice.tiles[0] for choice in others) == 64


def test_the_fastest_that_is_right_is_chosen() -> None:
    (planned,) = _plan(POINTS[0]).points
    bench = HostBench(TIMES)
    timed = time_point(planned, bench, declared_only=False)
    assert timed.line == Line("f32 f32 ieee kn", (1, 32, 48, 64), OTHER, 2.0, 5.0)
    assert not timed.refused
    assert bench.cleared == 3
    timed = time_point(planned, HostBench(TIMES, wrong=str(OTHER)), declared_only=False)
    assert timed.line is not None
    assert timed.line.choice == SECOND
    assert timed.refused == {str(OTHER): f"{32 * 48} of {32 * 48} elements are wrong"}


def test_what_no_bundle_carries_must_be_worth_it() -> None:
    (planned,) = _plan(POINTS[0]).points
    close = {**TIMES, str(OTHER): 2.95}
    line = time_point(planned, HostBench(close), declared_only=False).line
    assert line is not None
    assert line.choice == SECOND
    line = time_point(planned, HostBench(TIMES), declared_only=True).line
    assert line is not None
    assert (line.choice, line.undeclared) == (SECOND, f"{OTHER}: 2.0 us")


def test_a_library_that_is_wrong_is_not_tuned() -> None:
    (planned,) = _plan(POINTS[0]).points
    bench = HostBench(TIMES)
    bench.read = lambda array: array * 0  # type: ignore[method-assign]
    with pytest.raises(ReleaseError, match="nothing can be tuned on what is wrong"):
        time_point(planned, bench, declared_only=True)


def test_attention_is_held_to_its_definition() -> None:
    point = parse_point("attention f16 2x32x32x16 causal")
    choice = Choice("attention", (64, 64, 16, 4, 3))
    planned = PlannedPoint(point, (Candidate(choice, True),))
    times = {USUAL: 2.0, str(choice): 1.0}
    timed = time_point(planned, HostBench(times), declared_only=True)
    assert timed.line == Line("f16 ieee 16 causal", (2, 32, 32), choice, 1.0, 2.0)
    timed = time_point(planned, HostBench(times, wrong=str(choice)), declared_only=True)
    assert timed.line is None
    assert "from the definition" in timed.refused[str(choice)]


def test_a_killed_run_goes_on_where_it_stopped(cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _tables(HostBench(TIMES, die_at=1), _plan(), None)
    journal = cache / "tuned" / "90-132" / "journal.jsonl"
    # What a crash cut short is not taken for a point.
    with journal.open("a") as file:
        file.write('["matmul f32 2x16')
    bench = HostBench(TIMES)
    (path,) = _tables(bench, _plan(), None)
    assert bench.points == 1
    assert not journal.exists()
    (table,) = from_json(path.read_text(), source=path)
    assert {line.sizes for line in table.lines} == {(1, 32, 48, 64), (2, 16, 32, 16)}
    assert tuned.user_file("90-132", "matmul") == path


def test_another_plan_or_device_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    (planned,) = _plan(POINTS[0]).points
    timed = time_point(planned, HostBench(TIMES), declared_only=True)
    Journal(path, of="one").add("point", timed)
    assert Journal(path, of="one").done == {"point": timed}
    assert not Journal(path, of="other").done
    assert not Journal(path, of="one").done


def test_a_run_whose_time_is_up_keeps_what_it_has(tmp_path: Path) -> None:
    stream = io.StringIO()
    journal = Journal(tmp_path / "journal", of="plan")
    more: dict[str, Any] = {"declared_only": True, "stream": stream}
    assert not list(time_plan(_plan(), HostBench(TIMES), journal, seconds=-1, **more))
    assert len(list(time_plan(_plan(), HostBench(TIMES), journal, seconds=60, **more))) == 2
    assert re.search(r"points: 2/2, .* last matmul .* 3.0 us \(usual 5.0\)", stream.getvalue())


def test_tables_of_a_checkout_are_toml_and_keep_other_lines(tmp_path: Path) -> None:
    first, second = (_plan(line) for line in POINTS)
    (path,) = _tables(HostBench(TIMES), first, tmp_path)
    assert _tables(HostBench({**TIMES, str(FIRST): 1.0}), second, tmp_path) == [path]
    assert path == tmp_path / "90-132" / "matmul.toml"
    (table,) = read_tuned(tmp_path)
    assert {line.sizes: line.choice for line in table.lines} == {
        (1, 32, 48, 64): SECOND,
        (2, 16, 32, 16): FIRST,
    }
    data = tomllib.loads(path.read_text())
    assert (data["gpu"], data["driver"], data["commit"]) == ("a GPU", 13000, "abc")
    assert data["line"][0]["undeclared"] == f"{OTHER}: 2.0 us"
    assert path.read_text() == to_toml(table)


def test_a_misplaced_or_damaged_table_is_refused(tmp_path: Path) -> None:
    (path,) = _tables(HostBench(TIMES), _plan(), tmp_path)
    other = tmp_path / "80-108" / "matmul.toml"
    other.parent.mkdir()
    path.rename(other)
    with pytest.raises(FormatError, match="its place says otherwise"):
        read_tuned(tmp_path)
    other.write_text("schema = ")
    with pytest.raises(FormatError, match=r"80-108/matmul\.toml cannot be read"):
        read_tuned(tmp_path)


def _table(*choices: Choice, dtype: str = "bf16") -> TunedTable:
    lines = tuple(Line(f"{dtype} bf16 ieee kk", (1, 2, 3, 4), c, 1.0, 2.0) for c in choices)
    return TunedTable("matmul", "90-132", "a GPU", 13000, "2026-01-31", "0.1.0", "", lines)


def test_the_audit_finds_choices_that_nothing_declares() -> None:
    signatures = Checkout(ROOT).signatures / "matmul.toml"
    declared = read_signature_file(signatures, root=ROOT)
    known = Choice("blocks", (128, 128, 64, 8, 4)), Choice("matmul", (64, 64, 64, 4, 4))
    assert not list(undeclared_choices([_table(*known)], declared))
    wrong = [*undeclared_choices([_table(OTHER), _table(known[1], dtype="f64")], declared)]
    assert wrong[0] == (
        "the tuned table of matmul on 90-132 chooses matmul 16x64x16, 4 warps, 3 stages for "
        "bf16 bf16 ieee kk, which no signature declares"
    )
    assert len(wrong) == 2


def test_a_bundle_carries_the_tables_as_one_file(tmp_path: Path) -> None:
    table = _table(FIRST)
    write_to_folder(table, tmp_path / "tuned")
    folder = tmp_path / "bundle"
    write_bundled(read_tuned(tmp_path / "tuned"), folder)
    assert from_json((folder / FILE_NAME).read_text(), source=folder) == (table,)
    write_bundled([], folder)
    assert not (folder / FILE_NAME).exists()


def test_candidates_are_compiled_into_a_folder_of_their_own(
    tmp_path: Path, small: SmallCheckout
) -> None:
    point = parse_point("matmul f64 64x64x64 kn")
    options: dict[str, Any] = {
        "target": AMPERE, "targets": small.checkout.targets, "cache": small.cache,
        "jobs": 1, "commit": "abc", "stream": io.StringIO(),
    }  # fmt: skip
    compiled = compile_candidates([point], folder=tmp_path, declared_only=True, **options)
    assert compiled.entries == 0
    assert read_plan(tmp_path) == compiled.plan
    with pytest.MonkeyPatch.context() as patch:
        module = "tilewright_release.tuning.candidates"
        patch.setattr(f"{module}._other_products", lambda *_: iter([_of_f64(32), _of_f64(48)]))
        compiled = compile_candidates([point], folder=tmp_path, declared_only=False, **options)
    (planned,) = compiled.plan.points
    assert Candidate(_of_f64(32), False) in planned.candidates
    # 48 is no extent of a tile: such a candidate is left out, and the rest stays.
    assert list(compiled.refused) == [str(_of_f64(48))]
    assert compiled.entries == 2
    assert (tmp_path / "manifest.json").is_file()


def _of_f64(rows: int) -> Choice:
    return Choice("matmul_plain", (rows, 32, 16, 4, 2))


def test_the_command_says_what_it_made_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "compile", "--declared", "--out", str(tmp_path), "--point", POINTS[0]]
    assert tilewright(words) == 0
    assert re.search(r"tune: 3 candidates at 1 points, 0 binaries", capsys.readouterr().out)
    assert tilewright([*words[:-1], "matmul"]) == UsageError.exit_code
    assert "is no point" in capsys.readouterr().err
    assert tilewright(["tune", "compile", "fft", "--out", str(tmp_path)]) == UsageError.exit_code
    assert "no family that is tuned" in capsys.readouterr().err


def test_a_folder_without_candidates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="make them with `tilewright tune compile`"):
        read_plan(tmp_path)


def test_values_of_products_have_one_exact_result() -> None:
    point = parse_point("matmul bf16 16x16x512 kk")
    values = {operand.name: point.values(operand) for operand in point.operands}
    turned = {"a": values["a"], "b": values["b"].T}
    exact = turned["a"].astype(np.float64) @ turned["b"].astype(np.float64)
    expected = point.expected(turned)
    assert np.array_equal(expected, exact.astype(expected.dtype))
    assert point.problem(expected, expected, expected) == ""
    assert point.problem(expected * 0, expected, expected) != ""
