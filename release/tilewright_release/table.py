"""A TOML file as typed reads that name the file and the key in every error.

Every read takes its key out of the table, and `finish` refuses what is left: a misspelt key would
otherwise be a limit that nobody checks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tilewright.errors import FormatError


class Table:
    """A table of a TOML file; `path` is its dotted name in the file, empty at the top."""

    def __init__(self, file: Path, values: dict[str, object], path: str = "") -> None:
        self.file = file
        self.path = path
        self._values = dict(values)

    def __contains__(self, key: str) -> bool:
        """Whether `key` is present and not read yet."""
        return key in self._values

    def text(self, key: str, default: str | None = None) -> str:
        """Read a string."""
        value = self._take(key, default)
        if not isinstance(value, str):
            self.fail(key, f"must be a string, is {value!r}")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """Read an integer that is not negative."""
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(key, f"must be an integer of at least 0, is {value!r}")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Read a list of strings."""
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            self.fail(key, f"must be a list of strings, is {value!r}")
        return tuple(value)

    def scalars(self, key: str) -> dict[str, str | int | float | bool]:
        """Read a table whose values are strings, numbers or booleans; absent is empty."""
        return {
            name: value
            if isinstance(value, str | int | float | bool)
            else self.fail(f"{key}.{name}", f"must be a string, number or boolean, is {value!r}")
            for name, value in self._take_table(key).items()
        }

    def choices(self, key: str) -> dict[str, tuple[str | int | float | bool, ...]]:
        """Read a table of strings, numbers and booleans, or lists of them; absent is empty."""
        found = {}
        for name, value in self._take_table(key).items():
            values = tuple(value) if isinstance(value, list) else (value,)
            if not values or not all(isinstance(v, str | int | float | bool) for v in values):
                self.fail(
                    f"{key}.{name}",
                    f"must be a string, number or boolean, or a list of them, is {value!r}",
                )
            found[name] = values
        return found

    def table(self, key: str) -> Table:
        """Read a table; absent is empty."""
        return Table(self.file, self._take_table(key), self._name(key))

    def tables(self, key: str) -> list[Table]:
        """Read an array of tables, of which there must be at least one."""
        value = self._take(key, None)
        if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
            self.fail(key, f"must be one or more [[{self._name(key)}]] tables, is {value!r}")
        return [
            Table(self.file, item, f"{self._name(key)}[{index}]")
            for index, item in enumerate(value)
        ]

    def names(self) -> Iterator[str]:
        """Return the keys not read yet, in order of the file."""
        return iter(tuple(self._values))

    def finish(self) -> None:
        """Refuse keys that nothing read."""
        if self._values:
            self.fail(next(iter(self._values)), "is not a key that is known here")

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise FormatError about `key`."""
        msg = f"{self.file}: {self._name(key)} {problem}"
        raise FormatError(msg)

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _take(self, key: str, default: object) -> object:
        value = self._values.pop(key, default)
        if value is None:
            self.fail(key, "is missing")
        return value

    def _take_table(self, key: str) -> dict[str, object]:
        value = self._take(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"must be a table, is {value!r}")
        return value


def read_table(file: Path) -> Table:
    """Read a TOML file; raises FormatError with the file's name when it is none."""
    try:
        return Table(file, tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        msg = f"{file} does not exist"
        raise FormatError(msg) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file} is not valid TOML, which is UTF-8: {error}"
        raise FormatError(msg) from error
