"""Runs inside a clean environment, from the wheel alone, and reports what it saw as JSON.

`check-wheel` starts this file as a script with the folder that the wheel was unpacked to: it
imports the library, launches for the first time, and reads and resolves the whole bundle, all under
an audit hook. Nothing outside the standard library and the wheel is imported, and nothing is judged
here.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.abi.manifest import Entry

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn")
_CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo")
_WRITES = ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate")
_WRITE_FLAGS = 0o3  # O_WRONLY | O_RDWR

# Vectors of an f32 addition that its unaligned and aligned forms serve alike.
_ELEMENTS = 4096


class Watch:
    """An audit hook that can be asked what happened while it was on."""

    def __init__(self) -> None:
        self._events: list[str] | None = None
        sys.addaudithook(self._see)

    @contextmanager
    def on(self) -> Iterator[list[str]]:
        """Collect what happens in the block: processes, connections, writes, the driver opened."""
        events = self._events = []
        try:
            yield events
        finally:
            self._events = None

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._events is None:
            return
        if event in (*_STARTS, *_CONNECTS, *_WRITES):
            self._events.append(f"{event} {arguments[:1]!r}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITE_FLAGS:
            self._events.append(f"open for writing {arguments[0]!r}")
        elif event == "ctypes.dlopen" and "cuda" in str(arguments[0]):
            self._events.append(f"dlopen {arguments[0]!r}")


def main(form: str, site: str, *words: str) -> None:
    """Print the report `form` for the wheel unpacked in `site`."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, site)
    reports: dict[str, Callable[..., dict[str, Any]]] = {
        "contents": _report_contents,
        "launch": _report_launch,
    }
    sys.stdout.write(json.dumps(reports[form](Watch(), *words)))


def _report_contents(watch: Watch, capabilities: str, drivers: str) -> dict[str, Any]:
    """Import the library, read every blob, resolve every kernel for each GPU and driver."""
    with watch.on() as events:
        import tilewright
        import tilewright.language
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    return {
        "imported_from": str(Path(tilewright.__file__).parent),
        "modules": modules,
        "events": events,
        "version": tilewright.__version__,
        "blobs": _read_blobs(),
        "resolution": {
            driver: _resolve(capabilities.split(), _version_number(driver))
            for driver in drivers.split()
        },
    }


def _report_launch(watch: Watch) -> dict[str, Any]:
    """Launch for the first time, on the GPU that the driver here shows; on none, in NumPy."""
    error = ""
    with watch.on() as events:
        import numpy as np

        import tilewright as tw

        values = np.ones(_ELEMENTS, np.float32)
        try:
            device_values = tw.from_numpy(values)
            tw.add(device_values, device_values)
            tw.synchronize()
        except tw.errors.NoDriverError as found:
            error = f"{type(found).__name__}: {found}"
            tw.add(values, values)
    return {
        "imported_from": str(Path(tw.__file__).parent),
        "events": events,
        "resolved": list(tw.resolved()),
        "error": error,
        "children": _children(),
    }


def _children() -> list[str]:
    """Return processes that this one started and that run still, whatever started them."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [pid for task in tasks for pid in task.read_text(encoding="ascii").split()]


def _read_blobs() -> dict[str, Any]:
    from tilewright.errors import FormatError
    from tilewright.runtime.store import bundles

    read, damaged = 0, []
    for bundle in bundles():
        try:
            entries = bundle.manifest.entries
        except FormatError as error:
            damaged.append(str(error))
            continue
        for key, entry in entries.items():
            for target, blob in entry.blobs.items():
                try:
                    bundle.read(blob)
                    read += 1
                except FormatError as error:
                    damaged.append(f"{entry.kernel} {key} {target}: {error}")
    return {"read": read, "damaged": damaged}


def _resolve(capabilities: list[str], driver_version: int) -> dict[str, dict[str, int]]:
    from tilewright.abi.manifest import blob_target
    from tilewright.abi.target import ComputeCapability
    from tilewright.runtime.device import imagined
    from tilewright.runtime.resolve import Bundled, Offers, Policy, resolve
    from tilewright.runtime.store import every_entry

    entries = list(every_entry())
    every = set().union(*(_cubin_targets(entry) for _, _, entry in entries))
    # What is declared for one target alone is the floor's elsewhere, on purpose, and so is there
    # what the same kernel has instead.
    alone: dict[str, set[str]] = {}
    for _, _, entry in entries:
        if len(cubins := _cubin_targets(entry)) == 1:
            alone.setdefault(entry.kernel, set()).update(cubins)
    table: dict[str, dict[str, int]] = {}
    for text in capabilities:
        device = imagined(ComputeCapability.parse(text), driver_version=driver_version)
        chosen: Counter[str] = Counter()
        for _, key, entry in entries:
            decision = resolve(
                entry.kernel,
                entry.signature,
                key,
                offers=Offers((Bundled(entry),), (), "not installed", None),
                device=device,
                policy=Policy(),
            )
            first = decision.candidates[0] if decision.candidates else None
            target = "none" if first is None else blob_target(first.target)
            cubins = _cubin_targets(entry)
            is_left_out = len(cubins) == 1 or every - cubins <= alone.get(entry.kernel, set())
            if first is None or target in cubins or cubins == every or not is_left_out:
                chosen[target] += 1
        table[text] = dict(sorted(chosen.items()))
    return table


def _cubin_targets(entry: Entry) -> set[str]:
    return {blob.target for blob in entry.blobs.values() if blob.kind == "cubin"}


def _version_number(text: str) -> int:
    """Return 12.8 as the driver says it, 12080."""
    major, _, minor = text.partition(".")
    return int(major) * 1000 + int(minor) * 10


if __name__ == "__main__":
    main(*sys.argv[1:])
