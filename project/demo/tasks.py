"""Four small tasks: a plain one, an async one, a slow one, and one that can fail, to see what that looks like."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from catbird_django import task


@dataclass
class Greeting:
    name: str


@dataclass
class Greeted:
    text: str


@task
def greet(input: Greeting) -> Greeted:
    """Say hello."""
    return Greeted(text=f"Hello, {input.name}!")


@dataclass
class Tea:
    kind: str
    seconds: float = 0.3


@dataclass
class Cup:
    contents: str


@task
async def brew(input: Tea) -> Cup:
    """Wait for the tea without keeping a thread busy."""
    await asyncio.sleep(input.seconds)
    return Cup(contents=f"{input.kind} tea")


@dataclass
class Report:
    title: str
    pages: int


@dataclass
class Rendered:
    title: str
    pages: list[str]


@task
def render_report(input: Report) -> Rendered:
    """Take a moment for every page."""
    pages = []
    for number in range(1, input.pages + 1):
        time.sleep(0.1)
        pages.append(f"{input.title}, page {number}")
    return Rendered(title=input.title, pages=pages)


@dataclass
class Division:
    dividend: float
    divisor: float


@task
def divide(input: Division) -> float:
    """Divide; the demo asks for the impossible."""
    return input.dividend / input.divisor
