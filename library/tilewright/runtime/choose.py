"""What a launch fills in by itself: the configuration known to be fastest, and heuristics.

The table of a kernel is one JSON file in the user's cache, by the kernel's digest: for a device,
element types and key values, the configuration that `tune` found and its time. A launch takes the
entry of its own values, else the one whose numbers are nearest (by ratio), else the first
configuration. The file is read once in a process; it appears by one rename.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import (
    ArgumentError,
    CompileError,
    DriverError,
    LaunchError,
    ResolveError,
)
from tilewright.language.choices import Config
from tilewright.language.kernel import Kernel
from tilewright.language.parameters import NO_DEFAULT
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.device import device as device_of
from tilewright.runtime.file_kinds import is_file
from tilewright.runtime.launcher import DTYPES, native, torch_dtype_code
from tilewright.runtime.memory import DeviceArray, as_device_array
from tilewright.settings import settings

logger = logging.getLogger(__name__)

Launcher = Callable[[object], Callable[..., None]]
Measure = Callable[[Callable[[], None]], float]
_Fill = Callable[[Sequence[object], dict[str, Any]], dict[str, Any]]
_SCHEMA = 1
_WARMUPS, _ROUNDS = 3, 15
_DTYPE_NAMES = tuple(map(str, DTYPES))
_NUMBERS = frozenset({int, float, bool, str, type(None)})
_MAX_KNOWN = 4096

# What was added to launches like one, by `_key_getter`; emptied when a table changes.
_known: dict[tuple[object, ...], dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the table: what was timed, and which configuration won."""

    device: str
    dtypes: str
    key: tuple[tuple[str, Any], ...]
    config: Config
    time_us: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """A launch that was tuned at its first sight, and what won."""

    kernel: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class _Sight:
    """Launches that were seen while what is seen first is tuned; `found` are those that were."""

    measure: Measure | None
    seen: set[tuple[object, ...]]
    found: list[Tuned]


_sight: ContextVar[_Sight | None] = ContextVar("_sight", default=None)


@contextlib.contextmanager
def tuning_at_first_sight(*, measure: Measure | None = None) -> Iterator[list[Tuned]]:
    """Tune each launch of this thread on a device whose key is in no table; give what was tuned.

    For kernels whose first launch is in the block: a program runs in it as a whole.
    """
    sight = _Sight(measure, set(), [])
    token = _sight.set(sight)
    try:
        yield sight.found
    finally:
        _sight.reset(token)


def choosing(kernel: Kernel, launcher: Launcher) -> Launcher:
    """Return a launcher that fills in what a kernel's decorators leave to the launch."""
    filled = _filled(kernel, launcher)
    if len(kernel.choices.configs) < 2 or _sight.get() is None:
        return filled
    return lambda grid: _tuning(kernel, grid, filled(grid))


def _tuning(kernel: Kernel, grid: object, run: Callable[..., None]) -> Callable[..., None]:
    defaults, names = _defaults(kernel), [p.name for p in kernel.parameters]

    def launch(*args: object, **kwargs: object) -> None:
        sight = _sight.get()
        if sight is not None:
            arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
            where = _situation(kernel, arguments)
            if (kernel, *where) not in sight.seen and where[0] != "host":
                sight.seen.add((kernel, *where))
                if not _entries_at(kernel, where):
                    tune(kernel, grid, args, kwargs, measure=sight.measure)
                    found = _entries_at(kernel, where)
                    sight.found.extend(Tuned(kernel.qualified_name, entry) for entry in found)
        run(*args, **kwargs)

    return launch


def _entries_at(kernel: Kernel, where: tuple[object, ...]) -> list[Entry]:
    return [entry for entry in _read(kernel) if (entry.device, entry.dtypes, entry.key) == where]


def _filled(kernel: Kernel, launcher: Launcher) -> Launcher:
    fill = _filler(kernel)
    choices = kernel.choices
    if choices.heuristics or choices.prune is not None:
        return lambda grid: _computing(launcher(grid), fill)
    if len(choices.configs) == 1:
        settled = _settled(kernel)
        return lambda grid: _adding(launcher(grid), fill, settled)
    key_of = _key_getter(kernel)
    return lambda grid: _remembering(launcher(grid), fill, key_of)


def _computing(run: Callable[..., None], fill: _Fill) -> Callable[..., None]:
    def launch(*args: object, **kwargs: object) -> None:
        run(*args, **fill(args, kwargs))

    return launch


def _adding(
    run: Callable[..., None], fill: _Fill, settled: tuple[int, frozenset[str], dict[str, Any]]
) -> Callable[..., None]:
    count, names, added = settled

    def launch(*args: object, **kwargs: object) -> None:
        if len(args) <= count and kwargs.keys() <= names:
            run(*args, **kwargs, **added)
        else:
            run(*args, **fill(args, kwargs))

    return launch


def _remembering(
    run: Callable[..., None],
    fill: _Fill,
    key_of: Callable[[tuple[Any, ...]], tuple[object, ...] | None],
) -> Callable[..., None]:
    def launch(*args: object, **kwargs: object) -> None:
        situation = None if kwargs else key_of(args)
        if situation is None:
            run(*args, **fill(args, kwargs))
            return
        added = _known.get(situation)
        if added is None:
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            added = _known[situation] = fill(args, {})
        run(*args, **added)

    return launch


def _settled(kernel: Kernel) -> tuple[int, frozenset[str], dict[str, Any]]:
    """Return what the only configuration of a kernel adds to every launch.

    It goes with so many positional arguments, and with keywords that are among these names.
    """
    (config,) = kernel.choices.configs
    added = _of_config(kernel, config, {}, {})
    names = [p.name for p in kernel.parameters]
    first = min((names.index(name) for name in config.kwargs), default=len(names))
    return first, frozenset({*names, "stream"}) - added.keys(), added


def _key_getter(kernel: Kernel) -> Callable[[tuple[Any, ...]], tuple[object, ...] | None]:
    """Return what tells launches apart that may get different configurations, fast.

    It takes positional arguments, and gives None where they are not just our arrays and plain
    values, or do not reach to the key.
    """
    names = [p.name for p in kernel.parameters]
    places = tuple(names.index(name) for name in kernel.choices.key)
    needed = max(places, default=-1) + 1
    arrays_of: dict[tuple[type, ...], tuple[int, ...] | None] = {}

    def key_of(args: tuple[Any, ...]) -> tuple[object, ...] | None:
        kinds = tuple(map(type, args))
        arrays = arrays_of.get(kinds, ())
        if arrays == ():
            plain = _NUMBERS | {DeviceArray}
            found = tuple(i for i, kind in enumerate(kinds) if kind is DeviceArray)
            is_plain = bool(found) and len(kinds) >= needed and plain.issuperset(kinds)
            arrays = arrays_of[kinds] = found if is_plain else None
        if arrays is None:
            return None
        codes = tuple([args[i].code for i in arrays])
        values = tuple([args[i] for i in places])
        return kernel, kinds, args[arrays[0]].device_index, codes, values

    return key_of


def _filler(kernel: Kernel) -> _Fill:
    """Return what adds the chosen keyword arguments to those of a launch.

    Every launch passes here, so what depends on the kernel alone is found beforehand.
    """
    names = tuple(p.name for p in kernel.parameters)
    defaults = _defaults(kernel)
    configs = kernel.choices.configs
    heuristics = tuple(kernel.choices.heuristics.items())

    def fill(args: Sequence[object], kwargs: dict[str, Any]) -> dict[str, Any]:
        arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if configs:
            kwargs |= _of_config(kernel, choose(kernel, arguments), arguments, defaults)
            arguments |= kwargs
        for name, compute in heuristics:
            kwargs[name] = arguments[name] = compute(arguments)
        return kwargs

    return fill


def choose(kernel: Kernel, arguments: Mapping[str, Any]) -> Config:
    """Return the configuration for a launch with these arguments by name."""
    configs = candidates(kernel, arguments)
    if len(configs) == 1:
        return configs[0]
    device, dtypes, key = _situation(kernel, arguments)
    return _chosen(kernel, configs, device, dtypes, key)


def candidates(kernel: Kernel, arguments: Mapping[str, Any]) -> tuple[Config, ...]:
    """Return the configurations that pruning leaves."""
    choices = kernel.choices
    if choices.prune is None:
        return choices.configs
    left = tuple(choices.prune(list(choices.configs), dict(arguments)))
    if not left:
        msg = f"early_config_prune of kernel {kernel.qualified_name} leaves no configuration"
        raise ArgumentError(msg)
    return left


def tune(
    kernel: Kernel,
    grid: object,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    measure: Measure | None = None,
) -> Config:
    """Time every configuration on these arguments, keep the fastest in the cache, and return it.

    A configuration that does not compile or does not fit the device is left out; raises LaunchError
    if all are. `measure` returns the microseconds of a call; by default events of the device do.
    """
    if not kernel.choices.configs:
        msg = f"kernel {kernel.qualified_name} has no configurations; add @tl.autotune"
        raise ArgumentError(msg)
    defaults = _defaults(kernel)
    names = (p.name for p in kernel.parameters)
    arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    times: dict[Config, float] = {}
    refused: list[str] = []
    with _restored(kernel, arguments):
        for config in candidates(kernel, arguments):
            settled = replace(kernel.choices, configs=(config,), prune=None)
            run = partial(kernel.choosing(settled)[grid], *args, **kwargs)
            try:
                times[config] = (measure or _on_device)(run)
            except (CompileError, ResolveError, LaunchError, DriverError) as error:
                refused.append(f"{config}: {error}")
                logger.info("tune %s: %s", kernel.qualified_name, refused[-1])
    if not times:
        lines = "\n  ".join(refused)
        msg = f"no configuration of kernel {kernel.qualified_name} runs:\n  {lines}"
        raise LaunchError(msg)
    best = min(times, key=lambda config: times[config])
    _record(kernel, Entry(*_situation(kernel, arguments), best, times[best]))
    return best


def _defaults(kernel: Kernel) -> dict[str, Any]:
    return {p.name: p.default for p in kernel.parameters if p.default is not NO_DEFAULT}


def _of_config(
    kernel: Kernel, config: Config, arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    chosen = {"num_warps": config.num_warps, "num_stages": config.num_stages, **config.kwargs}
    for name in config.kwargs:
        if name in arguments and arguments[name] is not defaults.get(name, NO_DEFAULT):
            msg = (
                f"kernel {kernel.qualified_name} was given {name!r}, which its configurations "
                "choose; leave it out"
            )
            raise ArgumentError(msg)
    return chosen


def _situation(
    kernel: Kernel, arguments: Mapping[str, Any]
) -> tuple[str, str, tuple[tuple[str, Any], ...]]:
    """Return the device, the element types of the arrays, and the key values."""
    missing = [name for name in kernel.choices.key if name not in arguments]
    if missing:
        msg = f"kernel {kernel.qualified_name} lacks {missing}, the key of its configurations"
        raise ArgumentError(msg)
    key = tuple([(name, _plain(arguments[name])) for name in kernel.choices.key])
    device = None
    dtypes: list[str] = []
    for value in arguments.values():
        if isinstance(value, DeviceArray):
            dtypes.append(_DTYPE_NAMES[value.code])
            device = value.device_index if device is None else device
        elif type(value) not in _NUMBERS and hasattr(value, "dtype"):
            dtypes.append(_dtype_name(value.dtype))
            if device is None and getattr(value, "is_cuda", False):  # torch's
                device = value.get_device()
    return "host" if device is None else device_of(device).kind, ",".join(dtypes), key


@lru_cache(maxsize=256)
def _dtype_name(dtype: object) -> str:
    """Return our name of an element type of torch's or NumPy's, its own if we have none."""
    code = torch_dtype_code(dtype)
    if code >= 0:
        return _DTYPE_NAMES[code]
    try:
        return str(from_numpy(dtype))  # type: ignore[arg-type]  # refuses what is none of NumPy's
    except (ArgumentError, TypeError):
        return str(dtype)


def _plain(value: Any) -> Any:
    if type(value) in _NUMBERS:
        return value
    return value.item() if hasattr(value, "item") and not hasattr(value, "shape") else value


@lru_cache(maxsize=4096)
def _chosen(
    kernel: Kernel,
    configs: tuple[Config, ...],
    device: str,
    dtypes: str,
    key: tuple[tuple[str, Any], ...],
) -> Config:
    known = [
        entry
        for entry in _read(kernel)
        if entry.config in configs and (entry.device, entry.dtypes) == (device, dtypes)
    ]
    distances = {index: _distance(entry.key, key) for index, entry in enumerate(known)}
    near = [index for index, distance in distances.items() if distance is not None]
    if not near:
        return configs[0]
    return known[min(near, key=lambda index: distances[index] or 0.0)].config


def _distance(
    left: tuple[tuple[str, Any], ...], right: tuple[tuple[str, Any], ...]
) -> float | None:
    """Return how far apart two keys are: the ratios of their numbers; None if others differ."""
    total = 0.0
    if [name for name, _ in left] != [name for name, _ in right]:
        return None
    for (_, a), (_, b) in zip(left, right, strict=True):
        both = all(type(x) in (int, float) and x > 0 for x in (a, b))
        if both:
            total += abs(math.log2(a / b))
        elif a != b:
            return None
    return total


def _path(kernel: Kernel) -> Path | None:
    candidates_ = settings().cache_candidates
    return candidates_[0] / "tuned" / f"{kernel.digest}.json" if candidates_ else None


def _read(kernel: Kernel) -> list[Entry]:
    """Return the table; one that is damaged or of another version is none, as in every cache."""
    path = _path(kernel)
    try:
        if path is None or not is_file(path):
            return []
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("table of configurations %s is not used: %r", path, error)
        return []


def _parse(document: Any) -> list[Entry]:
    if document["schema"] != _SCHEMA:
        msg = f"it has schema {document['schema']!r}, this library reads {_SCHEMA}"
        raise ValueError(msg)
    return [
        Entry(
            line["device"],
            line["dtypes"],
            tuple((name, value) for name, value in line["key"]),
            Config(line["config"], line["num_warps"], line["num_stages"]),
            line["time_us"],
        )
        for line in document["entries"]
    ]


def _record(kernel: Kernel, entry: Entry) -> None:
    """Put an entry in place of one for the same situation; failing to write is no error."""
    where = (entry.device, entry.dtypes, entry.key)
    kept = [old for old in _read(kernel) if (old.device, old.dtypes, old.key) != where]
    lines = [
        {
            "device": line.device,
            "dtypes": line.dtypes,
            "key": [list(pair) for pair in line.key],
            "config": dict(line.config.kwargs),
            "num_warps": line.config.num_warps,
            "num_stages": line.config.num_stages,
            "time_us": line.time_us,
        }
        for line in (*kept, entry)
    ]
    path = _path(kernel)
    if path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            document = {"schema": _SCHEMA, "kernel": kernel.qualified_name, "entries": lines}
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
            Path(name).replace(path)
    _chosen.cache_clear()
    _known.clear()


@contextlib.contextmanager
def _restored(kernel: Kernel, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Put arrays back, or to zero, after the launches of `tune`."""
    choices = kernel.choices
    before = {name: _contents(arguments[name]) for name in choices.restore_value}
    before |= {name: _contents(arguments[name]) * 0 for name in choices.reset_to_zero}
    try:
        yield
    finally:
        for name, contents in before.items():
            _overwrite(arguments[name], contents)


def _contents(array: Any) -> Any:
    import numpy as np

    return array.copy() if isinstance(array, np.ndarray) else as_device_array(array).numpy()


def _overwrite(array: Any, contents: Any) -> None:
    import numpy as np

    if isinstance(array, np.ndarray):
        np.copyto(array, contents)
    else:
        as_device_array(array).copy_from(contents)


def _on_device(run: Callable[[], None]) -> float:
    """Return the median microseconds of a launch, by events on the current stream."""
    for _ in range(_WARMUPS):
        run()
    times = []
    for _ in range(_ROUNDS):
        first, last = native.Event(), native.Event()
        first.record()
        run()
        last.record()
        last.synchronize()
        times.append(first.elapsed_ms(last) * 1e3)
    return median(times)
