"""The environment variables of Tilewright, as one frozen value: the only reader of `os.environ`.

`settings()` reads them once, at the first question, so that importing the library looks at nothing
and a process sees one configuration from start to end. Empty means unset. A value that is not
allowed is an error that names those that are; nothing falls back in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.errors import SettingsError
from tilewright.lazy_dataclass import dataclass

TRACES = ("launch", "resolve")


def _switch(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        msg = f"{name}={text!r} is not allowed; set it to on or off"
        raise SettingsError(msg)
    return text == "on"


def _switch_or_digit(name: str, text: str) -> bool:
    """Take 1 and 0 too, which those who debugged Triton's kernels have in their fingers."""
    if text not in ("on", "off", "1", "0"):
        msg = f"{name}={text!r} is not allowed; set it to on, off, 1 or 0"
        raise SettingsError(msg)
    return text in ("on", "1")


def _traces(name: str, text: str) -> frozenset[str]:
    if text == "off":
        return frozenset()
    wanted = frozenset(part.strip() for part in text.split(","))
    if not wanted <= set(TRACES):
        some = " or ".join(TRACES)
        msg = f"{name}={text!r} is not allowed; set it to off, {some}, or both with a comma"
        raise SettingsError(msg)
    return wanted


def _directory(name: str, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        msg = f"{name}={text!r} is relative; give an absolute path, so that it means one folder"
        raise SettingsError(msg)
    return path


def _directories(name: str, text: str) -> tuple[Path, ...]:
    return tuple(_directory(name, part) for part in text.split(os.pathsep) if part)


def _cache(name: str, text: str) -> Path | None:
    return None if text == "off" else _directory(name, text)


def _declaration(
    read: Callable[[str, str], Any], *, default: str, allowed: str, meaning: str
) -> dict[str, Any]:
    return {"read": read, "default": default, "allowed": allowed, "meaning": meaning}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting; the variable of a field is `TILEWRIGHT_` and its name in capitals."""

    jit: bool = field(
        metadata=_declaration(
            _switch,
            default="on",
            allowed="on, off",
            meaning="whether a kernel that no bundle holds may be compiled by our compiler",
        )
    )
    ptx: bool = field(
        metadata=_declaration(
            _switch,
            default="on",
            allowed="on, off",
            meaning="whether the driver may compile the portable PTX when no cubin fits the GPU",
        )
    )
    cache_dir: Path | None = field(
        metadata=_declaration(
            _cache,
            default="",
            allowed="an absolute path, off",
            meaning="where compiled kernels are kept; unset means tilewright/ in XDG_CACHE_HOME or "
            "~/.cache, or a folder of the user's own in the temporary folder if that cannot be "
            "written",
        )
    )
    bundle_path: Path | None = field(
        metadata=_declaration(
            _directory,
            default="",
            allowed="an absolute path",
            meaning="a folder with a manifest and packs, used instead of the installed bundle",
        )
    )
    extra_bundles: tuple[Path, ...] = field(
        metadata=_declaration(
            _directories,
            default="",
            allowed="absolute paths separated by a colon",
            meaning="more folders with a manifest and packs, asked in this order before the "
            "installed bundle",
        )
    )
    trace: frozenset[str] = field(
        metadata=_declaration(
            _traces,
            default="off",
            allowed=f"off, {', '.join(TRACES)}, or both separated by a comma",
            meaning="what is logged: every choice of a binary, every launch",
        )
    )
    interpret: bool = field(
        metadata=_declaration(
            _switch_or_digit,
            default="off",
            allowed="on, off, 1, 0",
            meaning="whether every launch runs on the CPU as the Python function it is, so that a "
            "debugger can step through the kernel",
        )
    )
    force_ptx: bool = field(default=False)
    """CUDA_FORCE_PTX_JIT=1, which is CUDA's: no cubin is loaded, the driver assembles PTX. The
    driver itself honours it for embedded binaries only, so whoever loads cubins must."""
    cache_candidates: tuple[Path, ...] = field(default=())
    """Folders for compiled kernels, the preferred first; empty if TILEWRIGHT_CACHE_DIR is off."""


@cache
def settings() -> Settings:
    """Return the settings of this process; raises SettingsError for a value that is not allowed."""
    return read_settings(os.environ)


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings that `environment` spells; looks at no file."""
    known = {variable(name): declaration for name, declaration in _declarations().items()}
    for name in environment:
        # A misspelt variable would be ignored in silence; ours that tools read are not near any.
        if name.startswith("TILEWRIGHT_") and name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.85)
            if near:
                msg = f"{name} is no setting; did you mean {near[0]}? Known are {', '.join(known)}"
                raise SettingsError(msg)
    values: dict[str, Any] = {}
    for name, declaration in _declarations().items():
        text = environment.get(variable(name), "").strip() or declaration["default"]
        empty = () if declaration["read"] is _directories else None
        values[name] = declaration["read"](variable(name), text) if text else empty
    off = environment.get("TILEWRIGHT_CACHE_DIR", "").strip() == "off"
    candidates = () if off else _cache_candidates(values["cache_dir"], environment)
    force_ptx = environment.get("CUDA_FORCE_PTX_JIT", "").strip() not in ("", "0")
    return Settings(**values, force_ptx=force_ptx, cache_candidates=candidates)


def spelled(values: Settings) -> dict[str, str]:
    """Return each variable with the text that sets it to its value here; `unset` if none does."""
    found = {variable(name): _spell(getattr(values, name)) for name in _declarations()}
    if values.cache_dir is None and not values.cache_candidates:
        found[variable("cache_dir")] = "off"
    return found | {"CUDA_FORCE_PTX_JIT": "1" if values.force_ptx else "unset"}


def _spell(value: bool | Path | frozenset[str] | tuple[Path, ...] | None) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return os.pathsep.join(map(str, value)) or "unset"
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "off"
    return "unset" if value is None else str(value)


def describe() -> str:
    """Return the table of all variables for the documentation, in Markdown."""
    lines = ["| variable | values | default | meaning |", "|---|---|---|---|"]
    for name, declaration in _declarations().items():
        default = declaration["default"] or "unset"
        allowed, meaning = declaration["allowed"], declaration["meaning"]
        lines.append(f"| `{variable(name)}` | {allowed} | {default} | {meaning} |")
    return "\n".join(lines)


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return f"TILEWRIGHT_{name.upper()}"


def _declarations() -> dict[str, Mapping[str, Any]]:
    return {item.name: item.metadata for item in fields(Settings) if item.metadata}


def _cache_candidates(chosen: Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    if chosen is not None:
        return (chosen,)
    bases = []
    # The XDG specification says to ignore a relative path.
    if environment.get("XDG_CACHE_HOME", "").startswith("/"):
        bases.append(Path(environment["XDG_CACHE_HOME"]))
    elif environment.get("HOME", "").startswith("/"):
        bases.append(Path(environment["HOME"]) / ".cache")
    # Not tempfile.gettempdir, which tries the folder by writing to it. A relative one is passed
    # over too: no code is loaded from where a process happens to stand.
    temporary = environment.get("TMPDIR", "")
    own = Path(temporary if temporary.startswith("/") else "/tmp") / f"tilewright-{os.getuid()}"
    return (*(base / "tilewright" for base in bases), own)
