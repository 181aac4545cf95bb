"""Decorators above `@tl.kernel` that leave parameters to the launch; `choices` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tilewright.errors import KernelTypeError
from tilewright.language.choices import Choices, Config, Heuristic
from tilewright.language.kernel import Kernel

__all__ = ["autotune", "heuristics"]


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    *,
    prune_configs_by: Mapping[str, Callable[..., Sequence[Config]]] | None = None,
    reset_to_zero: Sequence[str] = (),
    restore_value: Sequence[str] = (),
) -> Callable[[Kernel], Kernel]:
    """Let a launch choose among configurations, by the values of the arguments in `key`.

    Goes above `@tl.kernel`. `prune_configs_by={"early_config_prune": f}` drops configurations:
    `f(configs, arguments)` returns those that remain. When the kernel is tuned, arrays named in
    `restore_value` are put back afterwards and those in `reset_to_zero` are zeroed.
    """
    if not configs:
        msg = "tl.autotune takes at least one configuration"
        raise KernelTypeError(msg)
    for config in configs:
        if not isinstance(config, Config):
            msg = f"configs of tl.autotune are each a tl.Config, got {config!r}"
            raise KernelTypeError(msg)
    if isinstance(key, str):
        msg = f"key of tl.autotune is a list of parameters, got {key!r}; write [{key!r}]"
        raise KernelTypeError(msg)
    hooks = dict(prune_configs_by or {})
    prune = hooks.pop("early_config_prune", None)
    if hooks:
        msg = f"prune_configs_by of tl.autotune has `early_config_prune` only, got {sorted(hooks)}"
        raise KernelTypeError(msg)

    def decorate(kernel: Kernel) -> Kernel:
        _check(kernel, "tl.autotune", (*key, *reset_to_zero, *restore_value), constexprs=False)
        for config in configs:
            _check(kernel, "tl.autotune", tuple(config.kwargs), constexprs=True)
        return kernel.choosing(
            Choices(
                configs=tuple(configs),
                key=tuple(key),
                prune=prune,
                reset_to_zero=tuple(reset_to_zero),
                restore_value=tuple(restore_value),
                heuristics=kernel.choices.heuristics,
            )
        )

    return decorate


def heuristics(values: Mapping[str, Heuristic]) -> Callable[[Kernel], Kernel]:
    """Compute parameters at each launch: `{"EVEN": lambda arguments: ...}`.

    Goes above `@tl.kernel`. Each function takes a dict of the arguments by name, with those of the
    configuration and of the heuristics before it.
    """

    def decorate(kernel: Kernel) -> Kernel:
        _check(kernel, "tl.heuristics", tuple(values), constexprs=True)
        for name, compute in values.items():
            if not callable(compute):
                msg = f"tl.heuristics: `{name}` is a function of the arguments, got {compute!r}"
                raise KernelTypeError(msg)
        # The decorator nearest to the kernel has been applied first, and is computed last.
        merged = MappingProxyType({**values, **kernel.choices.heuristics})
        return kernel.choosing(replace(kernel.choices, heuristics=merged))

    return decorate


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
