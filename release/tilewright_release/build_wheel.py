"""`tilewright dev build-wheel`: bundle, build, check; the result is in `dist/`.

The launcher is compiled by `zig cc` against glibc 2.28, whatever the machine has, so that any Linux
builds manylinux_2_28 wheels without a container, for x86_64 and for aarch64. Nothing else in a
wheel is machine code for the host, so there is nothing for auditwheel to repair, and the tag is
given to the build and checked afterwards. The built wheel gets its provenance and its bill of
materials. Timestamps are fixed: same source, same bytes.
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
from tilewright_release.provenance import FILE_NAME as PROVENANCE
from tilewright_release.provenance import gather
from tilewright_release.sbom import FOLDER as SBOMS
from tilewright_release.sbom import make_sbom, read_components
from tilewright_release.seal import seal
from tilewright_release.wheel_file import WheelFile, read_limits

# The start of 2026. The time of the commit would give each commit another wheel.
_EPOCH = "1767225600"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    bundle.add_arguments(parser)
    parser.add_argument("--python", type=Path, help="as for check-wheel")
    parser.add_argument(
        "--machine",
        action="append",
        default=[],
        help="processor to build for, once for each (x86_64, aarch64); by default this one's",
    )
    parser.add_argument("--sdist", action="store_true", help="build the sdist too")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Make the bundle, build the wheels from it and check them."""
    if arguments.output is not None:
        msg = "the wheel takes its bundle from build/bundle/; leave --output out"
        raise ReleaseError(msg)
    if arguments.shard is not None:
        msg = (
            "a shard is no bundle: build each with `bundle-kernels --shard`, then --merge them here"
        )
        raise ReleaseError(msg)
    # Before the bundle, which takes minutes.
    tools = ("abi3info", "auditwheel", "build", "elftools", "ziglang")
    require_tools(tools, purpose="building and checking a wheel")
    machines = arguments.machine or [platform.machine()]
    for machine in machines:
        _check_machine(machine, checkout)
    bundle.run(arguments, checkout)
    built = []
    for machine in machines:
        wheel = build_wheel(checkout, machine=machine)
        check_wheel(wheel, checkout, python=arguments.python)
        built.append(wheel)
    if arguments.sdist:
        built.append(build_sdist(checkout))
    for path in built:
        print(f"built {path} ({path.stat().st_size / 1e6:.2f} MB)")
    return 0


def build_wheel(checkout: Checkout, *, machine: str = "") -> Path:
    """Build the wheel of the checkout with the bundle in it and return its path in dist/.

    `machine` is the processor it is for, this one's by default. Raises ReleaseError with the end of
    the build's output when it fails.
    """
    machine = machine or platform.machine()
    _check_machine(machine, checkout)
    limits = read_limits(checkout.wheel_limits)
    glibc = ".".join(map(str, limits.glibc))
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{glibc}"
    tag = f"{limits.tag}_{machine}"
    options = [
        f"-Cwheel.tags={tag}",
        # Not the folder of `pip install`, which may have used another compiler.
        f"-Cbuild-dir=build/wheel-{machine}",
    ]
    dist = _dist(checkout)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=dist) as folder:
        _build(checkout, "--wheel", folder=folder, options=options, variables={"CC": compiler})
        (built,) = Path(folder).glob("*.whl")
        file = WheelFile(built)
        made = gather(
            checkout.root,
            name=file.name,
            version=file.version,
            machine=machine,
            manifest=file.manifest() if file.has_bundle else None,
        ).to_bytes()
        seal(built, {PROVENANCE: made})
        file = WheelFile(built)
        bill = make_sbom(
            file.contents,
            dist_info=file.dist_info,
            tag=tag,
            components=read_components(checkout.components),
            epoch=int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH)),
        )
        seal(built, {f"{SBOMS}/{file.name}.spdx.json": bill})
        return built.replace(dist / built.name)


def build_sdist(checkout: Checkout) -> Path:
    """Build the sdist and return its path in dist/; it has no bundle, so that it is for everyone.

    Raises ReleaseError with the end of the build's output when it fails, or when it is too large.
    """
    dist = _dist(checkout)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=dist) as folder:
        _build(checkout, "--sdist", folder=folder, options=[], variables={})
        (built,) = Path(folder).glob("*.tar.gz")
        size, limit = built.stat().st_size, read_limits(checkout.wheel_limits).sdist_bytes
        if size > limit:
            msg = f"{built.name} has {size} bytes, the limit is {limit}: what got into it?"
            raise ReleaseError(msg)
        return built.replace(dist / built.name)


def _check_machine(machine: str, checkout: Checkout) -> None:
    machines = read_limits(checkout.wheel_limits).machines
    if machine not in machines:
        msg = f"there is no wheel for {machine!r}; wheels/limits.toml has {', '.join(machines)}"
        raise ReleaseError(msg)


def _dist(checkout: Checkout) -> Path:
    dist = checkout.root / "dist"
    dist.mkdir(exist_ok=True)
    return dist


def _build(
    checkout: Checkout, form: str, *, folder: str, options: list[str], variables: dict[str, str]
) -> None:
    command = [
        *(sys.executable, "-m", "build", form, "--no-isolation", *options),
        *("--outdir", folder, str(checkout.root)),
    ]
    environment = {"SOURCE_DATE_EPOCH": _EPOCH, **os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-4000:]
        msg = f"the {form.removeprefix('--')} does not build: {output}"
        raise ReleaseError(msg)
