"""The gate: recorded results against `goals.toml`.

A goal is judged when results of its suite are recorded; a suite without results fails unless no
case of it exists yet (`PENDING`, with the reason). Each rule says which rows it reads and how.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.record import Row

GOALS = Path(__file__).parent / "goals.toml"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit with what was found; `passed` is None where nothing measures it yet."""

    goal: str
    limit: str
    found: str
    passed: bool | None


Judge = Callable[[list[Row], dict[str, Any]], tuple[str, str, bool]]


def judge(results: dict[str, list[Row]]) -> int:
    """Print a verdict a goal and return 0 if none failed."""
    goals: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(GOALS.read_text())
    verdicts = []
    for suite, limits in goals.items():
        for name, limit in limits.items():
            rule = RULES.get((suite, name))
            rows = results.get(suite, [])
            if rule is None or not rows:
                verdicts.append(Verdict(f"{suite}.{name}", "", "not measured yet", None))
                continue
            text, found, passed = rule(rows, limit)
            verdicts.append(Verdict(f"{suite}.{name}", text, found, passed))
    wrong = [row.case for rows in results.values() for row in rows if not row.checked]
    for verdict in verdicts:
        state = {True: "pass", False: "FAIL", None: "open"}[verdict.passed]
        print(f"{state}  {verdict.goal:52s} {verdict.limit:28s} {verdict.found}")
    for case in wrong:
        print(f"FAIL  {case}: the result is wrong, its time does not count")
    failed = sum(verdict.passed is False for verdict in verdicts) + len(wrong)
    print(f"{sum(v.passed is True for v in verdicts)} passed, {failed} failed")
    return 1 if failed else 0


def _at_most(case: str) -> Judge:
    def rule(rows: list[Row], limit: dict[str, Any]) -> tuple[str, str, bool]:
        (row,) = (row for row in rows if row.case.startswith(case))
        return (
            f"<= {limit['now']} {row.unit}",
            f"{row.ours:.3f} {row.unit}",
            row.ours <= limit["now"],
        )

    return rule


def _each_at_least(baseline: str) -> Judge:
    def rule(rows: list[Row], limit: dict[str, Any]) -> tuple[str, str, bool]:
        worst = min(rows, key=lambda row: row.ratios[baseline])
        ratio = worst.ratios[baseline]
        found = f"worst {ratio:.3f} ({worst.case})"
        return f"each >= {limit['now']}", found, ratio >= limit["now"]

    return rule


def _geomean_and_each(baseline: str) -> Judge:
    def rule(rows: list[Row], limit: dict[str, Any]) -> tuple[str, str, bool]:
        ratios = [row.ratios[baseline] for row in rows]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        worst = min(rows, key=lambda row: row.ratios[baseline])
        passed = mean >= limit["geomean_now"] and worst.ratios[baseline] >= limit["each_now"]
        text = f"geomean >= {limit['geomean_now']}, each >= {limit['each_now']}"
        return text, f"{mean:.3f}, worst {worst.ratios[baseline]:.3f} ({worst.case})", passed

    return rule


RULES: dict[tuple[str, str], Judge] = {
    ("launch", "four_arguments_us"): _at_most("four_arguments"),
    ("launch", "torch_arguments_us"): _at_most("torch_arguments"),
    ("launch", "two_tensor_maps_us"): _at_most("two_tensor_maps"),
    ("coldstart", "first_result_s"): _at_most("first_result"),
    ("coldstart", "import_s"): _at_most("import"),
    ("coldstart", "first_load_of_a_kernel_ms"): _at_most("first_load"),
    ("rowops", "fraction_of_copy"): _each_at_least("copy"),
    ("rowops", "vs_torch_compile"): _geomean_and_each("torch.compile"),
}
