"""A kernel with a cubin in Hopper's own schedule on its way through the factory."""

from __future__ import annotations

import io

from helpers.small_checkout import SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright.abi.pack import PackReader
from tilewright.abi.target import Target
from tilewright_compiler.backend.cubin import check_cubin
from tilewright_release.budgets import Measured, passed_blob_limits, read_budgets
from tilewright_release.build_entry import build_entry, find_entry
from tilewright_release.bundle import bundle_kernels, plan_tasks
from tilewright_release.coverage import cover
from tilewright_release.signatures import read_signatures
from tilewright_release.targets import read_targets
from tilewright_release.validated import Validations
from tilewright_release.verify import differences, rebuild

KERNEL = """\
import tilewright.language as tl


@tl.kernel(divisible=("n", "k"))
def product(a, b, c, m, n, k, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK, BLOCK])
    y = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BLOCK, BLOCK])
    z = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        total = tl.dot(x.load([row, start]), y.load([start, column]), total)
    z.store([row, column], total)
"""
SIGNATURES = """\
family = "product"

[[kernel]]
kernel = "product.py:product"
parameters = { a = "*f16", b = "*f16", c = "*f16", m = "i64", n = "i64", k = "i64" }
[[kernel.config]]
constexprs = { BLOCK = 64 }
specializations = ["fast"]
"""
BUDGET = """
[family.product]
entries = 1
registers = 255
shared_bytes = {shared_bytes}
"""


def declare(small: SmallCheckout, *, shared_bytes: int = 232_448) -> None:
    small.write("product.py", KERNEL)
    small.write("prebuilt/signatures/product.toml", SIGNATURES)
    with small.checkout.budgets.open("a", encoding="utf-8") as budgets:
        budgets.write(BUDGET.format(shared_bytes=shared_bytes))


def test_it_is_built_packed_covered_and_verified(small: SmallCheckout) -> None:
    declare(small)
    bundle_kernels(
        small.checkout,
        output=small.checkout.bundle,
        cache=small.cache,
        jobs=1,
        stream=io.StringIO(),
    )
    manifest = read_manifest(small.checkout.bundle / "manifest.json")
    (key,) = (k for k, entry in manifest.entries.items() if entry.family == "product")
    entry = manifest.entries[key]
    assert set(entry.blobs) == {"ptx", "sm_100f", "sm_120f", "sm_80", "sm_90a", "sm_90a+tma"}
    own, common = entry.blobs["sm_90a+tma"], entry.blobs["sm_90a"]
    assert own.target == common.target == "sm_90a"
    assert own.pack == common.pack
    assert [name for name, blob in entry.blobs.items() if blob.abi] == ["sm_90a+tma"]
    for blob in (own, common):
        with PackReader(small.checkout.bundle / blob.pack) as pack:
            check_cubin(pack.read(blob.sha256), target=Target(9, 0, "a"), abi=entry.abi_of(blob))

    declared = read_signatures(small.checkout)
    table = read_targets(small.checkout.targets)
    cells = cover(declared, table, manifest, Validations())
    assert {cell.state for cell in cells} == {"present"}
    rebuilt = rebuild(small.checkout, [key])
    assert set(rebuilt[key]) == set(entry.blobs)
    assert differences(manifest.entries, rebuilt) == []


def test_in_the_general_form_it_is_not_bundled(small: SmallCheckout) -> None:
    declare(small)
    small.replace("prebuilt/signatures/product.toml", '["fast"]', '["general"]')
    (task,) = (
        task
        for task in plan_tasks(
            read_signatures(small.checkout),
            read_targets(small.checkout.targets),
            root=small.checkout.root,
            cache=small.cache,
        )
        if task.reference == "product.py:product"
    )
    assert build_entry(task).error == ""
    entry = find_entry(task)
    assert entry is not None
    assert {cubin.key for cubin in entry.cubins} == {"sm_100f", "sm_120f", "sm_80", "sm_90a"}


def test_its_shared_memory_counts_for_the_budget(small: SmallCheckout) -> None:
    declare(small, shared_bytes=52_000)
    tasks = plan_tasks(
        read_signatures(small.checkout),
        read_targets(small.checkout.targets),
        root=small.checkout.root,
        cache=small.cache,
    )
    (task,) = (task for task in tasks if task.reference == "product.py:product")
    assert build_entry(task).error == ""
    entry = find_entry(task)
    assert entry is not None
    measured = Measured("product", "product", entry.abi.shared_bytes, 0.0, entry.cubins)
    (problem,) = passed_blob_limits(read_budgets(small.checkout.budgets), [measured])
    assert "bytes of shared memory" in problem
    assert "for sm_90a+tma" in problem
