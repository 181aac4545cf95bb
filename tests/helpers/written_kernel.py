"""A kernel from text alone: no file, so a property test can make thousands.

`linecache` is told the text, which is all that a kernel needs to find its source.
"""

from __future__ import annotations

import itertools
import linecache
from typing import Any

from tilewright.language import Kernel

_COUNT = itertools.count()


def written_kernel(text: str, *, file: str | None = None, module: str = "written") -> Kernel:
    """Return the last kernel that `text` defines; the text brings its own imports."""
    file = file or f"<written kernel {next(_COUNT)}>"
    namespace: dict[str, Any] = {"__name__": module}
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return [value for value in namespace.values() if isinstance(value, Kernel)][-1]
