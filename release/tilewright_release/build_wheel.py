"""`tilewright dev build-wheel`: bundle, build, check; the result is in `dist/`.

The launcher is compiled by `zig cc` against glibc 2.28, whatever the machine has, so that any Linux
builds a manylinux_2_28 wheel without a container. Nothing else in the wheel is machine code for the
host, so there is nothing for auditwheel to repair, and the tag is given to the build and checked
afterwards. Timestamps are fixed: same source, same bytes.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from tilewright.errors import ReleaseError
from tilewright_release import bundle
from tilewright_release.check_wheel import check_wheel
from tilewright_release.checkout import Checkout
from tilewright_release.dev_tools import require_tools
from tilewright_release.wheel_file import read_limits

# The start of 2026. The time of the commit would give each commit another wheel.
_EPOCH = "1767225600"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    bundle.add_arguments(parser)
    parser.add_argument("--python", type=Path, help="as for check-wheel")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Make the bundle, build the wheel from it and check the wheel."""
    if arguments.output is not None:
        msg = "the wheel takes its bundle from build/bundle/; leave --output out"
        raise ReleaseError(msg)
    # Before the bundle, which takes minutes.
    tools = ("build", "ziglang", "elftools", "auditwheel")
    require_tools(tools, purpose="building and checking a wheel")
    bundle.run(arguments, checkout)
    wheel = build_wheel(checkout)
    check_wheel(wheel, checkout, python=arguments.python)
    print(f"built {wheel} ({wheel.stat().st_size / 1e6:.2f} MB)")
    return 0


def build_wheel(checkout: Checkout) -> Path:
    """Build the wheel of the checkout with the bundle in it and return its path in dist/.

    Raises ReleaseError with the end of the build's output when it fails.
    """
    limits = read_limits(checkout.wheel_limits)
    machine = platform.machine()
    environment = dict(os.environ)
    environment.setdefault("SOURCE_DATE_EPOCH", _EPOCH)
    glibc = ".".join(map(str, limits.glibc))
    environment["CC"] = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{glibc}"
    dist = checkout.root / "dist"
    dist.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=dist) as folder:
        command = [
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            f"-Cwheel.tags={limits.tag}_{machine}",
            # Not the folder of `pip install`, which may have used another compiler.
            "-Cbuild-dir=build/wheel",
            *("--outdir", folder, str(checkout.root)),
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            msg = f"the wheel does not build: {(done.stdout + done.stderr).strip()[-4000:]}"
            raise ReleaseError(msg)
        (built,) = Path(folder).glob("*.whl")
        return built.replace(dist / built.name)
