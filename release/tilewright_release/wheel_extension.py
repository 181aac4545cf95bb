"""The launcher in a wheel, as an ELF file: for which processor and systems, and what it may do.

Read from its headers alone, so that a wheel for another processor is judged here too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.errors import ReleaseError

# pyelftools is of the extra `dev`; commands that judge no wheel do without, so functions import it.
if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}

# A launch starts no program and opens no connection: the launcher cannot, if it knows no function
# that does.
_FORBIDDEN = frozenset(
    {
        *("execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "fexecve"),
        *("fork", "vfork", "posix_spawn", "posix_spawnp", "system", "popen"),
        *("socket", "connect", "bind", "getaddrinfo"),
    }
)


@dataclass(frozen=True, slots=True)
class Extension:
    """What a shared object says of itself. `glibc` is the highest version of its symbols."""

    machine: str
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]
    glibc: tuple[int, ...]
    undefined: frozenset[str]
    has_debug: bool


def check_extension(
    contents: Mapping[str, bytes],
    *,
    machine: str,
    python: tuple[int, int],
    glibc: tuple[int, ...],
    needed: tuple[str, ...],
) -> str:
    """Check the one extension of a wheel for `machine` and return a sentence about it.

    It must use nothing of Python but the stable ABI of `python`, need only the libraries `needed`
    and symbols up to `glibc`, search no folder of its own, know no function that starts a process,
    and carry no debug information, which names folders. Raises ReleaseError.
    """
    names = [name for name in contents if name.endswith(".so") or ".so." in name]
    if len(names) != 1:
        msg = f"the wheel must have exactly one extension, it has {len(names)}: {', '.join(names)}"
        raise ReleaseError(msg)
    (name,) = names
    found = read_extension(contents[name], name)
    problems = []
    if not name.endswith(".abi3.so"):
        problems.append("is for one Python version; its name must end in .abi3.so")
    unstable = beyond_stable_abi(found.undefined, python)
    if unstable:
        problems.append(f"uses {', '.join(unstable)}, not in the stable ABI of {_dotted(python)}")
    if found.machine != _MACHINES.get(machine):
        problems.append(f"is for {found.machine}, the wheel is for {machine}")
    foreign = sorted(set(found.needed) - set(needed))
    if foreign:
        problems.append(f"needs {', '.join(foreign)}; allowed: {', '.join(needed)}")
    if found.glibc > glibc:
        problems.append(f"needs GLIBC_{_dotted(found.glibc)}, the tag allows {_dotted(glibc)}")
    if found.run_paths:
        problems.append(f"searches libraries in {', '.join(found.run_paths)}")
    starts = sorted(found.undefined & _FORBIDDEN)
    if starts:
        problems.append(f"calls {', '.join(starts)}: a launch starts nothing and connects nowhere")
    if found.has_debug:
        problems.append("has debug information; link it with -s")
    if problems:
        msg = f"extension {name} " + "; ".join(problems)
        raise ReleaseError(msg)
    return f"{name} needs {', '.join(found.needed)}, at most GLIBC_{_dotted(found.glibc)}"


def read_extension(data: bytes, name: str) -> Extension:
    """Read the headers of a shared object; raises ReleaseError when it is none."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection
    from elftools.elf.sections import SymbolTableSection

    needed: list[str] = []
    run_paths: list[str] = []
    versions: list[tuple[int, ...]] = []
    undefined: set[str] = set()
    try:
        elf = ELFFile(io.BytesIO(data))
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                # The class gives each kind of tag an attribute of its own name.
                needed += [vars(tag)["needed"] for tag in section.iter_tags("DT_NEEDED")]
                run_paths += [vars(tag)["rpath"] for tag in section.iter_tags("DT_RPATH")]
                run_paths += [vars(tag)["runpath"] for tag in section.iter_tags("DT_RUNPATH")]
            elif isinstance(section, GNUVerNeedSection):
                for _, auxiliaries in section.iter_versions():
                    names = [auxiliary.name for auxiliary in auxiliaries]
                    versions += [version(n[6:]) for n in names if n.startswith("GLIBC_")]
            elif isinstance(section, SymbolTableSection):
                undefined |= {
                    symbol.name
                    for symbol in section.iter_symbols()
                    if symbol["st_shndx"] == "SHN_UNDEF"
                }
    except (ELFError, ValueError) as error:
        msg = f"extension {name} is no ELF file: {error}"
        raise ReleaseError(msg) from error
    return Extension(
        machine=str(elf["e_machine"]),
        needed=tuple(needed),
        run_paths=tuple(run_paths),
        glibc=max(versions, default=(0,)),
        undefined=frozenset(undefined),
        has_debug=_has_debug(elf),
    )


def beyond_stable_abi(symbols: frozenset[str], python: tuple[int, int]) -> list[str]:
    """Return those of Python's symbols that are not in the stable ABI of `python`."""
    from abi3info import DATAS, FUNCTIONS
    from abi3info.models import PyVersion

    stable = {
        symbol.name
        for table in (FUNCTIONS, DATAS)
        for symbol, item in table.items()
        if item.added <= PyVersion(*python)
    }
    return sorted(name for name in symbols if name.startswith(("Py", "_Py")) and name not in stable)


def version(text: str) -> tuple[int, ...]:
    """Return a dotted version as numbers."""
    return tuple(int(part) for part in text.split("."))


def _has_debug(elf: ELFFile) -> bool:
    return any(section.name.startswith(".debug_") for section in elf.iter_sections())


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
