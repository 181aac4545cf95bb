"""Kernel signatures: parameter types, constexpr values and what a specialization may assume.

A kernel has exactly two specializations, chosen all or nothing by `specialize`:

- *fast*: every pointer is aligned to 16 bytes, every parameter listed in
  `SpecializationRule.divisible` is a multiple of 16, every one listed in `unit` is 1, and every
  integer fits in 31 bits;
- *general*: nothing is assumed.

One function decides, so that the bundle, the launch path and the JIT cannot disagree. All or
nothing keeps the bundle at two entries a configuration instead of two to the power of the
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilewright.abi.dtypes import BY_NAME, DType
from tilewright.errors import FormatError
from tilewright.lazy_dataclass import dataclass

Specialization = Literal["fast", "general"]
ConstexprValue = int | float | bool | str | None | DType
CONSTEXPR_TYPES = (int, float, bool, str, type(None), DType)

# What a launch takes: a block has at most 1024 threads, and the launcher keeps both numbers as an
# unsigned char (library/native/prepared.c).
NUM_WARPS = (1, 2, 4, 8, 16, 32)
NUM_STAGES = range(1, 256)

DIVISOR = 16
INT31_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to global memory; `aligned` means a multiple of 16 bytes."""

    dtype: DType
    aligned: bool = False

    def __str__(self) -> str:
        return f"*{self.dtype}" + (":16" if self.aligned else "")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time scalar; `divisible` by 16, `unit` is 1, `small` fits in 31 bits."""

    dtype: DType
    divisible: bool = False
    unit: bool = False
    small: bool = False

    def __str__(self) -> str:
        flags = "16" if self.divisible else ""
        flags += ("u" if self.unit else "") + ("s" if self.small else "")
        return f"{self.dtype}" + (f":{flags}" if flags else "")


@dataclass(frozen=True, slots=True, eq=False)
class Constexpr:
    """A value known at compile time; it takes no place among the kernel's run-time parameters.

    Two are equal when their text is: 1, 1.0 and True compile to different code, as do 0.0 and -0.0,
    although Python calls them equal.
    """

    value: ConstexprValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constexpr) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        # A dtype and a string of the same spelling are different values, and True is not 1.
        if isinstance(self.value, DType):
            return f"=dtype({self.value.name})"
        # !a, not !r: what repr escapes follows the Unicode tables of the running Python.
        return f"={self.value!a}"


Parameter = Pointer | Scalar | Constexpr


@dataclass(frozen=True, slots=True)
class SpecializationRule:
    """What a kernel's fast specialization assumes beyond aligned pointers, by parameter."""

    divisible: tuple[str, ...] = ()
    unit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """The types of all parameters of a kernel in declaration order, with the launch options.

    `num_warps` is the number of warps of one program, `num_stages` the depth of pipelined loops.
    """

    parameters: tuple[tuple[str, Parameter], ...]
    specialization: Specialization = "general"
    num_warps: int = 4
    num_stages: int = 3

    def __str__(self) -> str:
        """Return the text that enters the source key and the manifest; it tells all apart."""
        parameters = ", ".join(f"{name}{_separator(p)}{p}" for name, p in self.parameters)
        return (
            f"({parameters}) {self.specialization} num_warps={self.num_warps} "
            f"num_stages={self.num_stages}"
        )

    @property
    def constexprs(self) -> dict[str, ConstexprValue]:
        """Values of the compile-time parameters by name."""
        return {name: p.value for name, p in self.parameters if isinstance(p, Constexpr)}

    @property
    def runtime(self) -> tuple[tuple[str, Pointer | Scalar], ...]:
        """Parameters that are passed at launch, in order."""
        return tuple((name, p) for name, p in self.parameters if not isinstance(p, Constexpr))


@dataclass(frozen=True, slots=True)
class PointerFact:
    """What a launch knows of a pointer argument."""

    dtype: DType
    address: int


@dataclass(frozen=True, slots=True)
class ScalarFact:
    """What a launch knows of a scalar argument."""

    dtype: DType
    value: int | float | bool


Fact = PointerFact | ScalarFact | Constexpr


def specialize(
    facts: Mapping[str, Fact],
    *,
    rule: SpecializationRule,
    num_warps: int,
    num_stages: int,
) -> KernelSignature:
    """Choose the specialization of a launch from its arguments, in declaration order of `facts`."""
    fast = all(_allows_fast(name, fact, rule) for name, fact in facts.items())
    return KernelSignature(
        parameters=tuple(
            (name, _parameter(name, fact, rule, fast=fast)) for name, fact in facts.items()
        ),
        specialization="fast" if fast else "general",
        num_warps=num_warps,
        num_stages=num_stages,
    )


def declared(
    parameters: Mapping[str, DType | tuple[DType] | Constexpr],
    *,
    rule: SpecializationRule,
    specialization: Specialization,
    num_warps: int,
    num_stages: int,
) -> KernelSignature:
    """Build a signature from a declaration, for the bundle: `(dtype,)` is a pointer."""
    facts: dict[str, Fact] = {}
    for name, declaration in parameters.items():
        if isinstance(declaration, Constexpr):
            facts[name] = declaration
        elif isinstance(declaration, tuple):
            facts[name] = PointerFact(declaration[0], 0)
        else:
            facts[name] = ScalarFact(declaration, 1 if name in rule.unit else 0)
    fast = specialization == "fast"
    return KernelSignature(
        parameters=tuple(
            (name, _parameter(name, fact, rule, fast=fast)) for name, fact in facts.items()
        ),
        specialization=specialization,
        num_warps=num_warps,
        num_stages=num_stages,
    )


def parse_dtype(text: str) -> DType:
    """Return the dtype of that name; raises FormatError listing the names that exist."""
    dtype = BY_NAME.get(text)
    if dtype is None:
        msg = f"unknown dtype {text!r}; known are {', '.join(BY_NAME)}"
        raise FormatError(msg)
    return dtype


def _separator(parameter: Parameter) -> str:
    return "" if isinstance(parameter, Constexpr) else ":"


def _allows_fast(name: str, fact: Fact, rule: SpecializationRule) -> bool:
    match fact:
        case PointerFact():
            return fact.address % DIVISOR == 0
        case ScalarFact():
            if fact.dtype.is_float or fact.dtype.bits == 1:
                return True
            if name in rule.unit:
                return fact.value == 1
            if not -INT31_MAX <= fact.value <= INT31_MAX:
                return False
            return name not in rule.divisible or fact.value % DIVISOR == 0
        case Constexpr():
            return True


def _parameter(name: str, fact: Fact, rule: SpecializationRule, *, fast: bool) -> Parameter:
    match fact:
        case PointerFact():
            return Pointer(fact.dtype, aligned=fast)
        case ScalarFact():
            integer = fast and fact.dtype.is_integer and fact.dtype.bits > 1
            return Scalar(
                fact.dtype,
                divisible=integer and name in rule.divisible,
                unit=integer and name in rule.unit,
                small=integer,
            )
        case Constexpr():
            return fact
