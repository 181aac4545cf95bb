"""The tools of an extra, which a wheel does not bring: named when one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from tilewright.errors import ToolchainError


def require_tools(modules: Sequence[str], *, purpose: str, extra: str = "dev") -> None:
    """Raise ToolchainError that names the extra when one of `modules` cannot be imported."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        msg = (
            f"{purpose} needs {', '.join(missing)}, not installed here; "
            f"install with `pip install 'tilewright[{extra}]'`"
        )
        raise ToolchainError(msg)
