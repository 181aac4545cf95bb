"""Why a kernel does not fit a schedule: raised by its steps, told by `hopper.why_not`."""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation


class Unsuited(Exception):
    """A kernel that is right, but not of the form that a schedule takes: another one takes it."""

    def __init__(self, reason: str, operation: Operation | None = None) -> None:
        """Say what does not fit, and which operation shows it."""
        location = None if operation is None else operation.location
        super().__init__(reason if location is None else f"{reason} ({location.render()})")
