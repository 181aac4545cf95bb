"""Which form of a product serves which shape on a GPU that copies blocks by itself.

The bundle carries exactly these forms. The cheapest by a model of one multiprocessor is taken: a
step along K costs its products or the bytes of its blocks, whichever is more, and tiles come in
waves. The rates are of an H200 (`docs/perf-notes/gemm.md`).
"""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple, cast

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int8,
    int32,
    uint8,
)
from tilewright.abi.tuned import Choice
from tilewright.tensor.configurations import DotConfiguration, matmul_configuration

Units = tuple[str, str]
"""The axes along which A and B are contiguous."""

BlockKernel = Literal["blocks", "halves", "rows", "parts", "plain"]


class BlockForm(NamedTuple):
    """A kernel by blocks with its tiles: `blocks` stores by blocks, `halves` too, each tile in two,
    `rows` rows of any alignment, `parts` cuts sums along K, `plain` adds up integers.

    `is_full` if it takes a gate and a residual; `rows` takes an activation only then, the others
    always. `units` and `results` are those that the bundle has, unless the form is not declared.
    """

    kernel: BlockKernel
    tiles: DotConfiguration
    is_full: bool
    units: tuple[Units, ...]
    results: tuple[DType, ...]
    is_declared: bool = True


class BlockChoice(NamedTuple):
    """A form, the parts of each sum, and what it costs, in clocks of a multiprocessor."""

    form: BlockForm
    parts: int
    clocks: float


class BlockProduct(NamedTuple):
    """What the choice depends on. `is_even` if results, gate and residual have rows of blocks;
    `is_bare` if there is neither gate nor residual, and `is_active` if there is an activation.
    """

    sizes: tuple[int, int, int]
    batch: int
    dtype: DType
    result: DType
    precision: str
    units: Units
    is_even: bool
    is_bare: bool
    is_active: bool


_ALONG_K: tuple[Units, ...] = (("k", "k"),)
_A_ALONG_K: tuple[Units, ...] = (("k", "n"), ("k", "k"))
_ANY: tuple[Units, ...] = (*_A_ALONG_K, ("m", "n"), ("m", "k"))


def _of_16_bits(dtype: DType) -> tuple[BlockForm, ...]:
    own, both = (dtype,), (dtype, float32)
    return (
        # The widest tile leaves no registers for a gate or a residual.
        BlockForm("blocks", DotConfiguration(128, 256, 64, 8, 4), False, _ANY, both),
        BlockForm("blocks", DotConfiguration(128, 128, 64, 8, 4), True, _ANY, both),
        BlockForm("blocks", DotConfiguration(64, 128, 64, 4, 8), True, _ANY, own),
        BlockForm("blocks", DotConfiguration(64, 64, 128, 4, 5), True, _A_ALONG_K, own),
        BlockForm("rows", DotConfiguration(128, 256, 64, 8, 3), False, _ANY, own),
        BlockForm("rows", DotConfiguration(128, 64, 64, 8, 4), True, _A_ALONG_K, own),
        BlockForm("parts", DotConfiguration(16, 64, 256, 4, 5), True, _A_ALONG_K, own),
    )


_OF_8_BITS = (
    BlockForm("halves", DotConfiguration(128, 256, 128, 8, 4), False, _ALONG_K, (bfloat16,)),
    BlockForm(
        "blocks",
        DotConfiguration(128, 128, 128, 8, 4),
        True,
        _ALONG_K,
        (bfloat16, float16, float32),
    ),
    BlockForm("parts", DotConfiguration(16, 64, 128, 4, 8), True, _ALONG_K, (bfloat16,)),
)
_OF_TF32 = (
    BlockForm("blocks", DotConfiguration(128, 256, 32, 8, 4), False, _ALONG_K, (float32,)),
    BlockForm("blocks", DotConfiguration(128, 128, 32, 8, 5), True, _ALONG_K, (float32,)),
    BlockForm("blocks", DotConfiguration(64, 128, 32, 4, 6), True, _ALONG_K, (float32,)),
)
_OF_INTEGERS = (
    BlockForm("plain", DotConfiguration(128, 256, 128, 8, 4), False, _ALONG_K, (int32,)),
    BlockForm("plain", DotConfiguration(64, 128, 128, 4, 6), False, _ALONG_K, (int32,)),
)
BLOCK_FORMS: dict[tuple[DType, str], tuple[BlockForm, ...]] = {
    (float16, "ieee"): _of_16_bits(float16),
    (bfloat16, "ieee"): _of_16_bits(bfloat16),
    (float8e4nv, "ieee"): _OF_8_BITS,
    (float8e5, "ieee"): _OF_8_BITS,
    (float32, "tf32"): _OF_TF32,
    (int8, "ieee"): _OF_INTEGERS,
    (uint8, "ieee"): _OF_INTEGERS,
}

_MULTIPROCESSORS = 132
_MOST_PARTS = 8
# What a multiprocessor does in a clock: products and sums by wgmma, of 16 bits; those of mma.sync,
# which takes 8-bit floats as f16, and of integers; bytes that reach its shared memory.
_WGMMA = 4096
_MMA = {16: 2000, 32: 700, 8: 700}
_MMA_INTEGERS = 3500
_UNALIGNED = 600
_FEED = 56
_MMA_FEED = 28
# Clocks of a tile's store, by bytes of f32 and at least, and of the meeting of its parts.
_STORED = 64
_LEAST_STORE = 800
_MEETING = 2500
_SUMMED = 32
# Bytes that all together copy in a clock, and what a launch takes, most of it of the host.
_COPIED = 1900
_LAUNCH = 10000


def block_choice(product: BlockProduct) -> BlockChoice | None:
    """Return the cheapest form for a product; None if there is none."""
    forms = BLOCK_FORMS.get((product.dtype, product.precision), ())
    choices = [
        BlockChoice(form, parts, _clocks(product, form, parts))
        for form in forms
        if not why_form_not(form, product)
        for parts in range(1, (_MOST_PARTS if form.kernel == "parts" else 1) + 1)
    ]
    return min(choices, key=lambda choice: choice.clocks, default=None)


def tuned_form(choice: Choice, product: BlockProduct) -> BlockForm:
    """Return the form of a tuned choice for a product: a declared one, or one of its own.

    Of its own it takes no more of an epilogue than the product needs.
    """
    tiles = DotConfiguration(*choice.tiles)
    for form in BLOCK_FORMS.get((product.dtype, product.precision), ()):
        of_form = (form.kernel, form.tiles) == (choice.kernel, tiles)
        if of_form and why_form_not(form, product) == "":
            return form
    kernel = cast("BlockKernel", choice.kernel)
    needs_all = not product.is_bare or (kernel == "rows" and product.is_active)
    return BlockForm(
        kernel,
        tiles,
        kernel == "parts" or needs_all,
        (product.units,),
        (product.result,),
        is_declared=False,
    )


def why_form_not(form: BlockForm, product: BlockProduct) -> str:
    """Return why a form cannot serve a product; empty if it can."""
    if product.units not in form.units or product.result not in form.results:
        return "the bundle has it for other layouts or results"
    if form.kernel != "rows" and not product.is_even:
        return "it stores by blocks, which the rows of the result are not"
    is_bare = product.is_bare and not (form.kernel == "rows" and product.is_active)
    return "" if form.is_full or is_bare else "it takes no gate, residual or activation"


def clocks_otherwise(product: BlockProduct, *, fast: bool) -> float:
    """Return what a product costs without blocks, by `matmul` in its fast or its general form."""
    m, n, k = product.sizes
    tiles = matmul_configuration(
        m, n, product.batch, product.dtype, precision=product.precision, fast=fast
    )
    mma = _MMA_INTEGERS if product.dtype.is_integer else _MMA[product.dtype.bits]
    rate = mma if fast else _UNALIGNED
    return _waves(product, tiles, 1) * (
        ceil(k / tiles.block_k) * _step(tiles, product.dtype, rate, _MMA_FEED) + _store(tiles)
    )


def clocks_of_copy(size_bytes: int) -> float:
    """Return what it costs to copy so many bytes."""
    return _LAUNCH + 2 * size_bytes / _COPIED


def _clocks(product: BlockProduct, form: BlockForm, parts: int) -> float:
    tiles = form.tiles
    steps = ceil(ceil(product.sizes[2] / tiles.block_k) / parts)
    rate = _WGMMA * 16 / product.dtype.bits
    clocks = steps * _step(tiles, product.dtype, rate, _FEED) + _store(tiles)
    if parts > 1:
        clocks += _MEETING + tiles.block_m * tiles.block_n * 4 * (parts + 1) / _SUMMED
    return _waves(product, tiles, parts) * clocks


def _waves(product: BlockProduct, tiles: DotConfiguration, parts: int) -> int:
    m, n, _ = product.sizes
    programs = ceil(m / tiles.block_m) * ceil(n / tiles.block_n) * product.batch * parts
    return ceil(programs / _MULTIPROCESSORS)


def _step(tiles: DotConfiguration, dtype: DType, rate: float, feed: float) -> float:
    products = 2 * tiles.block_m * tiles.block_n * tiles.block_k / rate
    size = (tiles.block_m + tiles.block_n) * tiles.block_k * dtype.size_bytes
    return max(products, size / feed)


def _store(tiles: DotConfiguration) -> float:
    return max(_LEAST_STORE, tiles.block_m * tiles.block_n * 4 / _STORED)
