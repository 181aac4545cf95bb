"""A Python function becomes a `Kernel`: parameters, syntax tree, captures, all found lazily.

Decorating reads no file, so importing a library of kernels costs nothing. The tree is needed only
to compile and to compute the digest; a launch of a prebuilt kernel whose files are unchanged never
parses anything. Captures are resolved once, at first use: what a kernel sees must not change
afterwards.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from types import FunctionType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from tilewright.abi import keys
from tilewright.abi.dtypes import DType
from tilewright.abi.signature import SpecializationRule
from tilewright.errors import (
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    OutsideKernelError,
    SourceLocation,
)
from tilewright.language import captures as names
from tilewright.language import source, triton
from tilewright.language.choices import NO_CHOICES, Choices, Config
from tilewright.language.parameters import (
    KernelParameter,
    NoDefault,
    check_declaration,
    read_parameters,
)
from tilewright.language.registry import BUILTINS, is_builtin, is_function
from tilewright.language.types import constexpr

__all__ = ["Capture", "Kernel", "KernelParameter", "classify", "kernel"]

_LANGUAGE = "tilewright.language"

Capture: TypeAlias = "Kernel | constexpr | DType | ModuleType | Callable[..., object]"
"""What a free name of a kernel may be: another kernel, a constant, a dtype, a module through which
these are reached, a function of the language, one of the Python builtins it knows, or
`tl.constexpr` itself."""


class Kernel:
    """A function of the tile language. `kernel[grid](*arguments)` launches it.

    - `fn`: the Python function; `name`, `module`, `qualified_name` ("module.qualname") and
      `location` (its first line) say where it is from and enter no key but for `name`.
    - `rule`: what the fast specialization assumes.
    - `choices`: what a launch fills in by itself (`tl.autotune`, `tl.heuristics`).

    Everything else is found at first use, and raises a CompileError with the user's line if it is
    wrong.
    """

    # Of an object with a dict, only a slot is read without a search: each launch reads this one.
    __slots__ = ("__dict__", "__weakref__", "_over")

    def __init__(
        self, fn: FunctionType, rule: SpecializationRule, choices: Choices = NO_CHOICES
    ) -> None:
        self.fn = fn
        self.rule = rule
        self.choices = choices
        self.name: str = fn.__name__
        self.module: str = fn.__module__
        self.qualified_name = f"{fn.__module__}.{fn.__qualname__}"
        self.location: SourceLocation = source.location_of_function(fn)
        self.__doc__ = fn.__doc__
        self._over: Callable[[object], Callable[..., None]] = self._first_over
        check_declaration(fn, rule, self.location)

    def __repr__(self) -> str:
        return f"<kernel {self.qualified_name}>"

    def __getitem__(self, grid: object) -> Callable[..., None]:
        """Return what launches this kernel over `grid`: an int, 1 to 3 ints, or a callable.

        A callable takes a dict of all arguments by name and returns an int or a tuple. What is
        returned is called with the kernel's arguments, and `num_warps`, `num_stages` and `stream`
        as keywords.
        """
        # Read, then called: of the two spellings the one that the interpreter specializes.
        over = self._over
        return over(grid)

    # Hidden from type checkers, for which a kernel would have every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                # A property raised AttributeError itself: asked once more, it tells why.
                return object.__getattribute__(self, name)
            msg = f"a kernel has no attribute {name!r}"
            msg = triton.with_remedy(msg, name, triton.ATTRIBUTES)
            raise AttributeError(msg, name=name, obj=self)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Raise OutsideKernelError: kernels call kernels, Python launches them over a grid."""
        msg = (
            f"kernel `{self.name}` was called by plain Python with {len(args) + len(kwargs)} "
            f"arguments; launch it over a grid: {self.name}[grid](...)"
        )
        raise OutsideKernelError(msg)

    def choosing(self, choices: Choices) -> Kernel:
        """Return the kernel with other choices left to its launches."""
        return Kernel(self.fn, self.rule, choices)

    def tune(self, grid: object, *args: object, **kwargs: object) -> Config:
        """Time the configurations of `tl.autotune` on these arguments; keep and return the fastest.

        Launches with such arguments use it from then on, in every process that shares the cache.
        """
        from tilewright.runtime.launch import tune

        return tune(self, grid, args, kwargs)

    @cached_property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """The parameters in order of declaration."""
        return read_parameters(self.fn, self.rule, self.location)

    @cached_property
    def launcher(self) -> Callable[[object], Callable[..., None]]:
        """What takes the grid, then the arguments; it remembers the launches that it saw."""
        # The one import upwards: the language offers the syntax, the runtime has the meaning.
        from tilewright.runtime.launch import launcher_of

        return launcher_of(self)

    def _first_over(self, grid: object) -> Callable[..., None]:
        # A C launcher's bound method costs less to call than the object.
        self._over = getattr(self.launcher, "over", self.launcher)
        return self._over(grid)

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The syntax tree of the `def`; nodes carry line numbers of the file."""
        return source.find_tree(self.fn)

    @cached_property
    def references(self) -> Mapping[str, Capture]:
        """Every object that the kernel names, by dotted name such as `tl.exp`, in order."""
        with source.bounded_nesting(lambda: self.location):
            return MappingProxyType(_references(self))

    @cached_property
    def captures(self) -> Mapping[str, Capture]:
        """Every free name such as `tl` with its object, in order."""
        roots = dict.fromkeys(path.partition(".")[0] for path in self.references)
        found = {root: names.look_up(self.fn, root) for root in roots}
        # An annotation may spell tl.constexpr by a name that only the surrounding function knows.
        return MappingProxyType(
            {
                root: cast(Capture, value)
                for root, value in found.items()
                if value is not names.MISSING
            }
        )

    def closure(self) -> tuple[Kernel, ...]:
        """Return this kernel and all that it calls, directly or not, in order."""
        found = [self]
        for kernel in found:
            for capture in kernel.references.values():
                if isinstance(capture, Kernel) and capture not in found:
                    found.append(capture)
        return tuple(found)

    @cached_property
    def fields(self) -> tuple[keys.Field, ...]:
        """The labelled fields that make the digest, for `keys.explain_difference`."""
        with source.bounded_nesting(lambda: self.location):
            return keys.kernel_fields(_key_sources(self.closure()))

    @cached_property
    def digest(self) -> str:
        """The kernel digest: sha256 over all that decides what the kernel computes."""
        return keys.kernel_digest(self.fields)

    def locate(self, node: ast.AST) -> SourceLocation:
        """Return the position of a node of `tree`."""
        return source.location_of_node(node, file=self.location.file, function=self.name)


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...


@overload
def kernel(
    *, divisible: Sequence[str] = (), unit: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Kernel]: ...


def kernel(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    divisible: Sequence[str] = (),
    unit: Sequence[str] = (),
    **unknown: object,
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a Python function: `@tl.kernel`, or `@tl.kernel(unit=("stride",))`.

    A launch uses the kernel's *fast* specialization when all pointers are aligned to 16 bytes,
    every integer fits in 31 bits, those named in `divisible` are multiples of 16 and those in
    `unit` are 1; otherwise the *general* one, which assumes nothing. Both give the same results.

    Raises KernelTypeError for a keyword that it does not take and for what is no function,
    KernelNameError for a name that is no parameter, and KernelSyntaxError for a parameter that a
    launch cannot give.
    """
    rule = SpecializationRule(divisible=tuple(divisible), unit=tuple(unit))
    if fn is None:
        return lambda function: _make(function, rule, unknown)
    return _make(fn, rule, unknown)


def classify(value: object) -> Capture | None:
    """Return `value` if a kernel may name it, else None."""
    known = (
        isinstance(value, (Kernel, constexpr, DType, ModuleType))
        or value is constexpr
        or is_function(value)
        or is_builtin(value)
    )
    return value if known else None  # type: ignore[return-value]  # narrowed by the functions above


def _make(
    fn: Callable[..., Any], rule: SpecializationRule, unknown: Mapping[str, object]
) -> Kernel:
    # A decorator below ours may have wrapped the function; what counts is what the user wrote.
    function = inspect.unwrap(fn) if not isinstance(fn, Kernel) else fn
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        msg = f"@tl.kernel goes on a function defined with `def`, got {fn!r}"
        raise KernelTypeError(msg)
    if unknown:
        place = _keyword_location(function, next(iter(unknown)))
        allowed = "divisible and unit"
        triton.refuse_keywords("@tl.kernel", unknown, triton.DECORATOR, allowed, (place,))
    return Kernel(function, rule)


def _keyword_location(function: FunctionType, name: str) -> SourceLocation:
    """Return where a decorator of a function has a keyword, its first line if it is not seen."""
    with suppress(KernelSyntaxError):
        for decorator in source.find_tree(function).decorator_list:
            for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
                if keyword.arg == name:
                    file = function.__code__.co_filename
                    return source.location_of_node(keyword, file=file, function=function.__name__)
    return source.location_of_function(function)


def _references(kernel: Kernel) -> dict[str, Capture]:
    found: dict[str, Capture] = {}
    for name in names.free_names(kernel.tree):
        path, value = _follow(kernel, name)
        if path not in found:
            found[path] = _checked(kernel, path, value, name.node)
    for text in names.local_annotations(kernel.tree):
        if names.is_constexpr_annotation(text, partial(names.look_up, kernel.fn)):
            found[text] = constexpr
    return found


def _follow(kernel: Kernel, name: names.FreeName) -> tuple[str, object]:
    root, *attributes = name.path
    value = names.look_up(kernel.fn, root)
    if value is names.MISSING:
        known = [
            *kernel.fn.__globals__,
            *kernel.fn.__code__.co_varnames,
            *(b.__name__ for b in BUILTINS),
        ]
        message = f"name `{root}` is not defined"
        raise names.not_found(message, root, known, kernel.locate(name.node))
    path = root
    for attribute in attributes:
        if not isinstance(value, ModuleType):
            break
        module, value = value, names.attribute_of(value, attribute)
        if value is names.MISSING:
            message = f"module `{module.__name__}` has no `{attribute}`"
            if module.__name__ == _LANGUAGE and attribute in triton.NAMES:
                message = triton.with_remedy(message, attribute, triton.NAMES)
                raise KernelNameError(message, (kernel.locate(name.node),))
            known = getattr(module, "__all__", dir(module))
            raise names.not_found(message, attribute, known, kernel.locate(name.node))
        path += f".{attribute}"
    return path, value


def _checked(kernel: Kernel, path: str, value: object, node: ast.expr) -> Capture:
    capture = classify(value)
    if capture is not None and not isinstance(capture, ModuleType):
        return capture
    location = kernel.locate(node)
    if isinstance(value, ModuleType):
        msg = f"module `{path}` is used as a value; name what you want of it, such as `{path}.name`"
    elif isinstance(value, bool | int | float | str):
        dotted, _, last = path.rpartition(".")
        name, constant = (last.upper(), path) if dotted else (path, repr(value))
        msg = (
            f"`{path}` is a plain {type(value).__name__} ({value!r}) outside the kernel. A kernel "
            f"is compiled ahead of its launches, so it reads only constants: write {name} = "
            f"tl.constexpr({constant}), or pass the value as an argument"
        )
    elif callable(value):
        msg = (
            f"`{path}` is a Python function that the tile language does not know; only functions "
            "of tilewright.language, kernels (decorate it with @tl.kernel) and the builtins "
            f"{', '.join(b.__name__ for b in BUILTINS)} can be called in a kernel"
        )
    else:
        msg = (
            f"`{path}` is a {type(value).__name__} outside the kernel; a kernel may name other "
            "kernels, tl.constexpr values, dtypes and what tilewright.language offers"
        )
    raise KernelNameError(msg, (location,))


def _key_sources(closure: tuple[Kernel, ...]) -> tuple[keys.KernelSource, ...]:
    return tuple(
        keys.KernelSource(
            name=kernel.name,
            body=tuple(kernel.tree.body),
            parameters=tuple((p.name, _parameter_text(p)) for p in kernel.parameters),
            rule=kernel.rule,
            captures=tuple(
                (path, _capture_text(capture, closure))
                for path, capture in kernel.references.items()
            ),
            locate=kernel.locate,
        )
        for kernel in closure
    )


def _parameter_text(parameter: KernelParameter) -> str:
    kind = "constexpr" if parameter.is_constexpr else "runtime"
    if isinstance(parameter.default, NoDefault):
        return kind
    return f"{kind} default {keys.value_text(parameter.default)}"


def _capture_text(capture: Capture, closure: tuple[Kernel, ...]) -> str:
    # Kernels are told apart by their place in the closure: module and file must not enter a key.
    if isinstance(capture, Kernel):
        return f"kernel {closure.index(capture)}"
    if isinstance(capture, constexpr):
        return f"constexpr {keys.value_text(capture.value)}"
    if isinstance(capture, DType):
        return f"dtype {capture}"
    if capture is constexpr:
        return keys.CONSTEXPR_TYPE
    kind = "function" if is_function(capture) else "builtin"
    return f"{kind} {capture.__name__}"
