"""Documents to enqueue: something like an order, of a given size."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

ITEM = {"sku": "A-10074", "name": "Garden table", "count": 2, "price": "149.90"}
FIRST = 100_000  # six digits for every number, so that all documents are of one size


def document(number: int, size: int) -> dict[str, Any]:
    """A document whose JSON, as `json.dumps` writes it, has so many bytes: as many items as fit, and a note."""
    items = [dict(ITEM) for _ in range(_items_in(size))]
    made = {"order": FIRST + number, "items": items, "note": ""}
    return made | {"note": "x" * (size - _length_of(len(items)))}


@cache
def _items_in(size: int) -> int:
    if _length_of(0) > size:
        raise ValueError(f"a document has at least {_length_of(0)} bytes, not {size}")
    count = 0
    while _length_of(count + 1) <= size:
        count += 1
    return count


@cache
def _length_of(items: int) -> int:
    return len(json.dumps({"order": FIRST, "items": [ITEM] * items, "note": ""}))
