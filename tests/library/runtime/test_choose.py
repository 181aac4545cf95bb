"""What a launch fills in: configurations by key or nearest, heuristics; what tuning keeps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from helpers import constexpr_kernels
from helpers.launches import Run
from tilewright import settings
from tilewright.errors import ArgumentError, KernelTypeError, LaunchError
from tilewright.runtime import choose

CONFIGS = [
    tl.Config({"BLOCK": 64}, num_warps=2),
    tl.Config({"BLOCK": 256}, num_warps=8, num_stages=2),
    tl.Config({"BLOCK": 1024}),
]


HEURISTICS = {
    "EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0,
    "TWICE": lambda arguments: 2 * arguments["BLOCK"],
}
record = tl.autotune(configs=CONFIGS, key=["n"], restore_value=["out"])(
    tl.heuristics(HEURISTICS)(constexpr_kernels.record)
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    settings.settings.cache_clear()
    choose._chosen.cache_clear()
    choose._known.clear()
    yield
    settings.settings.cache_clear()
    choose._chosen.cache_clear()


def _launched(n: int, dtype: str = "int64") -> list[int]:
    x, out = np.zeros(1, dtype), np.zeros(4, np.int64)
    record[lambda a: (1, 1, a["BLOCK"] // a["BLOCK"])](x, out, n)
    return [int(value) for value in out[:3]]


def _tuned(n: int, times: dict[int, float], kernel: tl.Kernel = record) -> tl.Config:
    """Tune with made-up times by BLOCK."""
    measured: list[int] = []
    x, out = np.zeros(1, np.int64), np.zeros(4, np.int64)

    def measure(run: Callable[[], None]) -> float:
        run()
        measured.append(int(out[0]))
        return times[measured[-1]]

    best = choose.tune(kernel, 1, (x, out, n), {}, measure=measure)
    assert set(measured) == set(times)
    return best


def test_untuned_kernel_takes_the_first_configuration() -> None:
    assert _launched(128) == [64, 1, 128]
    assert _launched(100) == [64, 0, 128]


def test_tuned_key_is_used_and_so_is_the_nearest() -> None:
    assert _tuned(1000, {64: 3.0, 256: 2.0, 1024: 1.0}) == CONFIGS[2]
    assert _tuned(10, {64: 3.0, 256: 2.0, 1024: 4.0}) == CONFIGS[1]
    assert _launched(1000)[0] == 1024
    assert _launched(700)[0] == 1024
    assert _launched(10)[0] == 256
    assert _launched(30)[0] == 256


def test_other_dtypes_are_another_situation() -> None:
    _tuned(1000, {64: 3.0, 256: 2.0, 1024: 1.0})
    assert _launched(1000, "int32")[0] == 64


def test_tuning_again_replaces_an_entry(tmp_path: Path) -> None:
    _tuned(1000, {64: 3.0, 256: 2.0, 1024: 1.0})
    _tuned(1000, {64: 0.5, 256: 2.0, 1024: 1.0})
    (file,) = tmp_path.glob("tuned/*.json")
    (entry,) = json.loads(file.read_text())["entries"]
    assert (entry["config"], entry["num_warps"], entry["time_us"]) == ({"BLOCK": 64}, 2, 0.5)
    assert file.stem == record.digest


def test_configuration_that_is_gone_is_not_taken() -> None:
    _tuned(1000, {64: 3.0, 256: 2.0, 1024: 1.0})
    fewer = tl.autotune(configs=CONFIGS[:2], key=["n"])(record)
    assert fewer.digest == record.digest
    assert choose.choose(fewer, {"x": np.zeros(1, np.int64), "n": 1000}) == CONFIGS[0]


def test_equal_configurations_are_found_by_hash() -> None:
    one, other = tl.Config({"M": 1, "N": 2}), tl.Config({"N": 2, "M": 1})
    assert one == other
    assert len({one, other, tl.Config({"M": 1, "N": 2}, num_warps=8)}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "\x00",
        "[" * 100_000,
        '{"schema": 0}',
        '{"schema": 1}',
        '{"schema": 1, "entries": 5}',
        '{"schema": 1, "entries": [5]}',
        '{"schema": 1, "entries": [{"device": "host"}]}',
        '{"schema": 1, "entries": [{"device": "host", "dtypes": "", "key": [1], "config": 3, '
        '"num_warps": 4, "num_stages": 3, "time_us": 1}]}',
    ],
    ids=["cut", "list", "zero", "deep", "old", "bare", "number", "numbers", "short", "types"],
)
def test_damaged_table_is_no_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / f"{record.digest}.json").write_text(text)
    assert _launched(1000)[0] == 64
    assert "is not used" in caplog.text


def test_a_table_that_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    os.mkfifo(tmp_path / "tuned" / f"{record.digest}.json")
    assert _launched(1000)[0] == 64


def test_pruning_drops_configurations() -> None:
    def small(configs: Sequence[tl.Config], arguments: dict[str, Any]) -> list[tl.Config]:
        return [c for c in configs if c.kwargs["BLOCK"] <= arguments["n"]]

    pruned = tl.autotune(
        configs=CONFIGS[::-1], key=["n"], prune_configs_by={"early_config_prune": small}
    )(record)
    arguments = {"x": np.zeros(1), "out": np.zeros(1), "n": 300}
    assert choose.choose(pruned, arguments) == CONFIGS[1]
    with pytest.raises(ArgumentError, match="leaves no configuration"):
        choose.choose(pruned, {**arguments, "n": 3})


def test_no_configuration_runs() -> None:
    def broken(_run: Callable[[], None]) -> float:
        msg = "too much shared memory"
        raise LaunchError(msg)

    with pytest.raises(LaunchError, match=r"(?s)no configuration.*BLOCK.*too much shared memory"):
        choose.tune(record, 1, (np.zeros(1), np.zeros(4), 5), {}, measure=broken)


def test_chosen_parameter_may_not_be_given() -> None:
    with pytest.raises(ArgumentError, match=r"was given 'BLOCK'.*leave it out"):
        record[1](np.zeros(1), np.zeros(4), 5, BLOCK=128)


def test_kernel_without_configurations_is_not_tuned() -> None:
    plain = record.choosing(type(record.choices)())
    with pytest.raises(ArgumentError, match=r"no configurations; add @tl.autotune"):
        plain.tune(1, np.zeros(1), np.zeros(4), 5, BLOCK=64, EVEN=True, TWICE=1)


@pytest.mark.parametrize(
    ("decorator", "says"),
    [
        (lambda: tl.autotune(configs=[], key=[]), "at least one configuration"),
        (lambda: tl.autotune(configs=CONFIGS, key=["m"])(record), "no parameter `m`"),
        (
            lambda: tl.autotune(configs=[tl.Config({"n": 1})], key=[])(record),
            "`n` of kernel `record` is not tl.constexpr",
        ),
        (lambda: tl.heuristics({"ODD": len})(record), "no parameter `ODD`"),
        (lambda: tl.Config({}, num_ctas=2), "num_ctas of tl.Config is 1"),
        (lambda: tl.Config(["BLOCK"]), "kwargs of tl.Config is a dict"),  # type: ignore[arg-type]  # wrong on purpose
        (
            lambda: tl.Config({"BLOCK": [16]}),  # type: ignore[dict-item]  # wrong on purpose
            r"`BLOCK` of tl.Config is an int, .*got \[16\] of type list; give",
        ),
        (lambda: tl.Config({"BLOCK": np.int64(3)}), "of type int64; convert it first"),  # type: ignore[dict-item]  # wrong on purpose
        (lambda: tl.Config({16: 16}), "got the name 16"),  # type: ignore[dict-item]  # wrong on purpose
        (lambda: tl.Config({}, num_warps="4"), "a power of two from 1 to 32, got '4'"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tl.Config({}, num_warps=6), "a power of two from 1 to 32, got 6"),
        (lambda: tl.Config({}, num_stages=-1), "an integer from 1 to 255, got -1"),
        (lambda: tl.Config({}, num_stages=True), "an integer from 1 to 255, got True"),
        (lambda: tl.Config({}, maxnreg=64), "no `maxnreg`: write tl.resident"),
        (lambda: tl.Config({}, warps=4), "no `warps`: it takes kwargs, num_warps"),
        (lambda: tl.autotune(CONFIGS[0], ["n"]), "a list of tl.Config, got Config"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tl.autotune(CONFIGS, None), "a list of names of parameters, got None"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tl.autotune(CONFIGS, iter([3])), "a list of names of parameters, got <list_it"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tl.autotune(CONFIGS, [3]), r"a list of names of parameters, got \[3\]"),  # type: ignore[list-item]  # wrong on purpose
        (lambda: tl.autotune(CONFIGS, [], reset_to_zero="out"), r"reset_to_zero .*write \['out'\]"),
        (lambda: tl.autotune(CONFIGS, [], restore_value=3), "restore_value .*names of parameters"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tl.autotune(CONFIGS, [], prune_configs_by=list), "prune_configs_by .*is a dict"),  # type: ignore[arg-type]  # wrong on purpose
        (
            lambda: tl.autotune(CONFIGS, [], prune_configs_by={"early_config_prune": 3}),  # type: ignore[dict-item]  # wrong on purpose
            "is a function of configurations and arguments, got 3",
        ),
        (lambda: tl.autotune(CONFIGS, [], warmup=25), "no `warmup`: leave it out: kernel.tune"),
        (lambda: tl.heuristics(["EVEN"]), "a dict from parameters to functions"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: tl.autotune([64], ["n"]), "each a tl.Config, got 64"),  # type: ignore[list-item]  # wrong on purpose
        (lambda: tl.autotune(CONFIGS, "n"), r"a list of parameters, got 'n'; write \['n'\]"),
        (lambda: tl.heuristics({"EVEN": True})(record), "`EVEN` is a function"),  # type: ignore[dict-item]  # wrong on purpose
        (lambda: tl.heuristics({})(len), "goes above @tl.kernel"),  # type: ignore[arg-type]  # wrong on purpose
        (
            lambda: tl.autotune(CONFIGS, ["n"], prune_configs_by={"perf_model": list}),
            "`early_config_prune` only",
        ),
    ],
)
def test_wrong_decorators_are_told(decorator: Callable[[], object], says: str) -> None:
    with pytest.raises(KernelTypeError, match=says.replace("(", r"\(")):
        decorator()


def test_configurations_may_come_one_after_the_other() -> None:
    chosen = tl.autotune((config for config in CONFIGS), ["n"])(record)
    assert chosen.choices.configs == tuple(CONFIGS)


def test_names_may_come_one_after_the_other() -> None:
    names = ["n", "out"]
    chosen = tl.autotune(CONFIGS, iter(names), restore_value=(name for name in names))(record)
    assert chosen.choices.key == chosen.choices.restore_value == ("n", "out")


def test_one_configuration_is_settled_and_may_still_not_be_given() -> None:
    one = tl.autotune(configs=CONFIGS[:1], key=["n"])(constexpr_kernels.record)
    x, out = np.zeros(1, np.int64), np.zeros(4, np.int64)
    one[1](x, out, 128, EVEN=True, TWICE=3)
    assert [int(value) for value in out[:3]] == [64, 1, 3]
    one[1](x=x, out=out, n=5, EVEN=False, TWICE=4)
    assert [int(value) for value in out[:3]] == [64, 0, 4]
    with pytest.raises(ArgumentError, match=r"was given 'BLOCK'.*leave it out"):
        one[1](x, out, 128, BLOCK=64, EVEN=True, TWICE=3)
    with pytest.raises(ArgumentError, match=r"was given 'BLOCK'.*leave it out"):
        one[1](x, out, 128, 64, True, 3)
    with pytest.raises(ArgumentError, match="no argument 'blok'"):
        one[1](x, out, 128, blok=1, EVEN=True, TWICE=3)


def test_element_types_have_one_name_whoever_holds_them() -> None:
    class Theirs:
        dtype = "torch.bfloat16"

    arguments = {"x": np.zeros(1, np.float32), "out": Theirs(), "n": 5}
    assert choose._situation(record, arguments) == ("host", "f32,bf16", (("n", 5),))


def test_a_launch_that_was_seen_is_filled_in_the_same_and_tuning_forgets_it(run: Run) -> None:
    done = run("""
import tilewright.language as tl
from tilewright.runtime import choose
configs = [tl.Config({"BLOCK": 64}), tl.Config({"BLOCK": 128})]
chosen = tl.autotune(configs=configs, key=["n"])(add)
x, y, out = arrays()
hx, hy, hout = arrays(dtype=dtypes.float16)
for _ in range(2):
    chosen[1](x, y, out, 64)
    chosen[1](x, y, out, 1000)
    chosen[1](hx, hy, hout, 64)
    chosen[1](x, y, out, n=64)
    chosen[1](x, y, out, 64, stream=48)
print(len(choose._known))
times = iter([2.0, 1.0])
choose.tune(chosen, 1, (x, y, out, 64), {}, measure=lambda launch: (launch(), next(times))[1])
print(len(choose._known))
chosen[1](x, y, out, 64)
chosen[1](hx, hy, hout, 64)
refused(errors.ArgumentError, lambda: chosen[1](x, y))
refused(errors.ArgumentError, lambda: chosen[1](x, y, out, 64, 128))
""")
    lines = done.output.splitlines()
    assert lines[:2] == ["3", "0"]
    assert "lacks ['n'], the key of its configurations" in lines[2]
    assert "was given 'BLOCK'" in lines[3]
    loads = done.lines("cuLibraryLoadData")
    assert len(loads) == 3  # f32 with 64 and with 128, f16 with 64
    assert len(done.lines("launch")) == 10 + 2 + 2


def test_a_program_tunes_what_it_launches_first(run: Run) -> None:
    done = run("""
import tilewright.language as tl
from tilewright.runtime import choose
configs = [tl.Config({"BLOCK": 64}), tl.Config({"BLOCK": 128})]
chosen = tl.autotune(configs=configs, key=["n"])(add)
x, y, out = arrays()
times = iter([2.0, 1.0] * 2)
measure = lambda launch: (launch(), next(times))[1]
with choose.tuning_at_first_sight(measure=measure) as tuned:
    for n in (64, 64, 1000, 64):
        chosen[1](x, y, out, n)
    one = np.zeros(64, np.float32)
    chosen[1](one, one, one, 64)                  # on the host nothing is timed
    print([(each.kernel.rpartition(".")[2], each.entry.key) for each in tuned])
chosen[1](x, y, out, 5)
with choose.tuning_at_first_sight(measure=measure) as again:
    chosen[1](x, y, out, 64)
print(len(tuned), len(again), next(times, None))
print(choose.choose(chosen, {"x": x, "y": y, "out": out, "n": 64}).kwargs["BLOCK"])
""")
    assert done.output.splitlines() == [
        "[('add', (('n', 64),)), ('add', (('n', 1000),))]",
        "2 0 None",
        "128",
    ]
