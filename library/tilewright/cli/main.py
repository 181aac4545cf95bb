"""The `tilewright` command: runs a subcommand and turns typed errors into exit codes.

What its streams cannot take is no reason to fail: a closed one is replaced by the null device, and
a name of a file that the encoding does not have is printed with escapes.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

from tilewright import __version__
from tilewright.cli import doctor, explain
from tilewright.errors import TilewrightError, ToolchainError

_INTERRUPTED = 130  # as a shell reports SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or that of the error's family."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # These have their own parsers, so their words are handed over unread.
        if words[:1] in (["dev"], ["tune"]):
            return _hand_over(words[0], words[1:])
        parsed = _parser().parse_args(words)
        code: int = parsed.run(parsed)
        if sys.stdout is not None:
            sys.stdout.flush()
    except TilewrightError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _discard_output()  # the reader has seen enough
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        print(f"tilewright: what was written is not whole: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _open_closed_streams() -> None:
    """Open what is closed, or the next file that is opened gets what children print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _discard_output() -> None:
    """Let the rest go nowhere: a second failure at exit would print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="GPU kernels compiled ahead of time and shipped in the wheel.",
        epilog="Exit codes: 0 all is well; 2 wrong usage or kernel; 6 damaged files; 7 driver; "
        "8 no binary fits; others as in tilewright.errors.",
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor.add_command(commands)
    explain.add_command(commands)
    commands.add_parser(
        "tune",
        help="time which configurations are fastest on this GPU, and use them from then on",
        add_help=False,
    )
    commands.add_parser(
        "dev",
        help="commands of the factory, such as bundle-kernels and build-wheel",
        add_help=False,
    )
    return parser


def _hand_over(command: str, words: list[str]) -> int:
    try:
        from tilewright_release.main import main as dev
        from tilewright_release.main import tune
    except ModuleNotFoundError as error:
        msg = (
            f"`tilewright {command}` needs the module {error.name}, which is not installed; "
            "install with `pip install 'tilewright[dev]'`"
        )
        raise ToolchainError(msg) from error
    return dev(words) if command == "dev" else tune(words)


if __name__ == "__main__":
    sys.exit(main())
