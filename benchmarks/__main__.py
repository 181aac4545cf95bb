"""`python -m benchmarks run SUITE` measures, `python -m benchmarks gate` judges what is recorded.

run SUITE [--out DIR]      check, then time one suite on this machine's GPU; writes DIR/SUITE.json
gate [--results DIR ...]   compare recorded results with goals.toml; exit code 0 is pass
table [--results DIR ...]  print recorded results
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import gate
from benchmarks.record import load_results, print_table, write_results

SUITES = (
    "attention", "coldstart", "compile", "cross-entropy", "factory", "gemm", "launch", "mma",
    "rowops",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results"
# What is judged: a GPU's results, and those of suites that need none.
_FOLDERS = [RESULTS / "nvidia-h200", RESULTS / "none"]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="check and time one suite on this machine")
    run.add_argument("suite", choices=SUITES)
    run.add_argument("--out", type=Path, default=None, help="folder for SUITE.json")
    run.add_argument("--commit", default="", help="what is measured, where git cannot tell")
    for name, text in (("gate", "judge recorded results"), ("table", "print recorded results")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--results", type=Path, nargs="+", default=_FOLDERS)
    arguments = parser.parse_args(argv)
    if arguments.command == "run":
        suite = importlib.import_module(f"benchmarks.suites.{arguments.suite.replace('-', '_')}")
        rows, versions = suite.measure()
        path = write_results(
            arguments.suite, rows, versions, folder=arguments.out, commit=arguments.commit
        )
        print_table(arguments.suite, rows)
        print(f"written to {path}")
        return 0 if all(row.checked for row in rows) else 1
    results = {
        suite: rows for folder in arguments.results for suite, rows in load_results(folder).items()
    }
    if arguments.command == "table":
        for suite_name, rows in results.items():
            print_table(suite_name, rows)
        return 0
    return gate.judge(results)


if __name__ == "__main__":
    sys.exit(main())
