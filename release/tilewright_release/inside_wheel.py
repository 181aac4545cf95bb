"""Runs inside a clean environment, from the wheel alone, and reports what it saw as JSON.

`check-wheel` starts this file as a script with the folder that the wheel was unpacked to: it
imports the library under an audit hook, reads every blob of the bundle through the library's own
reader, and resolves every kernel on every compute capability. Nothing outside the standard library
and the wheel is imported, and nothing is judged here.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn")
_CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo")
_WRITES = ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate")
_WRITE_FLAGS = 0o3  # O_WRONLY | O_RDWR


def main(site: str, capabilities: str, driver_version: str) -> None:
    """Print the report for the wheel unpacked in `site`."""
    events: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        if event in (*_STARTS, *_CONNECTS, *_WRITES):
            events.append(f"{event} {arguments[:1]!r}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITE_FLAGS:
            events.append(f"open for writing {arguments[0]!r}")
        elif event == "ctypes.dlopen" and "cuda" in str(arguments[0]):
            events.append(f"dlopen {arguments[0]!r}")

    sys.dont_write_bytecode = True
    sys.path.insert(0, site)
    sys.addaudithook(watch)
    import tilewright
    import tilewright.language

    modules = sorted({name.partition(".")[0] for name in sys.modules})
    imported_from = str(Path(tilewright.__file__).parent)
    watching = False
    report = {
        "imported_from": imported_from,
        "modules": modules,
        "events": events,
        "version": tilewright.__version__,
        "blobs": _read_blobs(),
        "resolution": _resolve(capabilities.split(), int(driver_version)),
    }
    sys.stdout.write(json.dumps(report))


def _read_blobs() -> dict[str, Any]:
    from tilewright.errors import FormatError
    from tilewright.runtime.store import bundles

    read, damaged = 0, []
    for bundle in bundles():
        for key, entry in bundle.manifest.entries.items():
            for target, blob in entry.blobs.items():
                try:
                    bundle.read(blob)
                    read += 1
                except FormatError as error:
                    damaged.append(f"{entry.kernel} {key} {target}: {error}")
    return {"read": read, "damaged": damaged}


def _resolve(capabilities: list[str], driver_version: int) -> dict[str, dict[str, int]]:
    from tilewright.abi.target import ComputeCapability
    from tilewright.runtime.device import imagined
    from tilewright.runtime.resolve import Bundled, Offers, Policy, resolve
    from tilewright.runtime.store import bundles

    table: dict[str, dict[str, int]] = {}
    for text in capabilities:
        device = imagined(ComputeCapability.parse(text), driver_version=driver_version)
        chosen: Counter[str] = Counter()
        for bundle in bundles():
            for key, entry in bundle.manifest.entries.items():
                decision = resolve(
                    entry.kernel,
                    entry.signature,
                    key,
                    offers=Offers((Bundled(entry),), None, "not installed", None),
                    device=device,
                    policy=Policy(),
                )
                first = decision.candidates[0] if decision.candidates else None
                cubins = {blob.target for blob in entry.blobs.values() if blob.kind == "cubin"}
                # What is declared for one target alone is the floor's elsewhere, on purpose.
                if first is None or first.target in cubins or len(cubins) > 1:
                    chosen[first.target if first else "none"] += 1
        table[text] = dict(sorted(chosen.items()))
    return table


if __name__ == "__main__":
    main(*sys.argv[1:])
