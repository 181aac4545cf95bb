"""`tilewright dev COMMAND`: the commands of the factory, one module each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tilewright.errors import TilewrightError
from tilewright_release import bundle
from tilewright_release.checkout import Checkout, find_checkout


class _Command(NamedTuple):
    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Checkout], int]


_COMMANDS = (
    _Command(
        "bundle-kernels",
        "compile the declared kernels into build/bundle/",
        bundle.add_arguments,
        bundle.run,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, which for an error is that of the error's family."""
    parser = argparse.ArgumentParser(prog="tilewright dev", description=__doc__)
    parser.add_argument(
        "--root", type=Path, help="a checkout; the one around this folder if absent"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_arguments(
            commands.add_parser(command.name, help=command.summary, description=command.summary)
        )
    arguments = parser.parse_args(argv)
    (chosen,) = (command for command in _COMMANDS if command.name == arguments.command)
    try:
        return chosen.run(arguments, find_checkout((arguments.root or Path.cwd()).resolve()))
    except TilewrightError as error:
        print(f"tilewright dev {chosen.name}: {error}", file=sys.stderr)
        return error.exit_code
