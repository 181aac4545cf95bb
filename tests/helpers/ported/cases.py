"""Kernels that are public for Triton, written anew in the tile language from what they compute.

`CASES` has them by name, each with what it is run on and what it must give. A file a kind; each
kernel takes row-major arrays, and sizes that are no multiple of its tiles.
"""

from __future__ import annotations

from helpers.ported.attention_cases import ATTENTION
from helpers.ported.product_cases import PRODUCTS
from helpers.ported.routing_cases import ROUTING
from helpers.ported.row_cases import ROWS

CASES = {**ROWS, **PRODUCTS, **ATTENTION, **ROUTING}
