"""Items of maps for a page: those of one map in their order, a page at a time, and how far the map is.

A map may have a hundred thousand items. A page begins at an index, which the index of the table finds; how many items
there are of each status is known from the map's own counters, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from catbird_django.models import FlowRun, StepRun
from catbird_django.monitoring.graph.view import ItemCounts
from catbird_django.monitoring.paging import Position
from catbird_django.monitoring.payloads import with_short_item_text
from catbird_django.monitoring.queries import items

PAGE_SIZE = 50
FIRST_SHOWN = 20
"""How many items' outputs the page of a run shows of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """Items in their order, and where the pages beside them begin; None where there are none."""

    rows: Sequence[Any]
    previous: Position | None
    next: Position | None


def read_items(step_run: StepRun, position: Position, *, status: str = "", with_payloads: bool) -> ItemPage:
    """Read a page of the items of a map; those newer than a position have a greater index."""
    found = items(using=step_run._state.db).filter(step_run=step_run)  # noqa: SLF001 - documented by Django
    found = found.filter(status=status) if status else found
    found = with_short_item_text(found) if with_payloads else found
    if position.older_than is not None:
        walked = list(found.filter(index__lt=position.older_than).order_by("-index")[: PAGE_SIZE + 1])
        rows = walked[:PAGE_SIZE][::-1]
        following = rows[-1].index if rows else position.older_than - 1
        return ItemPage(
            rows=rows,
            previous=Position(older_than=rows[0].index) if len(walked) > PAGE_SIZE else None,
            next=Position(newer_than=following),
        )
    after = position.newer_than
    walked = list((found if after is None else found.filter(index__gt=after)).order_by("index")[: PAGE_SIZE + 1])
    rows = walked[:PAGE_SIZE]
    return ItemPage(
        rows=rows,
        previous=None if after is None else Position(older_than=rows[0].index if rows else after + 1),
        next=Position(newer_than=rows[-1].index) if len(walked) > PAGE_SIZE else None,
    )


def first_outputs(step_run_id: int, *, using: str | None) -> list[Any]:
    """The first items of a map, with how their outputs begin."""
    found = with_short_item_text(items(using=using).filter(step_run=step_run_id))
    return list(found.order_by("index")[:FIRST_SHOWN])


def counts_of(step_run: StepRun) -> ItemCounts:
    """How far a map is."""
    return ItemCounts(
        spawned=step_run.items_spawned,
        completed=step_run.items_completed,
        failed=step_run.items_failed,
        canceled=step_run.items_canceled,
        text=_in_words(step_run),
    )


def _in_words(step_run: StepRun) -> str:
    if step_run.items_spawned is None:
        return _("no items yet")
    said = [f"{_grouped(step_run.items_completed)} / {_grouped(step_run.items_spawned)}"]
    said += [_("%(count)s failed") % {"count": _grouped(step_run.items_failed)}] if step_run.items_failed else []
    said += [_("%(count)s canceled") % {"count": _grouped(step_run.items_canceled)}] if step_run.items_canceled else []
    return ", ".join(said)


def _grouped(count: int) -> str:
    return number_format(count, force_grouping=True)


def live_item_count(run: FlowRun) -> int:
    """How many items of all maps of a run have not ended."""
    maps = StepRun.objects.using(run._state.db).filter(flow_run=run, items_spawned__isnull=False)  # noqa: SLF001
    names = ("items_spawned", "items_completed", "items_failed", "items_canceled")
    total = maps.aggregate(**{f"{name}_sum": Sum(name, default=0) for name in names})
    spawned, *ended = (total[f"{name}_sum"] for name in names)
    return int(spawned - sum(ended))
