"""The gate: what passes, fails and stays open, and that its rules and goals belong together."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gate
from benchmarks.gate import RULES, Verdict, judge, verdicts
from benchmarks.record import Row

_BENCHMARKS = Path(gate.__file__).parent
_GOALS: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(gate.GOALS.read_text())


def _row(case: str, ours: float, *, checked: bool = True, **ratios: float) -> Row:
    # One underscore stands for the dot of a baseline's name, two for its underscore.
    named = {
        name.replace("__", "-").replace("_", ".").replace("-", "_"): ratio
        for name, ratio in ratios.items()
    }
    return Row(
        case=case,
        unit="us",
        better="lower",
        ours=ours,
        spread=(ours, ours),
        checked=checked,
        baselines={name: ours * ratio for name, ratio in named.items()},
        ratios=named,
    )


def _good() -> dict[str, list[Row]]:
    return {
        "launch": [
            _row("four_arguments/vecadd/4096/-/eager", 1.0, torch_eager=5.0, triton=9.0),
            _row("torch_arguments/vecadd/4096/-/eager", 1.0),
            _row("two_tensor_maps/f32/64x64/-/eager", 1.0),
        ],
        "coldstart": [
            _row("first_result/vecadd/4096/-/-", 0.5),
            _row("import/-/-/-/-", 0.05),
            _row("first_load/softmax/64x1000/-/-", 0.5),
        ],
        "factory": [
            _row("wheel/-/-/-/-", 20.0),
            _row("bundle/-/-/-/cold", 900.0),
            _row("make_wheel/-/-/-/warm", 20.0),
        ],
        "compile": [
            _row("vecadd/f32/1024/-/cold", 0.2, triton=2.0),
            _row("vecadd/f32/1024/-/warm", 40.0, triton=1.0),
            _row("matmul/f16/128x128x64/-/cold", 0.4, triton=1.7),
        ],
        "attention": [
            _row("attention/bf16/1x1x1x1000x128/fwd/eager", 0.97, cudnn=1.04),
            _row("attention/bf16/1x1x1x1024x128/fwd/eager", 1.0, cudnn=1.04),
            _row("attention.causal/bf16/1x1x1x1024x64/fwd/eager", 1.0, cudnn=0.95),
            _row("attention/bf16/1x1x1x1024x128/bwd/eager", 3.0, cudnn=0.75),
            _row("attention.causal/bf16/1x1x1x1024x64/bwd/eager", 2.0, cudnn=0.9),
            _row("attention.unordered/bf16/1x1x1x1024x128/bwd/eager", 2.5, cudnn=0.95),
            _row("attention.causal.unordered/bf16/1x1x1x1024x64/bwd/eager", 1.5, cudnn=1.0),
        ],
        "cross-entropy": [
            _row("cross_entropy/bf16/64x512/fwdbwd/eager", 1.0, torch_compile=1.8),
            _row("cross_entropy/bf16/64x1000/fwdbwd/eager", 1.0, torch_compile=3.0),
        ],
        "mma": [
            _row("matmul/bf16/4096x4096x4096/fwd/eager", 1.0, cublas=0.51),
            _row("matmul/bf16/512x512x512/fwd/eager", 1.0, cublas=0.1),
        ],
        "gemm": [
            _row("matmul.nt/bf16/4096x4096x4096/fwd/eager", 1.0, cublas=1.2),
            _row("matmul.nt/bf16/8192x8192x8192/fwd/eager", 1.0, cublas=1.5),
            _row("matmul.nt/f16/16x4096x4096/fwd/eager", 1.0, cublas=0.85),
            _row("matmul.nt/bf16/4097x4095x4093/fwd/eager", 1.0, cublas=1.0),
            _row("matmul.nt/tf32/1024x1024x1024/fwd/eager", 1.0, cublas=0.96),
            _row("matmul.nt/f32/1024x1024x1024/fwd/eager", 1.0, cublas=0.95),
            _row("matmul.nt/f8e4m3/1024x1024x1024/fwd/eager", 1.0, torch_scaled__mm=0.97),
        ],
        "rowops": [
            _row("add/f32/64x64/fwd/eager", 1.0, copy=1.0, torch_compile=1.0),
            _row("gelu/f32/64x64/fwd/eager", 1.0, copy=0.86, torch_compile=1.5),
        ],
    }


def _of(found: Iterable[Verdict], goal: str) -> Verdict:
    (verdict,) = (verdict for verdict in found if verdict.goal == goal)
    return verdict


def test_what_meets_every_bar_passes_and_the_rest_is_open() -> None:
    found = verdicts(_good())
    assert judge(_good()) == 0
    assert {v.goal for v in found if v.passed} == {".".join(key) for key in RULES}
    assert _of(found, "train-step.bf16_vs_torch_eager").passed is None
    assert not any(v.passed is False for v in found)


@pytest.mark.parametrize(
    ("suite", "row", "goal"),
    [
        ("launch", _row("torch_arguments/vecadd/4096/-/eager", 4.01), "torch_arguments_us"),
        ("coldstart", _row("import/-/-/-/-", 0.151), "import_s"),
        ("factory", _row("wheel/-/-/-/-", 30.1), "wheel_mb"),
        (
            "mma",
            _row("matmul/bf16/4096x4096x4096/fwd/eager", 1.0, cublas=0.49),
            "bf16_4096_vs_cublas",
        ),
        (
            "gemm",
            _row("matmul.nt/bf16/4096x4096x4096/fwd/eager", 1.0, cublas=0.89),
            "bf16_f16_vs_cublas",
        ),
        (
            "gemm",  # of few rows less is asked, but not less than this
            _row("matmul.nt/f16/16x4096x4096/fwd/eager", 1.0, cublas=0.79),
            "bf16_f16_vs_cublas",
        ),
        (
            "attention",
            _row("attention/bf16/1x1x1x1024x128/fwd/eager", 1.0, cudnn=1.02),
            "fwd_vs_cudnn",
        ),
        (
            "attention",
            _row("attention.causal/bf16/1x1x1x1024x64/fwd/eager", 1.0, cudnn=0.91),
            "fwd_vs_cudnn",
        ),
        (
            "attention",
            _row("attention/bf16/1x1x1x1000x128/fwd/eager", 1.2, cudnn=1.04),
            "odd_length_fraction",
        ),
        (
            "attention",
            _row("attention.causal/bf16/1x1x1x1024x64/bwd/eager", 2.0, cudnn=0.85),
            "bwd_deterministic_vs_cudnn",
        ),
        (
            "cross-entropy",
            _row("cross_entropy/bf16/64x1000/fwdbwd/eager", 1.0, torch_compile=1.79),
            "fwdbwd_vs_torch_compile",
        ),
        (
            "attention",
            _row("attention.unordered/bf16/1x1x1x1024x128/bwd/eager", 2.9, cudnn=0.85),
            "bwd_vs_cudnn",
        ),
        (
            "rowops",
            _row("add/f32/64x64/fwd/eager", 1.0, copy=0.84, torch_compile=2.0),
            "fraction_of_copy",
        ),
        (
            "rowops",  # its mean with the other row is good, it alone is too slow
            _row("add/f32/64x64/fwd/eager", 1.0, copy=1.0, torch_compile=0.97),
            "vs_torch_compile",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_figure_beyond_its_bar_fails_that_goal_alone(suite: str, row: Row, goal: str) -> None:
    results = _good()
    results[suite] = [row if each.case == row.case else each for each in results[suite]]
    failed = [verdict.goal for verdict in verdicts(results) if verdict.passed is False]
    assert failed == [f"{suite}.{goal}"]
    assert judge(results) == 1


def test_a_mean_below_its_bar_fails_though_no_row_does() -> None:
    results = _good()
    results["rowops"] = [_row("add/f32/64x64/fwd/eager", 1.0, copy=1.0, torch_compile=1.09)]
    assert _of(verdicts(results), "rowops.vs_torch_compile").passed is False


def test_a_launch_must_beat_the_peers_in_its_run() -> None:
    results = _good()
    results["launch"][0] = _row("four_arguments/vecadd/4096/-/eager", 2.0, cuda_core=0.99)
    verdict = _of(verdicts(results), "launch.four_arguments_us")
    assert verdict.passed is False
    assert "not below cuda.core" in verdict.found


def test_a_suite_without_results_fails() -> None:
    results = _good()
    del results["coldstart"]
    verdict = _of(verdicts(results), "coldstart.import_s")
    assert verdict.passed is False
    assert "benchmarks run coldstart" in verdict.found
    assert judge(results) == 1


@pytest.mark.parametrize(
    ("suite", "goal"),
    [
        ("launch", "four_arguments_us"),
        ("rowops", "fraction_of_copy"),
        ("mma", "bf16_4096_vs_cublas"),
    ],
    ids=["no such case", "no such baseline", "no such product"],
)
def test_a_missing_case_or_baseline_fails(suite: str, goal: str) -> None:
    results = _good() | {suite: [_row("other/f32/64/-/eager", 1.0)]}
    verdict = _of(verdicts(results), f"{suite}.{goal}")
    assert verdict.passed is False
    assert "not in the results" in verdict.found


def test_a_wrong_result_fails_whatever_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    results = _good()
    results["rowops"].append(
        _row("sum/f32/64x64/fwd/eager", 0.1, checked=False, copy=9.0, torch_compile=9.0)
    )
    assert judge(results) == 1
    assert "FAIL  sum/f32/64x64/fwd/eager: the result is wrong" in capsys.readouterr().out


def test_rules_read_goals_that_exist() -> None:
    assert [key for key in RULES if key[1] not in _GOALS.get(key[0], {})] == []


def test_every_suite_has_a_file_and_a_rule() -> None:
    suites = {path.stem.replace("_", "-") for path in (_BENCHMARKS / "suites").glob("*.py")}
    assert suites == {suite for suite, _ in RULES}


def test_goals_are_limits_with_numbers() -> None:
    keys = {"now", "goal", "note", "geomean_now", "geomean_goal", "each_now"}
    for suite, limits in _GOALS.items():
        for name, limit in limits.items():
            assert set(limit) <= keys, f"{suite}.{name}"
            assert {"now", "geomean_now", "each_now"} & set(limit), f"{suite}.{name} has no bar"
            assert all(limit[key] > 0 for key in limit if key != "note"), f"{suite}.{name}"
