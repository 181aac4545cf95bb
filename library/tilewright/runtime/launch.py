"""`kernel[grid](...)` becomes work on a device, or a run of the interpreter.

The launcher extension classifies arguments and keeps the plans of launches it has seen; what
happens here is the first launch of a kind: name the signature, decide, load, bind. NumPy arguments
mean the interpreter.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from threading import RLock
from typing import Any

from tilewright.abi import dtypes
from tilewright.abi.dtypes import DType
from tilewright.abi.manifest import Entry
from tilewright.abi.numpy_types import from_numpy as dtype_from_numpy
from tilewright.abi.signature import (
    CONSTEXPR_TYPES,
    NUM_WARPS,
    Constexpr,
    Fact,
    KernelSignature,
    PointerFact,
    ScalarFact,
    specialize,
)
from tilewright.errors import ArgumentError, InternalCompilerError, LaunchError, ResolveError
from tilewright.language.kernel import Kernel
from tilewright.language.parameters import NO_DEFAULT
from tilewright.language.types import constexpr, describe_refused
from tilewright.runtime import jit, sources
from tilewright.runtime.choose import choosing, tune
from tilewright.runtime.device import device as device_of
from tilewright.runtime.launcher import DTYPES, classify_type, native
from tilewright.runtime.launcher import SCALAR as SCALAR_KIND
from tilewright.runtime.memory import DeviceArray, as_device_array
from tilewright.runtime.module import Fetch, LoadedKernel, load, load_second, make_plan
from tilewright.settings import settings

__all__ = [
    "Launcher",
    "Prepared",
    "interpret",
    "launch",
    "launcher_of",
    "loaded_kernel",
    "prepare",
    "resolved",
    "tune",
]

logger = logging.getLogger(__name__)

Launcher = Callable[[object], Callable[..., None]]
"""Called with the grid, gives what is called with the arguments."""

Prepared = Callable[[list[Any], tuple[Any, ...]], None]
"""Called with arrays and scalars, those that were not known before."""

_POINTER, _SCALAR = 1, 2
_INT64 = range(-(2**63), 2**63)

_loaded: dict[tuple[str, int], LoadedKernel] = {}
_second: dict[tuple[str, int], LoadedKernel] = {}
_interpreted: dict[str, None] = {}
_loading = RLock()


def launch(
    kernel: Kernel, grid: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Launch a kernel over a grid; returns when the work is on the stream or interpreted.

    Raises ArgumentError, LaunchError, ResolveError, CompileError or DriverError.
    """
    launcher_of(kernel)(grid)(*args, **kwargs)


def launcher_of(kernel: Kernel) -> Launcher:
    """Return a new launcher of a kernel, to be kept with it: it remembers launches."""
    configure_trace()
    parameters = kernel.parameters
    dispatcher = native.Dispatcher(
        name=kernel.name,
        names=tuple(p.name for p in parameters),
        constexprs=tuple(p.is_constexpr for p in parameters),
        defaults=tuple(p.default for p in parameters),
        missing=NO_DEFAULT,
        divisible=tuple(p.name in kernel.rule.divisible for p in parameters),
        unit=tuple(p.name in kernel.rule.unit for p in parameters),
        resolve=_Resolver(kernel),
        interpret=_Interpreter(kernel),
    )
    launcher = _observed(kernel, dispatcher)
    return choosing(kernel, launcher) if kernel.choices else launcher


def prepare(
    kernel: Kernel,
    grid: tuple[int, int, int],
    known: Mapping[str, object],
    given: Mapping[str, int],
    *,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Prepared:
    """Return a launch of which all but the parameters `given` are known.

    It is called with a list of arrays and a tuple of scalars. `given` says where in the arrays a
    parameter's is, or, from -1 down, where in the scalars. Every other one is a scalar or a
    constexpr in `known`, and is classified here, once.
    """
    launcher = kernel.launcher
    names = [p.name for p in kernel.parameters]
    if isinstance(launcher, native.Dispatcher):
        values = tuple(known.get(name) for name in names)
        sources = tuple(given.get(name) for name in names)
        return launcher.prepare(grid, values, sources, num_warps, num_stages)
    start = launcher(grid)

    def run(arrays: list[Any], scalars: tuple[Any, ...]) -> None:
        values = {
            name: arrays[index] if index >= 0 else scalars[-1 - index]
            for name, index in given.items()
        }
        start(**values, **known, num_warps=num_warps, num_stages=num_stages)

    return run


def _observed(kernel: Kernel, dispatcher: Launcher) -> Launcher:
    """Return the launcher with what the settings ask for around it."""
    if settings().interpret:
        return lambda grid: _on_the_host(dispatcher(grid))
    if "launch" in settings().trace:
        return lambda grid: _traced(kernel, grid, dispatcher(grid))
    return dispatcher


def loaded_kernel(
    kernel: Kernel, signature: KernelSignature, device: int, *, is_whole: bool = False
) -> LoadedKernel:
    """Return the code of a kernel for a signature on a device, loading it at the first call.

    If asked, `is_whole` loads what serves all other launches of the signature as well.
    """
    key = sources.source_key(kernel, signature)
    with _loading:
        found = _loaded.get((key, device))
        fetch = sources.Fetcher(kernel, signature, key)
        if found is None:
            decision = sources.decide_key(
                kernel.qualified_name, str(signature), key, facts=device_of(device).facts
            )
            found = _loaded[key, device] = load(decision, device=device, fetch=fetch)
        if is_whole:
            _load_rest(key, found, fetch)
        return found


def _load_rest(key: str, first: LoadedKernel, fetch: Fetch, *, is_bundled: bool = False) -> None:
    """Load what serves launches that `first` does not; where nothing does, these are told so."""
    if first.abi.tma_ok and (key, first.device) not in _second:
        with suppress(ResolveError):
            _second[key, first.device] = load_second(first, fetch=fetch, is_bundled=is_bundled)


def _second_plan(
    kernel: Kernel, signature: KernelSignature, first: LoadedKernel, is_capturing: int
) -> native.Plan:
    """Return the plan for launches whose arguments `first` does not take."""
    key = sources.source_key(kernel, signature)
    with _loading:
        found = _second.get((key, first.device))
        if found is None:
            if is_capturing:
                msg = (
                    f"kernel {kernel.qualified_name} {signature} needs another binary for these "
                    f"arguments, which are not such that {first.abi.tma_ok}, and loading it would "
                    "break the graph capture on this stream; launch it once before with arguments "
                    "of this kind, or preload the kernel if a bundle has it"
                )
                raise LaunchError(msg)
            fetch = sources.Fetcher(kernel, signature, key)
            found = _second[key, first.device] = load_second(first, fetch=fetch)
    return make_plan(found, signature)


def resolved() -> tuple[str, ...]:
    """Return a line for each kernel launched by this process: what serves it, and why."""
    on_device = [
        f"{loaded.decision.kernel}: {loaded.candidate} on device {loaded.device} "
        f"({'; '.join(map(str, loaded.trace))})"
        for loaded in (*_loaded.values(), *_second.values())
    ]
    return (*on_device, *(f"{name}: interpreter, for NumPy arguments" for name in _interpreted))


def load_bundled(kernel: Kernel, key: str, entry: Entry, device: int) -> LoadedKernel:
    """Load one entry of the bundle, whose signature is known by its text only; compiles nothing.

    Where what is loaded does not serve all launches, what a bundle has for the others is too.
    """
    with _loading:
        found = _loaded.get((key, device))
        fetch = partial(sources.fetch_bundled, key)
        if found is None:
            decision = sources.decide_key(
                kernel.qualified_name, entry.signature, key, facts=device_of(device).facts
            )
            found = load(decision, device=device, fetch=fetch, is_bundled=True)
            _loaded[key, device] = found
        _load_rest(key, found, fetch, is_bundled=True)
        return found


def is_loaded(kernel: Kernel, signature: KernelSignature, device: int) -> bool:
    """Return whether a launch of this signature finds its code loaded."""
    return (sources.source_key(kernel, signature), device) in _loaded


def interpret(
    kernel: Kernel,
    grid: tuple[int, int, int],
    values: Mapping[str, Any],
    *,
    num_warps: int,
    num_stages: int,
) -> None:
    """Run a kernel in the interpreter on NumPy arrays, in place."""
    arguments = {
        p.name: _on_host(kernel, p.name, values[p.name], is_constexpr=p.is_constexpr)
        for p in kernel.parameters
    }
    facts = {name: fact for name, (fact, _) in arguments.items()}
    signature = _signature(kernel, facts, num_warps=num_warps, num_stages=num_stages)
    runtime = {name: argument for name, (_, argument) in arguments.items()}
    for name in signature.constexprs:
        del runtime[name]
    stepwise = settings().interpret
    jit.interpret_kernel(kernel, signature, grid=grid, arguments=runtime, stepwise=stepwise)
    _interpreted[kernel.qualified_name] = None


class _Resolver:
    """What the dispatcher asks on a miss."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(
        self,
        device: int,
        described: tuple[tuple[int, int, Any], ...],
        num_warps: int,
        num_stages: int,
        is_fast: int,
        is_capturing: int,
    ) -> native.Plan:
        kernel = self.kernel
        facts = {
            p.name: _fact(kernel, p.name, *description)
            for p, description in zip(kernel.parameters, described, strict=True)
        }
        signature = _signature(kernel, facts, num_warps=num_warps, num_stages=num_stages)
        if (signature.specialization == "fast") != bool(is_fast):
            msg = (
                f"launcher and abi.signature.specialize disagree on kernel {kernel.qualified_name} "
                f"{signature}: the installation mixes two versions; install tilewright again"
            )
            raise InternalCompilerError(msg)
        if is_capturing and not is_loaded(kernel, signature, device):
            msg = (
                f"kernel {kernel.qualified_name} {signature} is not loaded, and loading it would "
                "break the graph capture on this stream; launch it once before, or call "
                "tilewright.preload with this kernel"
            )
            raise LaunchError(msg)
        loaded = loaded_kernel(kernel, signature, device)
        otherwise = partial(_second_plan, kernel, signature, loaded)
        return make_plan(loaded, signature, otherwise=otherwise)


class _Interpreter:
    """What the dispatcher calls when the arrays are on the host."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(
        self, grid: tuple[int, int, int], values: dict[str, Any], num_warps: int, num_stages: int
    ) -> None:
        interpret(self.kernel, grid, values, num_warps=num_warps, num_stages=num_stages)


def _signature(
    kernel: Kernel, facts: Mapping[str, Fact], *, num_warps: int, num_stages: int
) -> KernelSignature:
    if num_warps not in NUM_WARPS:
        most = NUM_WARPS[-1]
        msg = f"{kernel.name}: num_warps must be a power of two up to {most}, not {num_warps}"
        raise ArgumentError(msg)
    return specialize(facts, rule=kernel.rule, num_warps=num_warps, num_stages=num_stages)


def _fact(kernel: Kernel, name: str, kind: int, code: int, value: Any) -> Fact:
    if kind == _POINTER:
        return PointerFact(DTYPES[code], value)
    if kind == _SCALAR:
        return _scalar_fact(DTYPES[code], value)
    return _constexpr(kernel, name, value)


def _scalar_fact(dtype: DType, value: Any) -> ScalarFact:
    if dtype.is_float:
        return ScalarFact(dtype, float(value))
    return ScalarFact(dtype, bool(value) if dtype.bits == 1 else int(value))


def _constexpr(kernel: Kernel, name: str, value: object) -> Constexpr:
    if isinstance(value, constexpr):
        value = value.value
    if type(value) not in CONSTEXPR_TYPES:
        msg = f"{kernel.name}: {name!r} is tl.constexpr, which is {describe_refused(value)}"
        raise ArgumentError(msg)
    return Constexpr(value)  # type: ignore[arg-type]  # narrowed by the exact types above


def _on_host(kernel: Kernel, name: str, value: Any, *, is_constexpr: bool) -> tuple[Fact, Any]:
    """Return what the signature and what the interpreter need of a host argument."""
    import numpy as np

    if is_constexpr:
        kind, code = (0, 0) if isinstance(value, CONSTEXPR_TYPES) else classify_type(type(value))
        plain = value.item() if kind == SCALAR_KIND and isinstance(value, np.generic) else value
        return _constexpr(kernel, name, plain), None
    if isinstance(value, np.ndarray):
        return PointerFact(dtype_from_numpy(value.dtype), value.ctypes.data), value
    # Exact types, as the extension does it: numpy.float64 is a Python float too and keeps its
    # width.
    if type(value) is bool:
        return ScalarFact(dtypes.int1, value), value
    if type(value) is float:
        return ScalarFact(dtypes.float32, value), value
    if type(value) is int:
        return ScalarFact(dtypes.int64, value), value
    kind, code = classify_type(type(value))
    if kind == SCALAR_KIND:
        fact = _scalar_fact(DTYPES[code], value)
        return fact, value if isinstance(value, np.generic) else fact.value
    array = np.from_dlpack(value)
    return PointerFact(dtype_from_numpy(array.dtype), array.ctypes.data), array


def _on_the_host(run: Callable[..., None]) -> Callable[..., None]:
    """Wrap a launch so that device arrays are copied to the host, interpreted and copied back."""

    def launch_on_host(*args: object, **kwargs: object) -> None:
        copies: list[tuple[DeviceArray, Any]] = []

        def host(value: object) -> object:
            if not _is_on_device(value):
                return value
            array = as_device_array(value)
            flat = array.view((array.size_bytes // array.dtype.size_bytes,))
            copies.append((flat, flat.numpy()))
            return copies[-1][1]

        run(*map(host, args), **{name: host(value) for name, value in kwargs.items()})
        for flat, copy in copies:
            if not flat.is_read_only:
                flat.copy_from(copy)

    return launch_on_host


def _is_on_device(value: object) -> bool:
    if isinstance(value, DeviceArray) or hasattr(type(value), "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) != 1


def _traced(kernel: Kernel, grid: object, run: Callable[..., None]) -> Callable[..., None]:
    def launch_and_log(*args: object, **kwargs: object) -> None:
        started = time.perf_counter()
        run(*args, **kwargs)
        taken = (time.perf_counter() - started) * 1e6
        logger.info("launch %s grid=%r on the host for %.1f us", kernel.qualified_name, grid, taken)

    return launch_and_log


@cache
def configure_trace() -> None:
    """Show what `TILEWRIGHT_TRACE` asks for on stderr; else logging is the program's affair."""
    wanted = settings().trace
    if not wanted:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    # A table of what was timed decides before a binary is looked for.
    names = {
        "launch": (__name__,),
        "resolve": ("tilewright.runtime.module", "tilewright.tensor.tuned"),
    }
    for name in chain.from_iterable(names[trace] for trace in sorted(wanted)):
        log = logging.getLogger(name)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
