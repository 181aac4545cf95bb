"""The gate: recorded results against `goals.toml`.

A goal that a rule of `RULES` reads must be met by recorded results: a suite that was not measured,
or a case that is missing from it, fails. A goal without a rule is open: nothing measures it yet. A
row whose result was wrong fails whatever its time. The bars are the `now` values; `goal` is where
the project goes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.record import Row

GOALS = Path(__file__).parent / "goals.toml"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A limit and what was found; `passed` is None where nothing measures it yet."""

    goal: str
    limit: str
    found: str
    passed: bool | None


Limit = Mapping[str, Any]
Rule = Callable[[list[Row], Limit], tuple[str, str, bool]]
"""Takes a suite's rows and a goal; returns the limit and what was found as texts, and if it holds.

Raises LookupError when a row or a baseline that it reads is not there.
"""


def judge(results: Mapping[str, list[Row]]) -> int:
    """Print a line for each goal and each wrong result; return 0 if none failed, else 1."""
    found = verdicts(results)
    wrong = [row.case for rows in results.values() for row in rows if not row.checked]
    for verdict in found:
        state = {True: "pass", False: "FAIL", None: "open"}[verdict.passed]
        print(f"{state}  {verdict.goal:52s} {verdict.limit:28s} {verdict.found}")
    for case in wrong:
        print(f"FAIL  {case}: the result is wrong, its time does not count")
    failed = sum(verdict.passed is False for verdict in found) + len(wrong)
    passed = sum(verdict.passed is True for verdict in found)
    is_open = sum(verdict.passed is None for verdict in found)
    print(f"{passed} passed, {failed} failed, {is_open} open")
    return 1 if failed else 0


def verdicts(results: Mapping[str, list[Row]]) -> list[Verdict]:
    """Return the verdict on every goal, in the order of `goals.toml`."""
    goals: dict[str, dict[str, Limit]] = tomllib.loads(GOALS.read_text())
    return [
        _verdict(suite, name, limit, results.get(suite, []))
        for suite, limits in goals.items()
        for name, limit in limits.items()
    ]


def _verdict(suite: str, name: str, limit: Limit, rows: list[Row]) -> Verdict:
    goal = f"{suite}.{name}"
    rule = RULES.get((suite, name))
    if rule is None:
        return Verdict(goal, "", "nothing measures it yet", None)
    if not rows:
        return Verdict(goal, "", f"no results: python -m benchmarks run {suite}", passed=False)
    try:
        text, found, passed = rule(rows, limit)
    except LookupError as error:
        return Verdict(goal, "", f"not in the results: {error}", passed=False)
    return Verdict(goal, text, found, passed)


def _at_most(case: str, *, below: tuple[str, ...] = ()) -> Rule:
    """Judge the one row of a case; it must also beat those baselines of `below` that ran."""

    def rule(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
        row = next((row for row in rows if row.case.startswith(f"{case}/")), None)
        if row is None:
            raise LookupError(case)
        lost = [name for name in below if name in row.ratios and row.ratios[name] <= 1]
        found = f"{row.ours:.3f} {row.unit}" + "".join(f", not below {name}" for name in lost)
        return f"<= {limit['now']} {row.unit}", found, row.ours <= limit["now"] and not lost

    return rule


def _at_least(case: str, baseline: str) -> Rule:
    """Judge the ratio of the one row of a case to a baseline."""

    def rule(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
        row = next((row for row in rows if f"{row.case}/".startswith(f"{case}/")), None)
        if row is None:
            raise LookupError(case)
        ratio = row.ratios[baseline]
        return f">= {limit['now']} of {baseline}", f"{ratio:.3f}", ratio >= limit["now"]

    return rule


def _each_at_least(baseline: str, *, key: str = "now") -> Rule:
    """Judge the worst ratio to a baseline by the bar of that name."""

    def rule(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
        worst = min(rows, key=lambda row: row.ratios[baseline])
        ratio = worst.ratios[baseline]
        found = f"worst {ratio:.3f} ({worst.case})"
        return f"each >= {limit[key]}", found, ratio >= limit[key]

    return rule


def _geomean_and_each(baseline: str) -> Rule:
    def rule(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
        ratios = [row.ratios[baseline] for row in rows]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        worst = min(rows, key=lambda row: row.ratios[baseline])
        passed = mean >= limit["geomean_now"] and worst.ratios[baseline] >= limit["each_now"]
        text = f"geomean >= {limit['geomean_now']}, each >= {limit['each_now']}"
        return text, f"{mean:.3f}, worst {worst.ratios[baseline]:.3f} ({worst.case})", passed

    return rule


def _geomean_of(dtypes: tuple[str, ...], baseline: str) -> Rule:
    """Judge products of some dtypes together; hard cases have a bar of their own for each."""

    def rule(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
        chosen = [row for row in rows if row.case.split("/")[1] in dtypes]
        if not chosen:
            raise LookupError(", ".join(dtypes))
        ratios = {row.case: row.ratios[baseline] for row in chosen}
        mean = exp(sum(map(log, ratios.values())) / len(ratios))
        least = {
            case: _HARD_CASE if _is_hard(case) else limit.get("each_now", 0) for case in ratios
        }
        worst = min(ratios, key=lambda case: ratios[case] - least[case])
        passed = mean >= limit["geomean_now"] and ratios[worst] >= least[worst]
        text = f"geomean >= {limit['geomean_now']}"
        text += f", each >= {limit['each_now']}" if "each_now" in limit else ""
        return text, f"{mean:.3f}, worst {ratios[worst]:.3f} ({worst})", passed

    return rule


_HARD_CASE = 0.80


def _is_hard(case: str) -> bool:
    """Whether a product has at most 16 rows, or rows that start at any element."""
    m, n, _ = map(int, case.split("/")[2].split("x"))
    return m <= 16 or n % 2 == 1


_WIDE_HEADS = 1.03  # of cuDNN, each case of heads of 128 elements without a causal mask


def _forward_attention(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
    """Judge attention forward against cuDNN."""
    ratios = {row.case: row.ratios["cudnn"] for row in rows if "/fwd/" in row.case}
    mean = exp(sum(map(log, ratios.values())) / len(ratios))

    def least(case: str) -> float:
        name, _, shape, *_ = case.split("/")
        is_wide = name == "attention" and shape.endswith("x128")
        return _WIDE_HEADS if is_wide else float(limit["each_now"])

    worst = min(ratios, key=lambda case: ratios[case] - least(case))
    passed = mean >= limit["geomean_now"] and ratios[worst] >= least(worst)
    text = f"geomean >= {limit['geomean_now']}, each >= {limit['each_now']}"
    return text, f"{mean:.3f}, worst {ratios[worst]:.3f} ({worst})", passed


def _gradients(*, unordered: bool) -> Rule:
    """Judge gradients of attention with sums in any order, or in one; heads of 64 and 128."""

    def rule(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
        ratios = []
        for row in rows:
            name, _, shape, direction, _ = row.case.split("/")
            is_kind = direction == "bwd" and name.endswith(".unordered") == unordered
            if is_kind and shape.endswith(("x64", "x128")):
                ratios.append(row.ratios["cudnn"])
        if not ratios:
            kind = f"gradients with unordered={unordered}"
            raise LookupError(kind)
        mean = exp(sum(map(log, ratios)) / len(ratios))
        return f"geomean >= {limit['geomean_now']}", f"{mean:.3f}", mean >= limit["geomean_now"]

    return rule


def _odd_lengths(rows: list[Row], limit: Limit) -> tuple[str, str, bool]:
    """Judge the speed at lengths that no tile divides, against the next length that one does."""
    speeds: dict[tuple[str, int], float] = {}
    for row in rows:
        name, dtype, shape, *rest = row.case.split("/")
        *outer, length, dim = map(int, shape.split("x"))
        speeds[f"{name} {dtype} {outer} {dim} {rest}", length] = length * length / row.ours
    found = {}
    for (kind, length), speed in speeds.items():
        whole = -(-length // 128) * 128
        if length != whole and (kind, whole) in speeds:
            found[kind, length] = speed / speeds[kind, whole]
    if not found:
        kind = "a length that no tile divides beside one that it does"
        raise LookupError(kind)
    worst = min(found, key=lambda key: found[key])
    text = f"{found[worst]:.3f} ({worst[0]}, length {worst[1]})"
    return f"each >= {limit['now']}", text, found[worst] >= limit["now"]


RULES: dict[tuple[str, str], Rule] = {
    ("attention", "fwd_vs_cudnn"): _forward_attention,
    ("attention", "bwd_vs_cudnn"): _gradients(unordered=True),
    ("attention", "bwd_deterministic_vs_cudnn"): _gradients(unordered=False),
    ("attention", "odd_length_fraction"): _odd_lengths,
    ("launch", "four_arguments_us"): _at_most(
        "four_arguments", below=("torch.eager", "triton", "cuda.core")
    ),
    ("launch", "torch_arguments_us"): _at_most("torch_arguments"),
    ("launch", "two_tensor_maps_us"): _at_most("two_tensor_maps"),
    ("coldstart", "first_result_s"): _at_most("first_result"),
    ("coldstart", "import_s"): _at_most("import"),
    ("coldstart", "first_load_of_a_kernel_ms"): _at_most("first_load"),
    ("factory", "wheel_mb"): _at_most("wheel"),
    ("factory", "cold_bundle_core_seconds"): _at_most("bundle"),
    ("factory", "warm_make_wheel_s"): _at_most("make_wheel"),
    ("compile", "vecadd_vs_triton"): _at_least("vecadd/f32/1024/-/cold", "triton"),
    ("compile", "matmul_vs_triton"): _at_least("matmul/f16/128x128x64/-/cold", "triton"),
    ("mma", "bf16_4096_vs_cublas"): _at_least("matmul/bf16/4096x4096x4096", "cublas"),
    ("gemm", "bf16_f16_vs_cublas"): _geomean_of(("bf16", "f16"), "cublas"),
    ("gemm", "tf32_vs_cublas"): _geomean_of(("tf32",), "cublas"),
    ("gemm", "f32_ieee_vs_cublas"): _geomean_of(("f32",), "cublas"),
    ("gemm", "fp8_vs_scaled_mm"): _geomean_of(("f8e4m3",), "torch.scaled_mm"),
    ("cross-entropy", "fwdbwd_vs_torch_compile"): _each_at_least("torch.compile", key="each_now"),
    ("rowops", "fraction_of_copy"): _each_at_least("copy"),
    ("rowops", "vs_torch_compile"): _geomean_and_each("torch.compile"),
}
