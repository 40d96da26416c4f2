"""A flow with a map: a newsletter is written for each of its readers, and what came of it is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass

from catbird_django import Flow, ItemError


@dataclass
class Newsletter:
    title: str
    readers: list[str]


@dataclass
class Letter:
    reader: str
    text: str


newsletter: Flow[Newsletter, str] = Flow("newsletter", input=Newsletter, description="Write to each reader.")


@newsletter.step
def readers(input: Newsletter) -> list[str]:
    """Whom to write to."""
    return input.readers


@newsletter.map(over="readers", on_item_failure="collect")
def write(item: str, input: Newsletter) -> Letter:
    """Take a moment for every reader; one of them cannot be written to."""
    time.sleep(0.05)
    if item == "reader 13":
        raise ValueError("this reader has moved, and left no address")
    return Letter(reader=item, text=f"{input.title}: dear {item} ...")


@newsletter.reduce(over="write", initial=0)
def count(acc: int, item: Letter | ItemError) -> int:
    """Count the letters that were written."""
    return acc + isinstance(item, Letter)


@newsletter.step(inline=True)
def summary(count: int) -> str:
    """Say it in words."""
    return f"{count} letters written"
