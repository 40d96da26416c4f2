"""What a run has made smaller than the goals say: then it proves nothing about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def remarks(sizes: DataclassInstance, goals_are_about: DataclassInstance) -> Iterator[str]:
    """A line for each size that is smaller than it is meant to be."""
    meant = asdict(goals_are_about)
    for name, used in asdict(sizes).items():
        if used < meant[name]:
            yield f"{name.replace('_', ' ')}: {used:,} instead of {meant[name]:,}".replace(",", " ")
