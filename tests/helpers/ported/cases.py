"""All ported kernels by name, each with what it is run on and what it must give."""

from __future__ import annotations

from helpers.ported.attention_cases import ATTENTION
from helpers.ported.product_cases import PRODUCTS
from helpers.ported.routing_cases import ROUTING
from helpers.ported.row_cases import ROWS

CASES = {**ROWS, **PRODUCTS, **ATTENTION, **ROUTING}
