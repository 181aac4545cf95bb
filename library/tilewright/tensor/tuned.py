"""What was timed to be fastest is asked before any model of cost: the choice of a table, or none.

The user's own table, which `tilewright tune` writes into his cache, comes first; then that of the
bundles for the device most like this one. A choice that cannot serve here, as its binary is in no
bundle and no compiler may make it, is passed over with a reason in the log. Tables are read once,
at the first plan of an operation that has some; a plan is remembered with its choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright.abi.dtypes import DType
from tilewright.abi.signature import Pointer
from tilewright.abi.signature_text import parse_signature
from tilewright.abi.tuned import (
    FILE_NAME,
    Choice,
    Key,
    Sizes,
    TunedTable,
    bucket,
    from_json,
    nearest,
)
from tilewright.errors import FormatError, LaunchError
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime import jit, store
from tilewright.runtime.device import device as device_of
from tilewright.runtime.file_kinds import is_file
from tilewright.runtime.launch import configure_trace
from tilewright.settings import settings
from tilewright.tensor.launches import forget_plans

logger = logging.getLogger(__name__)

WhyNot = Callable[[Choice], str]
"""Says why a choice cannot serve an operation; empty if it can."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A choice that operations of a family take for now, None for what the model of cost says;
    `asked` are their cases and sizes.
    """

    family: str
    choice: Choice | None
    asked: list[tuple[str, Sizes]]


_trial: ContextVar[_Trial | None] = ContextVar("_trial", default=None)


def tuned_choice(
    family: str, case: str, sizes: Sizes, *, device: int | None, why_not: WhyNot
) -> Choice | None:
    """Return what is known to be fastest on a device; None if nothing is known, or on the host.

    Raises LaunchError if a choice that `trying` wants cannot serve.
    """
    trial = _trial.get()
    if trial is not None and trial.family == family:
        trial.asked.append((case, sizes))
        fault = "" if trial.choice is None else why_not(trial.choice)
        if fault:
            msg = f"{trial.choice} cannot serve {case} of {sizes}: {fault}"
            raise LaunchError(msg)
        return trial.choice
    if device is None:
        return None
    for place, choices in _choices(device_of(device).kind, family):
        choice = choices.get((case, bucket(sizes)))
        if choice is None:
            continue
        fault = why_not(choice)
        fate = f"is passed over: {fault}" if fault else "is taken"
        logger.info("tuned %s for %s of %s %s; %s", choice, case, sizes, fate, place)
        if not fault:
            return choice
    return None


@contextmanager
def trying(family: str, choice: Choice | None) -> Iterator[list[tuple[str, Sizes]]]:
    """Make every operation of a family take a choice in the block, or raise LaunchError.

    Without a choice they take what the model of cost says. Gives the list of the cases and sizes
    that operations ask a choice for.
    """
    trial = _Trial(family, choice, [])
    token = _trial.set(trial)
    forget_plans()
    try:
        yield trial.asked
    finally:
        _trial.reset(token)
        forget_plans()


def forget_tables() -> None:
    """Read the tables again at the next plan, because they were written anew."""
    _read.cache_clear()
    _choices.cache_clear()
    forget_plans()


def user_file(device: str, family: str) -> Path | None:
    """Return where the user's own table for a kind of device is; None without a cache."""
    folders = settings().cache_candidates
    return folders[0] / "tuned" / device / f"{family}.json" if folders else None


def why_no_binary(kernel: Kernel, dtypes: Mapping[str, DType], options: Mapping[str, Any]) -> str:
    """Return why a kernel in its fast form could not be launched; empty if a bundle has it, or the
    compiler may be asked for it.

    `dtypes` are those of pointers, `options` the constexprs, warps and stages of the launch.
    """
    if settings().jit and jit.why_unavailable() is None:
        return ""
    wanted = {name: value for name, value in options.items() if not name.startswith("num_")}
    for entry in store.entries_of(kernel).values():
        signature = parse_signature(entry.signature)
        types = dict(signature.runtime)
        if (
            signature.specialization == "fast"
            and signature.constexprs == wanted
            and signature.num_warps == options["num_warps"]
            and signature.num_stages == options["num_stages"]
            and all(types[name] == Pointer(dtype, aligned=True) for name, dtype in dtypes.items())
        ):
            return ""
    return "no bundle has its binary, and no compiler may make it"


@lru_cache(maxsize=64)
def _choices(device: str, family: str) -> tuple[tuple[str, dict[Key, Choice]], ...]:
    """Return the choices for a kind of device with their places, the first to be asked first."""
    configure_trace()
    found = []
    own = user_file(device, family)
    if own is not None:
        tables = [t for t in _read(own) if (t.device, t.family) == (device, family)]
        found += [(str(own), table.choices()) for table in tables]
    for bundle in store.bundles():
        path = bundle.folder / FILE_NAME
        tables = [table for table in _read(path) if table.family == family]
        best = nearest(device, (table.device for table in tables))
        found += [(f"{path} ({best})", t.choices()) for t in tables if t.device == best]
    return tuple(found)


@lru_cache(maxsize=64)
def _read(path: Path) -> tuple[TunedTable, ...]:
    """Read a file of tables; a damaged one is none, with a warning."""
    if not is_file(path):
        return ()
    try:
        return from_json(path.read_text(encoding="utf-8"), source=path)
    except (OSError, UnicodeError, FormatError) as error:
        logger.warning("tuned table is not used: %s", error)
        return ()
