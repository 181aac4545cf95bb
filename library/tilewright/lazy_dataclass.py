"""`dataclass` as the standard library has it, but each method is written when it is first called.

The standard decorator compiles six methods for each class, which takes 0.6 ms: with a hundred and
fifty classes more than half of what importing the compiler takes, and a process waits for that
whose kernel is new. Most of these methods are never called. Types are checked as for the standard
decorator, and `fields`, `replace`, `asdict`, `match` and `pickle` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from dataclasses import MISSING, FrozenInstanceError

    def dataclass(*, slots, frozen=False, eq=True, kw_only=False):
        """Make a class with slots that has no base with fields; other kinds need the standard's."""
        assert slots, "only classes with slots"
        return lambda cls: _with_methods(cls, frozen=frozen, eq=eq, kw_only=kw_only)

    def _with_methods(cls, *, frozen, eq, kw_only):
        assert not any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__)
        fields = {name: _field(cls, name, kw_only=kw_only) for name in cls.__annotations__}
        names = tuple(fields)
        namespace = {
            name: value
            for name, value in vars(cls).items()
            if name not in (*names, "__dict__", "__weakref__")
        }
        own = {
            "__init__": _written_at_first_call("__init__", lambda: _init(made, fields, frozen)),
            "__repr__": _repr,
        }
        if eq:
            own["__eq__"] = _written_at_first_call("__eq__", lambda: _eq(made, names))
            hashed = _written_at_first_call("__hash__", lambda: _hash(names))
            own["__hash__"] = hashed if frozen else None
        if frozen:
            own |= {
                "__setattr__": _refuse_to_set,
                "__delattr__": _refuse_to_delete,
                "__getstate__": _getstate,
                "__setstate__": _setstate,
            }
        namespace = own | namespace
        namespace["__slots__"] = names
        namespace["__match_args__"] = () if kw_only else names
        namespace["__dataclass_fields__"] = fields
        made = type(cls)(cls.__name__, cls.__bases__, namespace)
        made.__qualname__ = cls.__qualname__
        return made

    def _field(cls, name, *, kw_only):
        given = vars(cls).get(name, MISSING)
        field = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        field.name, field.type, field.kw_only = name, cls.__annotations__[name], kw_only
        field._field_type = dataclasses._FIELD
        return field

    def _written_at_first_call(name, write):
        def method(self, *arguments, **keywords):
            # Of two threads that come here both write the same.
            written = write()
            written.__qualname__ = f"{type(self).__qualname__}.{name}"
            setattr(type(self), name, written)
            return written(self, *arguments, **keywords)

        method.__name__ = name
        return method

    def _init(cls, fields, frozen):
        """Write `__init__`, with what an assignment to a frozen object would refuse."""
        known = {"_missing": MISSING}
        required, optional, body = [], [], []
        for name, field in fields.items():
            value = name
            if field.default is not MISSING:
                known[f"_default_{name}"] = field.default
                value = name if field.init else f"_default_{name}"
                parameter = f"{name}=_default_{name}"
            elif field.default_factory is not MISSING:
                known[f"_make_{name}"] = field.default_factory
                made = f"_make_{name}()"
                value = f"{made} if {name} is _missing else {name}" if field.init else made
                parameter = f"{name}=_missing"
            else:
                value = name if field.init else None
                parameter = name
            if field.init:
                (required if parameter == name else optional).append(parameter)
            if value is not None:
                known[f"_set_{name}"] = vars(cls)[name].__set__
                body.append(f"_set_{name}(self, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        star = ["*"] if any(field.kw_only for field in fields.values()) else []
        parameters = ", ".join(["self", *star, *required, *optional])
        return _compiled("__init__", parameters, body or ["pass"], known)

    def _eq(cls, names):
        same = " and ".join(f"self.{name} == other.{name}" for name in names) or "True"
        body = ["if other.__class__ is not _cls:", "    return NotImplemented", f"return {same}"]
        return _compiled("__eq__", "self, other", body, {"_cls": cls})

    def _hash(names):
        values = "".join(f"self.{name}, " for name in names)
        return _compiled("__hash__", "self", [f"return hash(({values}))"], {})

    def _compiled(name, parameters, body, known):
        text = f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in body)
        namespace = {}
        exec(text, known, namespace)
        return namespace[name]

    def _repr(self):
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _refuse_to_set(self, name, value):  # noqa: ARG001
        msg = f"cannot assign to field {name!r}"
        raise FrozenInstanceError(msg)

    def _refuse_to_delete(self, name):  # noqa: ARG001
        msg = f"cannot delete field {name!r}"
        raise FrozenInstanceError(msg)

    def _getstate(self):
        return [getattr(self, name) for name in type(self).__slots__]

    def _setstate(self, state):
        for name, value in zip(type(self).__slots__, state, strict=True):
            object.__setattr__(self, name, value)


__all__ = ["dataclass"]
