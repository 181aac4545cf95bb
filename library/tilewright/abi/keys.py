"""From a kernel's syntax trees to its digest, source key and build key: labelled fields, hashed.

The trees are written by our own serialiser, over a whitelist of node kinds and fields in which
absent equals empty; an unknown node is an error. So the key depends on what the kernel says and on
nothing else: not on comments, docstrings, layout of the text, paths, lines, environment or the
version of Python, whose `ast.dump` differs from release to release. Every key is a hash over
(label, text) fields, kept apart by their lengths; two keys that differ are explained by the first
field that does.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

from tilewright.abi.dtypes import DType
from tilewright.abi.signature import ConstexprValue, KernelSignature, SpecializationRule
from tilewright.errors import KernelSyntaxError, SourceLocation
from tilewright.lazy_dataclass import dataclass

SCHEMA = 1
"""Enters every key. Raise it when the serialised form changes; that orphans every bundle."""

CONSTEXPR_TYPE = "type constexpr"
"""The text of a capture that is `tl.constexpr` itself, the annotation of a local constant."""

Field = tuple[str, str]

# The kinds of expression a key can hold, with the fields that carry meaning.
_EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "Attribute": ("value", "attr"),
    "BinOp": ("left", "op", "right"),  # written by _chain
    "BoolOp": ("op", "values"),
    "Call": ("func", "args", "keywords"),
    "Compare": ("left", "ops", "comparators"),
    "FormattedValue": ("value", "conversion", "format_spec"),
    "IfExp": ("test", "body", "orelse"),
    "JoinedStr": ("values",),
    "List": ("elts",),
    "Name": ("id",),
    "Slice": ("lower", "upper", "step"),
    "Starred": ("value",),
    "Subscript": ("value", "slice"),
    "Tuple": ("elts",),
    "UnaryOp": ("op", "operand"),
    "keyword": ("arg", "value"),
}

_OPERATORS = frozenset(
    {
        "Add", "And", "BitAnd", "BitOr", "BitXor", "Div", "Eq", "FloorDiv", "Gt", "GtE", "In",
        "Invert", "Is", "IsNot", "LShift", "Lt", "LtE", "MatMult", "Mod", "Mult", "Not", "NotEq",
        "NotIn", "Or", "Pow", "RShift", "Sub", "UAdd", "USub",
    }
)  # fmt: skip

# Statements: the fields of their own, then the lists of statements inside them.
_STATEMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Assign": (("targets", "value"), ()),
    "AugAssign": (("target", "op", "value"), ()),
    "Break": ((), ()),
    "Continue": ((), ()),
    "Expr": (("value",), ()),
    "For": (("target", "iter"), ("body", "orelse")),
    "If": (("test",), ("body", "orelse")),
    "Pass": ((), ()),
    "Return": (("value",), ()),
    "While": (("test",), ("body", "orelse")),
}

_REMEDIES = {
    "Assert": "use tl.static_assert for what is known at compile time",
    "AsyncFor": "use a plain for",
    "Dict": "pass the values as arguments",
    "DictComp": "use a loop",
    "FunctionDef": "write a second kernel outside and call it",
    "GeneratorExp": "use a loop",
    "Lambda": "write a second kernel and call it",
    "ListComp": "use a loop, or tl.static_range",
    "Match": "use if and elif",
    "NamedExpr": "assign in a statement of its own",
    "Raise": "use tl.static_assert for what is known at compile time",
    "Try": "nothing in a kernel raises",
    "With": "remove it",
}


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What decides the digest of one kernel of a closure.

    `parameters` and `captures` are (name, text) pairs; a captured kernel is `kernel N`, its index
    in the closure. `locate` gives the position of a node for errors and enters no key.
    """

    name: str
    body: tuple[ast.stmt, ...]
    parameters: tuple[tuple[str, str], ...]
    rule: SpecializationRule
    captures: tuple[tuple[str, str], ...]
    locate: Callable[[ast.AST], SourceLocation]


def kernel_fields(closure: Sequence[KernelSource]) -> tuple[Field, ...]:
    """Return the labelled fields of a kernel and all that it calls, the kernel itself first.

    Raises KernelSyntaxError, with the user's line, for a node outside the whitelist.
    """
    fields: list[Field] = [("schema", str(SCHEMA)), ("kernels", str(len(closure)))]
    for index, source in enumerate(closure):
        prefix = f"kernel {index} {source.name}"
        fields.append((f"{prefix}: name", source.name))
        fields.append((f"{prefix}: parameters", ", ".join(name for name, _ in source.parameters)))
        fields += [(f"{prefix}: parameter {name}", text) for name, text in source.parameters]
        # The rule is a set of names: their order in the decorator has no meaning.
        fields.append((f"{prefix}: divisible", ", ".join(sorted(set(source.rule.divisible)))))
        fields.append((f"{prefix}: unit", ", ".join(sorted(set(source.rule.unit)))))
        fields += _Writer(source).block(f"{prefix}: statement", source.body)
        # Last, so that a changed statement is explained by itself and not by a name it brought in.
        fields += [(f"{prefix}: {name} means", text) for name, text in sorted(source.captures)]
    return tuple(fields)


def kernel_digest(fields: Sequence[Field]) -> str:
    """Return the digest of a kernel from its `kernel_fields`."""
    return _digest("tilewright kernel", fields)


def source_key(kernel_digest: str, signature: KernelSignature) -> str:
    """Return the key of one entry: a kernel for one signature, whatever the target."""
    fields = [("schema", str(SCHEMA)), ("kernel", kernel_digest), ("signature", str(signature))]
    return _digest("tilewright source", fields)


def build_key(source_key: str, target: str, toolchain: str, fingerprint: str) -> str:
    """Return the key of one blob: an entry, a target, and what built it.

    `toolchain` names the tools, `fingerprint` our own compiler's sources.
    """
    fields = [
        ("schema", str(SCHEMA)),
        ("source", source_key),
        ("target", target),
        ("toolchain", toolchain),
        ("fingerprint", fingerprint),
    ]
    return _digest("tilewright build", fields)


def field_digests(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return the fields with their texts hashed, for a manifest that explains differences."""
    return tuple((label, hashlib.sha256(text.encode()).hexdigest()[:16]) for label, text in fields)


def explain_difference(before: Sequence[Field], after: Sequence[Field]) -> str | None:
    """Return the first labelled field in which two kernels differ, or None if they are the same."""
    old, new = dict(before), dict(after)
    for label, text in after:
        if label not in old:
            return f"{label}: new, {text}"
        if old[label] != text:
            return f"{label}: was {old[label]}, is {text}"
    for label, text in before:
        if label not in new:
            return f"{label}: gone, was {text}"
    return None


def value_text(value: ConstexprValue) -> str:
    """Return a compile-time value with its type, the same in every version of Python."""
    # The types are told apart because True is not 1 and 1 is not 1.0; float.hex is exact.
    match value:
        case None:
            return "None"
        case DType():
            return f"dtype {value.name}"
        case bool():
            return f"bool {value}"
        case int():
            return f"int {value}" if value.bit_length() <= 64 else f"int {value:#x}"
        case float():
            return f"float {value.hex()}"
        case str():
            return f"str {_quoted(value)}"


def annotation_text(annotation: ast.expr) -> str:
    """Return the dotted name that an annotation spells, quoted or not; empty for anything else."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.strip()
    parts: list[str] = []
    while isinstance(annotation, ast.Attribute):
        parts.append(annotation.attr)
        annotation = annotation.value
    return ".".join([annotation.id, *reversed(parts)]) if isinstance(annotation, ast.Name) else ""


class _Writer:
    """Writes the statements of one kernel as fields."""

    def __init__(self, source: KernelSource) -> None:
        self._source = source
        self._constexpr_names = {path for path, text in source.captures if text == CONSTEXPR_TYPE}

    def block(self, label: str, statements: Sequence[ast.stmt]) -> Iterator[Field]:
        """Yield a field for each statement and those inside it; bare strings are documentation."""
        written = [statement for statement in statements if not _is_text(statement)]
        for index, statement in enumerate(written):
            yield from self._statement(f"{label} {index}", statement)

    def _statement(self, label: str, statement: ast.stmt) -> Iterator[Field]:
        kind = type(statement).__name__
        if isinstance(statement, ast.AnnAssign):
            yield label, self._annotated(statement)
            return
        if kind not in _STATEMENTS:
            raise self._refused(statement)
        own, nested = _STATEMENTS[kind]
        yield label, self._node(kind, own, statement)
        for name in nested:
            yield from self.block(f"{label} {name}", getattr(statement, name, ()))

    def _annotated(self, statement: ast.AnnAssign) -> str:
        # `x: int = 1` says no more than `x = 1`; `x: tl.constexpr = 1` makes x known at compile
        # time.
        if annotation_text(statement.annotation) in self._constexpr_names:
            return self._node("Constexpr", ("target", "value"), statement)
        if statement.value is None:
            raise self._refused(statement)
        target, value = self._value(statement.target), self._value(statement.value)
        return f"Assign(targets=[{target}], value={value})"

    def _node(self, kind: str, fields: tuple[str, ...], node: ast.AST) -> str:
        written = [(name, getattr(node, name, None)) for name in fields]
        texts = [
            f"{name}={self._value(value)}" for name, value in written if value not in (None, [])
        ]
        return f"{kind}({', '.join(texts)})"

    def _value(self, value: object) -> str:
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, int):  # how an f-string converts a value
            return str(value)
        if isinstance(value, list):
            return f"[{', '.join(self._value(item) for item in value)}]"
        assert isinstance(value, ast.AST), f"{value!r} in a syntax tree"
        kind = type(value).__name__
        if kind in _OPERATORS:
            return kind
        if isinstance(value, ast.Constant) and isinstance(
            value.value, bool | int | float | str | None
        ):
            return f"({value_text(value.value)})"
        if kind not in _EXPRESSIONS:
            raise self._refused(value)
        if isinstance(value, ast.BinOp):
            return self._chain(value)
        if isinstance(value, ast.JoinedStr):
            value = ast.JoinedStr(_merged(value.values))
        return self._node(kind, _EXPRESSIONS[kind], value)

    def _chain(self, node: ast.expr) -> str:
        """Write `a + b + ...` from its innermost operation outwards: it may have any length."""
        operations = []
        while isinstance(node, ast.BinOp):
            operations.append(node)
            node = node.left
        text = self._value(node)
        for operation in reversed(operations):
            op, right = self._value(operation.op), self._value(operation.right)
            text = f"BinOp(left={text}, op={op}, right={right})"
        return text

    def _refused(self, node: ast.AST) -> KernelSyntaxError:
        kind = type(node).__name__
        remedy = f"; {_REMEDIES[kind]}" if kind in _REMEDIES else ""
        what = f"constant {node.value!r}" if isinstance(node, ast.Constant) else f"`{kind}`"
        msg = f"the tile language has no {what}{remedy}"
        return KernelSyntaxError(msg, (self._source.locate(node),))


def _merged(parts: Sequence[ast.expr]) -> list[ast.expr]:
    """Return the parts of an f-string as whole texts: Pythons cut them differently, or add ""."""
    merged: list[ast.expr] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
            merged[-1] = ast.Constant(str(last.value) + str(part.value))
        elif not isinstance(part, ast.Constant) or part.value:
            merged.append(part)
    return merged


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _quoted(text: str) -> str:
    # Not repr: which characters it escapes follows the Unicode tables of the running Python.
    return json.dumps(text)


def _digest(domain: str, fields: Sequence[Field]) -> str:
    digest = hashlib.sha256(domain.encode())
    for field in fields:
        for part in field:
            data = part.encode()
            digest.update(b"%d:" % len(data))
            digest.update(data)
    return digest.hexdigest()
