from __future__ import annotations

import io

from tilewright_release.progress import show_progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_first_and_a_last_line() -> None:
    stream = io.StringIO()
    with show_progress("kernels", total=3, stream=stream) as progress:
        for label in ("a", "b", "c"):
            progress.advance(label)
    assert stream.getvalue() == "kernels: 1/3, 0 s, last a\nkernels: 3/3, 0 s, last c\n"


def test_a_terminal_gets_a_bar() -> None:
    stream = _Terminal()
    with show_progress("kernels", total=2, stream=stream) as progress:
        progress.advance("a")
        progress.advance("b")
    assert "2/2" in stream.getvalue()
    assert "━" in stream.getvalue()
