"""`tilewright dev show KERNEL --stage STAGE`: one stage of a kernel, as text.

A declared kernel has its signatures from the signature files; for any other, `FILE.py:NAME`, types
and constants are given with `--types`.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from tilewright.abi.dtypes import BY_NAME, DType
from tilewright.abi.signature import Constexpr, ConstexprValue, KernelSignature, declared
from tilewright.abi.target import Target
from tilewright.errors import FormatError, UsageError
from tilewright.language.kernel import Kernel
from tilewright.language.parameters import NO_DEFAULT
from tilewright_compiler.driver import show
from tilewright_compiler.snapshots import STAGES
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import (
    WARPS,
    DeclaredEntry,
    load_kernel,
    read_signatures,
    select_entries,
)
from tilewright_release.targets import read_targets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "kernel", help="as in a signature file, or its name alone; with --types FILE.py:NAME"
    )
    parser.add_argument("--stage", choices=STAGES, default="tile", help="tile by default")
    parser.add_argument("--signature", default="", help="text that the signature must contain")
    parser.add_argument(
        "--target",
        type=Target.parse,
        help="show the stages from `scheduled` on as for this target alone",
    )
    parser.add_argument("--list", action="store_true", help="list the declared signatures instead")
    parser.add_argument(
        "--types",
        metavar="NAME=TYPE",
        nargs="+",
        default=[],
        help="of a kernel that is not declared: x=*f32 n=i64 BLOCK=64, for each parameter",
    )
    parser.add_argument(
        "--general", action="store_true", help="with --types: assume nothing of the arguments"
    )
    parser.add_argument("--num-warps", type=int, default=4, help="with --types: 4 by default")
    parser.add_argument("--num-stages", type=int, default=3, help="with --types: 3 by default")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Print the stage of the first signature that fits."""
    if arguments.types:
        kernel = _kernel_of_file(arguments.kernel)
        signatures = [_signature(kernel, arguments)]
    else:
        entries = choose(_declared(arguments.kernel, checkout), arguments.signature)
        kernel, signatures = entries[0].kernel, [entry.signature for entry in entries]
    if arguments.list:
        print("\n".join(map(str, signatures)))
        return 0
    targets = (
        (arguments.target,)
        if arguments.target
        else tuple(row.target for row in read_targets(checkout.targets).rows)
    )
    print(show(kernel, signatures[0], arguments.stage, targets=targets))
    return 0


def _declared(reference: str, checkout: Checkout) -> list[DeclaredEntry]:
    """Return the declared entries of a kernel; raises UsageError where there are none."""
    try:
        return select_entries(read_signatures(checkout), reference)
    except (FormatError, UsageError) as error:
        if ".py" not in reference:
            raise
        msg = (
            f"{reference} is declared in no signature file here; give the types of its parameters "
            "as in FILE.py:NAME --types x=*f32 n=i64 BLOCK=64"
        )
        raise UsageError(msg) from error


def _kernel_of_file(reference: str) -> Kernel:
    """Import the kernel of `FILE.py:NAME`, a path from the working directory."""
    place, _, name = reference.rpartition(":")
    if not place.endswith(".py"):
        msg = f"{reference!r} names no kernel of a file; with --types write FILE.py:NAME"
        raise UsageError(msg)
    path = Path(place).resolve()
    sys.path.insert(0, str(path.parent))  # as of a program, for what it imports beside it
    return load_kernel(f"{path.name}:{name}", root=path.parent)


def _signature(kernel: Kernel, arguments: argparse.Namespace) -> KernelSignature:
    given: dict[str, str] = {}
    for word in arguments.types:
        name, _, text = word.partition("=")
        if name in given:
            msg = f"--types gives {name} twice, {given[name]} and {text}"
            raise UsageError(msg)
        given[name] = text
    if arguments.num_warps not in WARPS:
        msg = f"--num-warps is {arguments.num_warps}; a program has 1, 2, 4, 8, 16 or 32 warps"
        raise UsageError(msg)
    declaration: dict[str, DType | tuple[DType] | Constexpr] = {}
    for parameter in kernel.parameters:
        text = given.pop(parameter.name, None)
        if parameter.is_constexpr:
            declaration[parameter.name] = Constexpr(
                _constant(parameter.name, text, parameter.default)
            )
            continue
        dtype = BY_NAME.get((text or "").removeprefix("*"))
        if text is None or dtype is None:
            msg = (
                f"--types gives {parameter.name} of {kernel.name} {text or 'nothing'}; it is one "
                f"of {', '.join(BY_NAME)}, with * before it for a pointer"
            )
            raise UsageError(msg)
        declaration[parameter.name] = (dtype,) if text.startswith("*") else dtype
    if given:
        known = ", ".join(parameter.name for parameter in kernel.parameters)
        msg = f"--types names {', '.join(given)}; {kernel.name} has the parameters {known}"
        raise UsageError(msg)
    return declared(
        declaration,
        rule=kernel.rule,
        specialization="general" if arguments.general else "fast",
        num_warps=arguments.num_warps,
        num_stages=arguments.num_stages,
    )


def _constant(name: str, text: str | None, default: object) -> ConstexprValue:
    """Read a Python literal or a dtype; what is neither is a string."""
    if text is None:
        if default is NO_DEFAULT:
            msg = f"--types gives {name} no value, and it has no default"
            raise UsageError(msg)
        return default  # type: ignore[return-value]  # what a kernel takes as a default
    if text in BY_NAME:
        return BY_NAME[text]
    try:
        value: ConstexprValue = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return value


def choose(entries: list[DeclaredEntry], text: str) -> list[DeclaredEntry]:
    """Return the entries whose signature contains `text`; raises UsageError when none does."""
    found = [entry for entry in entries if text in str(entry.signature)]
    if not found:
        known = "\n  ".join(str(entry.signature) for entry in entries)
        msg = f"no signature of {entries[0].reference} contains {text!r}; there are\n  {known}"
        raise UsageError(msg)
    return found
