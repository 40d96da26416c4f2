"""The flows that faults happen to. The campaign starts their runs by name, and never imports this module."""

from __future__ import annotations

import os
import time
from uuid import uuid4

from django.contrib.auth.models import Group

from catbird_django import Flow, StepContext
from tests.chaos import ledger

note_each = Flow("note_each", input=list[float])
keep_books = Flow("keep_books", input=float)


@note_each.map(over="input", max_lost=20)
def note_item(item: float, ctx: StepContext) -> dict[str, int]:
    """Write into the ledger, take so many seconds, write again."""
    part = f"item {ctx.index}"
    ledger.write(ctx.run_id, ctx.attempt, "begin", part=part)
    time.sleep(item)
    ledger.write(ctx.run_id, ctx.attempt, "end", part=part)
    return {"attempt": ctx.attempt, "pid": os.getpid()}


@note_each.step
def count(note_item: list[dict[str, int]]) -> int:
    """How many were noted."""
    return len(note_item)


@keep_books.step(atomic=True, max_lost=1000)
def book(input: float, ctx: StepContext) -> int:
    """Write to the database, take so many seconds, write again."""
    Group.objects.create(name=f"{ctx.run_id} first {uuid4()}")
    ledger.write(ctx.run_id, ctx.attempt, "begin", part="step book")
    time.sleep(input)
    Group.objects.create(name=f"{ctx.run_id} second {uuid4()}")
    return ctx.attempt
