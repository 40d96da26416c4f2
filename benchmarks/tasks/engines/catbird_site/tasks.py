"""The same no-op as a sync task, an async one, and a typed one, with the default retry policy, leases and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.engines.probe import hit
from catbird_django import task


@task
def noop(input: int) -> None:
    """Run on a thread."""
    hit(input)


@task
async def async_noop(input: int) -> None:
    """Run on the loop."""
    hit(input)


@dataclass
class Numbered:
    number: int


@task
def typed_noop(input: Numbered) -> Numbered:
    """Run on a thread, with a dataclass in and out."""
    hit(input.number)
    return input


@task
def keep_document(input: dict[str, Any]) -> None:
    """Only enqueued, never run."""
    del input
