"""Every exception that Tilewright raises, and the source position that the compile errors carry.

    TilewrightError
    ├── CompileError             a kernel is wrong; shows the user's line
    │   ├── KernelSyntaxError    Python that the tile language does not have
    │   ├── KernelTypeError      operand types do not fit (also a TypeError)
    │   ├── KernelValueError     a compile-time value is not allowed (also a ValueError)
    │   └── KernelNameError      a name is not defined or no capture (also a NameError)
    ├── InternalCompilerError    our fault: some stage refused a correct kernel
    │   ├── AssemblyError        ptxas refused PTX; carries what it says of which lines
    │   └── ScheduleError        scheduled IR that is wrong on a device: a race, a missing barrier
    ├── UnsupportedTargetError   no toolchain of ours knows the target, or it lacks a feature
    ├── ToolchainError           the compiler's tools are missing or of the wrong version
    ├── InstallationError        the wheel's extension is missing or damaged (also an ImportError)
    ├── FormatError              a manifest, pack or data file cannot be read
    │   └── CorruptBlobError     bytes differ from the recorded sha256
    ├── DriverError              a CUDA driver call failed; carries the driver's code
    │   ├── NoDriverError        no driver, or no device
    │   └── OutOfMemoryError     no memory left on the device (also a MemoryError)
    ├── OutsideKernelError       plain Python called the tile language (also a RuntimeError)
    ├── SettingsError            a value that an environment variable may not have
    ├── UsageError               a word of the command line names nothing, or cannot be read
    ├── ResolveError             no candidate can serve this launch; prints the whole trace
    ├── ArgumentError            arguments do not fit the kernel or operation (also a TypeError)
    │   ├── ArgumentValueError   a number outside of what is allowed (also a ValueError)
    │   └── IndexRangeError      an index that names no element (also an IndexError)
    ├── LaunchError              the device cannot run the launch (also a ValueError)
    ├── InterpreterError         a kernel misbehaved on the CPU
    │   └── OutOfBoundsError     an unmasked access outside all arguments (also an IndexError)
    └── ReleaseError             the factory refuses: budget, wheel check, coverage

`exit_code` is what the command line returns for the family.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import ClassVar

from tilewright.lazy_dataclass import dataclass

__all__ = [
    "ArgumentError",
    "ArgumentValueError",
    "AssemblyError",
    "CompileError",
    "CorruptBlobError",
    "DriverError",
    "FormatError",
    "IndexRangeError",
    "InstallationError",
    "InternalCompilerError",
    "InterpreterError",
    "KernelNameError",
    "KernelSyntaxError",
    "KernelTypeError",
    "KernelValueError",
    "LaunchError",
    "NoDriverError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "OutsideKernelError",
    "ReleaseError",
    "ResolveError",
    "ScheduleError",
    "SettingsError",
    "SourceLocation",
    "TilewrightError",
    "ToolchainError",
    "UnsupportedTargetError",
    "UsageError",
]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A span of a user's source: lines count from 1, columns from 0, `end_column` is exclusive."""

    file: str
    line: int
    column: int
    end_column: int
    function: str

    def render(self) -> str:
        """Return `file:line:column` with the source line and a caret under the span."""
        head = f"{self.file}:{self.line}:{self.column + 1}: in {self.function}"
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return head
        width = max(1, min(self.end_column, len(text)) - self.column)
        return f"{head}\n    {text}\n    {' ' * self.column}{'^' * width}"


class TilewrightError(Exception):
    """Base of every exception of this package."""

    exit_code: ClassVar[int] = 1


class CompileError(TilewrightError):
    """A kernel that cannot be compiled, with the user's position.

    `locations[0]` is the offending expression, the rest is the chain of kernel calls that led
    there.
    """

    exit_code = 2

    def __init__(self, message: str, locations: tuple[SourceLocation, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.locations = locations

    def __str__(self) -> str:
        parts = [self.message]
        for index, location in enumerate(self.locations):
            parts.append(("  at " if index == 0 else "  called from ") + location.render())
        return "\n".join(parts)


class KernelSyntaxError(CompileError):
    """Python that the tile language does not have."""


class KernelTypeError(CompileError, TypeError):
    """Operand types that do not fit the operation."""


class KernelValueError(CompileError, ValueError):
    """A compile-time value that the operation does not allow."""


class KernelNameError(CompileError, NameError):
    """A name that is not defined, or a global that may not be captured."""


class InternalCompilerError(TilewrightError):
    """A stage of the compiler failed on a kernel that the frontend accepted."""

    exit_code = 3


class AssemblyError(InternalCompilerError):
    """PTX that ptxas refuses; `log` is what it says of which lines of `text`."""

    def __init__(self, message: str, text: str, log: str) -> None:
        super().__init__(message)
        self.text = text
        self.log = log


class ScheduleError(InternalCompilerError):
    """Scheduled IR that computes wrongly on a device, or only by luck: the checker found it."""


class UnsupportedTargetError(TilewrightError):
    """A target that no toolchain of ours knows, or that lacks what the kernel needs."""

    exit_code = 4


class ToolchainError(TilewrightError):
    """The compiler's tools are missing or of a version that was not pinned."""

    exit_code = 5


class InstallationError(TilewrightError, ImportError):
    """A part of the installed library is missing, damaged or for another Python or processor."""

    exit_code = 6


class FormatError(TilewrightError):
    """A manifest, pack or data file that cannot be read."""

    exit_code = 6


class CorruptBlobError(FormatError):
    """Bytes whose sha256 differs from the recorded one."""


class DriverError(TilewrightError):
    """A CUDA driver call failed. `code` is the CUresult, `call` the function's name."""

    exit_code = 7

    def __init__(self, message: str, *, code: int = 0, call: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.call = call


class NoDriverError(DriverError):
    """No CUDA driver on this machine, or no device that it can see."""


class OutOfMemoryError(DriverError, MemoryError):
    """The device has no memory left for an array.

    `device` and `requested_bytes` are what was asked for, `statistics` the pool's state after its
    free list was emptied (the fields of `tilewright.MemoryStatistics`).
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 2,
        call: str = "",
        device: int = 0,
        requested_bytes: int = 0,
        statistics: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message, code=code, call=call)
        self.device = device
        self.requested_bytes = requested_bytes
        self.statistics = dict(statistics or {})


class OutsideKernelError(TilewrightError, RuntimeError):
    """A function of the tile language, or a kernel without a grid, was called by plain Python."""


class SettingsError(TilewrightError, ValueError):
    """An environment variable of ours has a value that is not allowed."""

    exit_code = 10


class UsageError(TilewrightError):
    """A word of the command line that cannot be read, or that names no kernel, module or file."""

    exit_code = 2


class ResolveError(TilewrightError):
    """No candidate can serve this launch; the text lists every candidate with its reason."""

    exit_code = 8


class ArgumentError(TilewrightError, TypeError):
    """Launch arguments that do not fit the kernel's parameters."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of the right type whose value is not allowed, such as a probability above 1."""


class IndexRangeError(ArgumentError, IndexError):
    """An element of an array of indices that names no element of the array it is for."""


class LaunchError(TilewrightError, ValueError):
    """A launch that the device cannot run: grid, shared memory or threads outside its limits."""


class InterpreterError(TilewrightError):
    """A kernel misbehaved in the interpreter."""


class OutOfBoundsError(InterpreterError, IndexError):
    """An unmasked access outside every argument's memory."""


class ReleaseError(TilewrightError):
    """The factory refuses: a budget is passed, a wheel check failed, or coverage has a hole."""

    exit_code = 9
