"""Which form by blocks serves which product, and that the bundle is told to carry exactly these."""

from __future__ import annotations

from pathlib import Path

from tilewright.abi.dtypes import DType, bfloat16, float8e5, float32
from tilewright.kernels.matmul import (
    matmul_blocks,
    matmul_halves,
    matmul_parts,
    matmul_plain_blocks,
    matmul_rows,
)
from tilewright.tensor.block_configurations import (
    BLOCK_FORMS,
    BlockProduct,
    block_choice,
    clocks_otherwise,
)
from tilewright.tensor.configurations import DotConfiguration
from tilewright_release.signatures import DeclaredEntry, read_signature_file

ROOT = Path(__file__).parents[3]
SIGNATURES = ROOT / "prebuilt" / "signatures" / "matmul.toml"
KERNELS = {
    matmul_blocks: "blocks",
    matmul_halves: "halves",
    matmul_rows: "rows",
    matmul_parts: "parts",
    matmul_plain_blocks: "plain",
}


def form_of(entry: DeclaredEntry) -> tuple[object, ...]:
    """Return what tells forms by blocks apart."""
    types, signature = dict(entry.signature.runtime), entry.signature
    values = signature.constexprs
    m, n, k = (int(str(values[f"BLOCK_{axis}"])) for axis in "MNK")
    tiles = DotConfiguration(m, n, k, signature.num_warps, signature.num_stages)
    return (
        types["a"].dtype,
        types["c"].dtype,
        values.get("PRECISION", "ieee"),
        KERNELS[entry.kernel],
        (values["A_UNIT"], values["B_UNIT"]),
        tiles,
        values.get("FULL_EPILOGUE", entry.kernel is matmul_parts),
    )


def test_products_by_blocks_are_declared_as_they_are_chosen() -> None:
    entries = read_signature_file(SIGNATURES, root=ROOT)
    found = {form_of(entry) for entry in entries if entry.kernel in KERNELS}
    assert found == {
        (dtype, result, precision, form.kernel, units, form.tiles, form.is_full)
        for (dtype, precision), forms in BLOCK_FORMS.items()
        for form in forms
        for result in form.results
        for units in form.units
    }


def product_of(
    *sizes: int,
    dtype: DType = bfloat16,
    result: DType = bfloat16,
    precision: str = "ieee",
    units: tuple[str, str] = ("k", "k"),
    is_even: bool = True,
    is_bare: bool = True,
    is_active: bool = False,
) -> BlockProduct:
    m, n, k = sizes
    even = (is_even, is_bare, is_active)
    return BlockProduct((m, n, k), 1, dtype, result, precision, units, *even)


def chosen(product: BlockProduct) -> tuple[str, int, int, int] | None:
    found = block_choice(product)
    if found is None:
        return None
    tiles = found.form.tiles
    return found.form.kernel, tiles.block_m, tiles.block_n, found.parts


def test_wide_tiles_serve_large_products_and_parts_those_of_few_rows() -> None:
    assert chosen(product_of(8192, 8192, 8192)) == ("blocks", 128, 256, 1)
    assert chosen(product_of(8192, 8192, 8192, is_bare=False)) == ("blocks", 128, 128, 1)
    assert chosen(product_of(1024, 1024, 1024)) == ("blocks", 64, 128, 1)
    assert chosen(product_of(1, 4096, 4096)) == ("parts", 16, 64, 2)
    assert chosen(product_of(16, 8192, 8192)) == ("parts", 16, 64, 1)
    assert chosen(product_of(64, 4096, 4096)) == ("blocks", 64, 64, 1)


def test_rows_of_any_alignment_have_their_own_form() -> None:
    odd = product_of(4097, 4095, 4093, is_even=False)
    assert chosen(odd) == ("rows", 128, 256, 1)
    assert chosen(odd._replace(is_active=True)) == ("rows", 128, 64, 1)
    assert chosen(odd._replace(is_bare=False)) == ("rows", 128, 64, 1)


def test_only_what_the_instruction_reads_goes_by_blocks() -> None:
    large = product_of(8192, 8192, 8192)
    assert chosen(large._replace(units=("m", "n")))
    eight = large._replace(dtype=float8e5)
    assert chosen(eight)
    assert not chosen(eight._replace(units=("k", "n")))
    wide = large._replace(dtype=float32, result=float32)
    assert not chosen(wide)
    assert chosen(wide._replace(precision="tf32"))
    assert not chosen(wide._replace(precision="tf32", units=("m", "k")))


def test_blocks_are_cheaper_where_both_forms_serve() -> None:
    for sizes in ((512, 512, 512), (16, 256, 64), (4096, 4096, 4096), (128, 8192, 8192)):
        found = block_choice(product_of(*sizes))
        assert found is not None
        assert found.clocks < clocks_otherwise(product_of(*sizes), fast=True)
