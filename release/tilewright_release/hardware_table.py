"""The table of GPUs in docs/hardware.md, from `prebuilt/validated/`."""

from __future__ import annotations

from pathlib import Path

from tilewright.errors import ReleaseError
from tilewright.runtime.device import format_version
from tilewright_release.validated import ValidatedGpu, Validations

BEGIN = "<!-- written by `tilewright dev validate --docs` -->"
END = "<!-- end of the table -->"

_HEAD = (
    "| GPU | compute capability | driver for CUDA | binaries | ran | right | date |",
    "|---|---|---|---|---|---|---|",
)


def format_table(validations: Validations) -> str:
    """Return the table as text, one row a GPU."""
    rows = [_row(file) for file in sorted(validations.files, key=lambda file: file.gpu)]
    if not rows:
        rows = ["| none yet | | | | | | |"]
    return "\n".join((*_HEAD, *rows))


def table_in(text: str) -> str:
    """Return the table that a document holds; raises ReleaseError when it has no place for one."""
    _, begin, rest = text.partition(BEGIN)
    table, end, _ = rest.partition(END)
    if not begin or not end:
        msg = f"the document has no lines {BEGIN!r} and {END!r} with the table between them"
        raise ReleaseError(msg)
    return table.strip()


def write_table(document: Path, validations: Validations) -> None:
    """Replace the table of a document."""
    text = document.read_text(encoding="utf-8")
    table_in(text)
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = format_table(validations)
    document.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


def _row(file: ValidatedGpu) -> str:
    driven = file.declared - sum(file.skipped.values())
    cells = (
        file.gpu,
        file.compute_capability,
        format_version(file.driver),
        str(file.declared),
        str(driven),
        str(driven - file.failed),
        file.date,
    )
    return f"| {' | '.join(cells)} |"
