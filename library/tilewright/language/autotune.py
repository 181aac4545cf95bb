"""Decorators above `@tl.kernel` that leave parameters to the launch; `choices` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tilewright.errors import KernelTypeError
from tilewright.language.choices import Choices, Config, Heuristic
from tilewright.language.kernel import Kernel
from tilewright.language.triton import AUTOTUNE, refuse_keywords

__all__ = ["autotune", "heuristics"]

Prune = Callable[..., Sequence[Config]]


def autotune(
    configs: Iterable[Config],
    key: Iterable[str],
    *,
    prune_configs_by: Mapping[str, Prune] | None = None,
    reset_to_zero: Iterable[str] = (),
    restore_value: Iterable[str] = (),
    **unknown: object,
) -> Callable[[Kernel], Kernel]:
    """Let a launch choose among configurations, by the values of the arguments in `key`.

    Goes above `@tl.kernel`. `prune_configs_by={"early_config_prune": f}` drops configurations:
    `f(configs, arguments)` returns those that remain. When the kernel is tuned, arrays named in
    `restore_value` are put back afterwards and those in `reset_to_zero` are zeroed. Raises
    KernelTypeError for a keyword, value or name that it does not take.
    """
    if unknown:
        allowed = "configs, key, prune_configs_by, reset_to_zero and restore_value"
        refuse_keywords("tl.autotune", unknown, AUTOTUNE, allowed)
    choices = Choices(
        configs=_configs(configs),
        key=_names("key", key),
        prune=_prune(prune_configs_by),
        reset_to_zero=_names("reset_to_zero", reset_to_zero),
        restore_value=_names("restore_value", restore_value),
    )

    def decorate(kernel: Kernel) -> Kernel:
        named = (*choices.key, *choices.reset_to_zero, *choices.restore_value)
        _check(kernel, "tl.autotune", named, constexprs=False)
        for config in choices.configs:
            _check(kernel, "tl.autotune", tuple(config.kwargs), constexprs=True)
        return kernel.choosing(replace(choices, heuristics=kernel.choices.heuristics))

    return decorate


def heuristics(values: Mapping[str, Heuristic]) -> Callable[[Kernel], Kernel]:
    """Compute parameters at each launch: `{"EVEN": lambda arguments: ...}`.

    Goes above `@tl.kernel`. Each function takes a dict of the arguments by name, with those of the
    configuration and of the heuristics before it. Raises KernelTypeError for a value or name that
    it does not take.
    """
    if not isinstance(values, Mapping):
        msg = f"tl.heuristics takes a dict from parameters to functions, got {values!r}"
        raise KernelTypeError(msg)
    for name, compute in values.items():
        if not callable(compute):
            msg = f"tl.heuristics: `{name}` is a function of the arguments, got {compute!r}"
            raise KernelTypeError(msg)

    def decorate(kernel: Kernel) -> Kernel:
        _check(kernel, "tl.heuristics", tuple(values), constexprs=True)
        # The decorator nearest to the kernel has been applied first, and is computed last.
        merged = MappingProxyType({**values, **kernel.choices.heuristics})
        return kernel.choosing(replace(kernel.choices, heuristics=merged))

    return decorate


def _configs(configs: Iterable[Config]) -> tuple[Config, ...]:
    if not isinstance(configs, Iterable):
        msg = f"configs of tl.autotune is a list of tl.Config, got {configs!r}"
        raise KernelTypeError(msg)
    found = tuple(configs)
    if not found:
        msg = "tl.autotune takes at least one configuration"
        raise KernelTypeError(msg)
    for config in found:
        if not isinstance(config, Config):
            msg = f"configs of tl.autotune are each a tl.Config, got {config!r}"
            raise KernelTypeError(msg)
    return found


def _names(what: str, names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        msg = f"{what} of tl.autotune is a list of parameters, got {names!r}; write [{names!r}]"
        raise KernelTypeError(msg)
    found = tuple(names) if isinstance(names, Iterable) else None
    if found is None or not all(isinstance(name, str) for name in found):
        msg = f"{what} of tl.autotune is a list of names of parameters, got {names!r}"
        raise KernelTypeError(msg)
    return found


def _prune(hooks: Mapping[str, Prune] | None) -> Prune | None:
    if hooks is not None and not isinstance(hooks, Mapping):
        msg = f"prune_configs_by of tl.autotune is a dict, got {hooks!r}"
        raise KernelTypeError(msg)
    unknown = sorted(map(str, (hooks or {}).keys() - {"early_config_prune"}))
    if unknown:
        msg = f"prune_configs_by of tl.autotune has `early_config_prune` only, got {unknown}"
        raise KernelTypeError(msg)
    prune = (hooks or {}).get("early_config_prune")
    if prune is not None and not callable(prune):
        msg = (
            "early_config_prune of tl.autotune is a function of configurations and arguments, got "
            f"{prune!r}"
        )
        raise KernelTypeError(msg)
    return prune


def _check(kernel: Kernel, what: str, names: tuple[str, ...], *, constexprs: bool) -> None:
    """Refuse what is no kernel, and names that are no parameters of it."""
    if not isinstance(kernel, Kernel):
        msg = f"@{what} goes above @tl.kernel, got {kernel!r}"
        raise KernelTypeError(msg)
    known = {p.name: p.is_constexpr for p in kernel.parameters}
    for name in names:
        if name not in known:
            msg = f"{what}: kernel `{kernel.name}` has no parameter `{name}`"
            raise KernelTypeError(msg, (kernel.location,))
        if constexprs and not known[name]:
            msg = f"{what}: `{name}` of kernel `{kernel.name}` is not tl.constexpr"
            raise KernelTypeError(msg, (kernel.location,))
