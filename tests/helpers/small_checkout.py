"""A checkout with two small kernels, so that the factory runs for real in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tilewright_release.checkout import Checkout

ROOT = Path(__file__).resolve().parents[2]

KERNELS = """\
import tilewright.language as tl


@tl.kernel
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)


@tl.kernel
def square(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, values * values, mask=mask)
"""

SIGNATURES = """\
family = "small"

[[kernel]]
kernel = "kernels.py:double"
dtypes = { T = ["f32", "f16"] }
parameters = { x = "*T", out = "*T", n = "i64" }
[[kernel.config]]
constexprs = { BLOCK = 128 }
num_warps = 1

[[kernel]]
kernel = "kernels.py:square"
parameters = { x = "*f32", out = "*f32", n = "i64" }
[[kernel.config]]
constexprs = { BLOCK = 256 }
num_warps = 2
specializations = ["general"]
"""

BUDGETS = """\
[bundle]
entries = 10
packed_bytes = 100_000
cold_core_seconds = 600

[family.small]
entries = 5
registers = 64
shared_bytes = 1024
"""

ENTRIES = 5


@dataclass(frozen=True, slots=True)
class SmallCheckout:
    """The checkout with the folders that a test of the factory uses."""

    root: Path
    checkout: Checkout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkout", Checkout(self.root))

    @property
    def cache(self) -> Path:
        """The build caches."""
        return self.root / "cache"

    def write(self, name: str, text: str) -> Path:
        """Write a file of the checkout."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def replace(self, name: str, old: str, new: str) -> None:
        """Change a file of the checkout; `old` must be in it."""
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text, f"{name} has no {old!r}"
        self.write(name, text.replace(old, new))


def make_checkout(root: Path) -> SmallCheckout:
    """Write the small checkout to `root`."""
    small = SmallCheckout(root)
    small.write("pyproject.toml", '[project]\nname = "tilewright"\nversion = "0.0.1"\n')
    small.write("kernels.py", KERNELS)
    small.write("prebuilt/signatures/small.toml", SIGNATURES)
    small.write("prebuilt/budgets.toml", BUDGETS)
    targets = (ROOT / "prebuilt" / "targets.toml").read_text(encoding="utf-8")
    small.write("prebuilt/targets.toml", targets)
    return small
