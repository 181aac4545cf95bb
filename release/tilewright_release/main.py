"""`tilewright dev COMMAND`: the commands of the factory, one module each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tilewright.errors import ReleaseError, TilewrightError
from tilewright_release import (
    audit,
    build_wheel,
    bundle,
    check_wheel,
    coverage,
    release_check,
    show,
    sign,
    validate,
    verify,
    why,
)
from tilewright_release.checkout import Checkout, find_checkout, of_package
from tilewright_release.tuning.command import main as tune

__all__ = ["main", "tune"]


class _Module(Protocol):
    """A module of this package that is a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, checkout: Checkout) -> int: ...


_COMMANDS: dict[str, tuple[_Module, str]] = {
    "bundle-kernels": (bundle, "compile the declared kernels into build/bundle/"),
    "build-wheel": (build_wheel, "bundle, build the wheel into dist/ and check it"),
    "check-wheel": (check_wheel, "judge a wheel: tags, contents, import, resolution"),
    "sign": (sign, "sign wheels and sdists with a key file"),
    "coverage": (coverage, "hold the bundle against what is declared, by target"),
    "audit": (audit, "check that declarations, budgets, kernels and pins fit together"),
    "verify": (verify, "build a sample of the bundle again and compare the bytes"),
    "release-check": (release_check, "the checklist of a release: run every step of it"),
    "validate": (validate, "run every bundled kernel on this GPU and compare"),
    "show": (show, "print one stage of a declared kernel"),
    "why": (why, "say why a kernel's key is not the bundled one"),
}

# What other projects use on their kernels too.
_FOR_PACKAGES = ("bundle-kernels", "coverage", "verify", "show", "why")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, which for an error is that of the error's family."""
    parser = argparse.ArgumentParser(prog="tilewright dev", description=__doc__)
    parser.add_argument(
        "--root", type=Path, help="a checkout; the one around this folder if absent"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        if name in _FOR_PACKAGES:
            command.add_argument(
                "--package", metavar="NAME", help="the import package of another project's kernels"
            )
    try:
        arguments = parser.parse_args(argv)
    except TilewrightError as error:
        # A type of an option, such as Target.parse, refuses its word.
        parser.error(str(error))
    module, _ = _COMMANDS[arguments.command]
    try:
        checkout = _checkout(arguments)
        if getattr(arguments, "package", None):
            checkout = of_package(checkout, arguments.package)
        return module.run(arguments, checkout)
    except TilewrightError as error:
        print(f"tilewright dev {arguments.command}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # of a file or folder that was named, or of the working directory
        print(f"tilewright dev {arguments.command}: {error}", file=sys.stderr)
        return ReleaseError.exit_code


def _checkout(arguments: argparse.Namespace) -> Checkout:
    root = (arguments.root or Path.cwd()).resolve()
    try:
        return find_checkout(root)
    except ReleaseError:
        # A kernel of a file whose types are given is shown anywhere, and without them told so.
        if getattr(arguments, "types", None) or ".py" in getattr(arguments, "kernel", ""):
            return Checkout(root)
        raise
