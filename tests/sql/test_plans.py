"""Plans of the hot functions: by index, whatever PostgreSQL believes about the table (G7).

The statements are read from the functions as they are installed, and explained with the functions' own settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection

from catbird_django.engine import items, steps
from catbird_django.engine.tasks import LaneRequest
from catbird_django.models import Item
from tests.flow_support import plan, start
from tests.item_support import map_over
from tests.support import LEASE, USING, claim, queue_runs, register, register_worker

CLAIMED_TABLE = "cb_task_runs"


@dataclass(frozen=True)
class Hot:
    """A statement of a hot function: the text it begins with, and the index that must give its rows."""

    function: str
    beginning: str
    index: str

    @property
    def table(self) -> str:
        """The index is named after it: cb_task_runs_claimable."""
        return next(table for table in connection.introspection.table_names() if self.index.startswith(f"{table}_"))


HOT = [
    Hot("cb_claim_tasks", "UPDATE cb_task_runs", "cb_task_runs_claimable"),
    Hot("cb_claim_suspect_tasks", "UPDATE cb_task_runs", "cb_task_runs_suspect"),
    Hot("cb_find_task_lanes", "WITH RECURSIVE lane", "cb_task_runs_claimable"),
    Hot("cb_find_task_lanes", "WITH RECURSIVE lane", "cb_task_runs_suspect"),
    Hot("cb_complete_tasks", "WITH completed", "cb_task_runs_pkey"),
    Hot("cb_fail_tasks", "WITH held", "cb_task_runs_pkey"),
    Hot("cb_release_tasks", "WITH released", "cb_task_runs_pkey"),
    Hot("cb_extend_tasks", "WITH held", "cb_task_runs_pkey"),
    Hot("_cb_make_tasks_due", "WITH due", "cb_task_runs_due"),
    Hot("_cb_take_back_lost_tasks", "WITH lost", "cb_task_runs_leased"),
    Hot("_cb_end_overdue_canceling_tasks", "WITH ended", "cb_task_runs_canceling"),
    Hot("cb_find_step_lanes", "WITH RECURSIVE lane", "cb_step_runs_claimable"),
    Hot("cb_find_step_lanes", "WITH RECURSIVE lane", "cb_step_runs_suspect"),
    Hot("cb_claim_steps", "SELECT coalesce(array_agg(head.id)", "cb_step_runs_claimable"),
    Hot("cb_claim_steps", "UPDATE cb_step_runs", "cb_step_runs_pkey"),
    Hot("cb_complete_steps", "WITH held", "cb_step_runs_pkey"),
    Hot("cb_fail_steps", "WITH held", "cb_step_runs_pkey"),
    Hot("cb_extend_steps", "WITH held", "cb_step_runs_pkey"),
    Hot("_cb_meet_requirements", "WITH ended", "cb_step_readiness_one_per_step"),
    Hot("_cb_make_steps_due", "WITH due", "cb_step_runs_due"),
    Hot("_cb_item_lanes", "WITH RECURSIVE lane", "cb_items_claimable"),
    Hot("_cb_item_lanes", "WITH RECURSIVE lane", "cb_items_suspect"),
    Hot("_cb_find_due_items", "SELECT coalesce(array_agg(head.id)", "cb_items_claimable"),
    Hot("cb_claim_items", "WITH claimed", "cb_items_pkey"),
    Hot("cb_complete_items", "WITH completed", "cb_items_pkey"),
    Hot("cb_fail_items", "WITH held", "cb_items_pkey"),
    Hot("cb_extend_items", "WITH held", "cb_items_pkey"),
    Hot("_cb_make_items_due", "WITH due", "cb_items_due"),
    Hot("_cb_end_held_items", "WITH leased", "cb_items_leased"),
    Hot("cb_read_items", "SELECT page.index", "cb_items_one_per_place"),
]
VARIABLES = {
    "v_token": "uuid",
    "v_canceled": "bigint[]",
    "v_limits": "integer[]",
    "v_task_ids": "bigint[]",
    "v_claimed": "bigint[]",
}


def plan_of(hot: Hot) -> list[dict[str, Any]]:
    """Every node of the plan that the function would use."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT prosrc, proconfig, proargnames, proargmodes,"
            " ARRAY(SELECT format_type(kind, NULL) FROM unnest(coalesce(proallargtypes, proargtypes::oid[])) AS kind)"
            " FROM pg_proc WHERE proname = %s",
            [hot.function],
        )
        source, settings, names, modes, types = cursor.fetchone()
        arguments = {
            name: kind for name, kind, mode in zip(names, types, modes or "i" * len(names), strict=True) if mode == "i"
        }
        statement, parameters = prepared(statement_of(source, hot.beginning), {**arguments, **VARIABLES})
        for setting in settings or ():
            name, value = setting.split("=", 1)
            cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        # Functions settle on a generic plan after a few calls; it must be right for every table.
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        taken = f"({', '.join(parameters)})" if parameters else ""
        given = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        cursor.execute(f"PREPARE hot {taken} AS {statement}")
        cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot {given}")
        [[plan]] = cursor.fetchall()
        cursor.execute("DEALLOCATE hot")
    return list(nodes(plan[0]["Plan"]))


def statement_of(source: str, beginning: str) -> str:
    start = source.index(beginning)
    return re.sub(r"\bINTO [\w, ]+?(?=\s+FROM\b)", "", source[start : source.index(";", start)])


def prepared(statement: str, types: dict[str, str]) -> tuple[str, list[str]]:
    """Write a function's arguments and variables as parameters of a prepared statement."""
    used = [name for name in types if re.search(rf"\b{name}\b", statement)]
    for number, name in enumerate(used, 1):
        statement = re.sub(rf"\b{name}\b", f"${number}", statement)
    return statement, [types[name] for name in used]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def assert_by_index(hot: Hot) -> None:
    scans = [node for node in plan_of(hot) if node.get("Relation Name") == hot.table and "Scan" in node["Node Type"]]
    assert {node["Node Type"] for node in scans} <= {"Index Scan", "Index Only Scan"}, scans
    assert hot.index in {node["Index Name"] for node in scans}


@pytest.mark.parametrize("hot", HOT, ids=lambda hot: hot.function)
def test_hot_functions_use_their_index_on_an_empty_table(hot: Hot) -> None:
    """R4."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE cb_task_runs")

    assert_by_index(hot)


@pytest.mark.parametrize("hot", HOT, ids=lambda hot: hot.function)
def test_hot_functions_use_their_index_on_a_table_that_was_never_analysed(hot: Hot) -> None:
    register("mail")
    queue_runs("mail", 5_000)

    assert_by_index(hot)


def test_hot_functions_use_their_index_on_a_million_rows() -> None:
    """G7: finished runs and waiting ones, analysed; and claiming reads no more rows than it claims."""
    [task_id] = register("mail")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cb_task_runs (task_id, queue, status, input, output, queued_at, started_at, finished_at)"
            " SELECT %s, 'default', 'completed', '1', '1', now(), now(), now() FROM generate_series(1, 1000000)",
            [task_id],
        )
        queue_runs("mail", 2_000)
        cursor.execute("ANALYZE cb_task_runs")
    for hot in HOT:
        assert_by_index(hot)

    before = rows_read()
    claimed = claim((task_id, 0), worker_id=register_worker(), limit=200)

    assert len(claimed) == 200
    assert rows_read() - before <= 3 * 200


def test_a_claim_of_items_reads_no_more_than_it_claims_beside_many_that_have_ended() -> None:
    """G7, F14: of a map of 200 000 items, almost all of which are done."""
    start(plan("big", map_over("input")), list(range(200_000)))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE cb_items SET status = 'completed', output = '1', started_at = now(), finished_at = now()"
            " WHERE index < 199000"
        )
        cursor.execute("ANALYZE cb_items")

    low_id = Item.objects.get(index=199_000).pk
    [head] = steps.find_step_lanes([Item.objects.first().step_id], None, using=USING)
    before = rows_read("cb_items")
    request = LaneRequest(head.lane, low_id, 200)
    claimed = items.claim_items([request], worker_id=register_worker(), lease=LEASE, using=USING)

    assert len(claimed) == 200
    assert rows_read("cb_items") - before <= 3 * 200
    for hot in HOT:
        if hot.table == "cb_items":
            assert_by_index(hot)


def rows_read(table: str = CLAIMED_TABLE) -> int:
    """How many rows of the claimed table this transaction has read, in any way."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"
            " WHERE relname = %s",
            [table],
        )
        return int(cursor.fetchone()[0])
