"""Our SQL without a worker: what settling a batch takes, and whether one call for all rows is faster than one for each.

    batch KIND SIZE        count what the server does to settle one batch
    settle KIND COUNT HOW  claim and settle in batches of 100; only settling is timed

KIND is steps (of linear flows) or items (of one map). The statements inside of a function are in no statistics of the
server's, so those that write are counted by triggers that a benchmark's database has and no other.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import django
import psycopg

from benchmarks.engines.exchange import dsn, say
from benchmarks.flows.engines import on_catbird

BATCH = 100
CLAIM = """
SELECT array_agg(run_id ORDER BY run_id), min(delivery_token::text)
FROM cb_claim_{kind}(1, '60 s', ARRAY['default'], ARRAY[%s::bigint], ARRAY[0], ARRAY[0::bigint], ARRAY[%s::integer])
"""
AS_A_SET = """
SELECT count(*) FILTER (WHERE verdict = 'completed')
FROM cb_complete_{kind}(%(ids)b::bigint[], array_fill(%(token)s::uuid, ARRAY[%(count)s::integer]),
                        array_fill('1'::jsonb, ARRAY[%(count)s::integer]))
"""
ROW_BY_ROW = """
SELECT count(*) FILTER (WHERE verdict = 'completed')
FROM unnest(%(ids)b::bigint[]) AS claim (id)
CROSS JOIN LATERAL cb_complete_{kind}(ARRAY[claim.id], ARRAY[%(token)s::uuid], ARRAY['1'::jsonb])
"""
STATEMENTS = {"as a set": AS_A_SET, "row by row": ROW_BY_ROW}
COUNT_WRITES = """
CREATE SEQUENCE public.bench_writes;
CREATE FUNCTION public.bench_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('public.bench_writes');
    RETURN NULL;
END;
$$;
DO $$
DECLARE
    v_table text;
BEGIN
    FOR v_table IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'cb\\_%' LOOP
        EXECUTE format(
            'CREATE TRIGGER bench_count AFTER INSERT OR UPDATE OR DELETE ON %I '
            'FOR EACH STATEMENT EXECUTE FUNCTION public.bench_count()',
            v_table
        );
    END LOOP;
END;
$$;
SELECT nextval('public.bench_writes');
"""
WRITES = "SELECT last_value FROM public.bench_writes"
CALLS = r"SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname ~ '^_?cb_'"
STEPS = """
SELECT step.id FROM cb_steps AS step JOIN cb_flows AS flow ON flow.id = step.flow_id
WHERE flow.name = %s ORDER BY step.position
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def connect() -> Connection:
    connection = psycopg.connect(dsn(), autocommit=True, prepare_threshold=0)
    connection.execute("SET track_functions = 'all'")
    return connection


def batch(kind: str, size: int) -> dict[str, float]:
    """What settling so many pieces in one call makes the server do."""
    with connect() as connection:
        [first, *_] = lanes(connection, kind, size)
        connection.execute(COUNT_WRITES, prepare=False)  # several statements at once
        claimed = claim(connection, kind, first, size)
        assert len(claimed[0]) == size
        writes, calls = counted(connection)
        settle(connection, kind, AS_A_SET, claimed)
        writes_then, calls_then = counted(connection)
    return {"writes": writes_then - writes, "calls": calls_then - calls}


def counted(connection: Connection) -> tuple[int, int]:
    connection.execute("SELECT pg_stat_force_next_flush()")
    return int(value(connection, WRITES)), int(value(connection, CALLS))


def settle_all(kind: str, count: int, how: str) -> dict[str, float]:
    """Settle so many pieces in batches; how long settling alone took."""
    settled, seconds = 0, 0.0
    with connect() as connection:
        for lane in lanes(connection, kind, count):
            while (claimed := claim(connection, kind, lane, BATCH))[0]:
                began = time.perf_counter()
                settled += settle(connection, kind, STATEMENTS[how], claimed)
                seconds += time.perf_counter() - began
    return {"settled": settled, "seconds": seconds}


def lanes(connection: Connection, kind: str, count: int) -> list[int]:
    """Start what gives so many pieces to settle at once; return the steps to claim them of, in order."""
    if kind == "steps":
        on_catbird.flow_of("linear").run_many([1] * count)
        return step_ids(connection, "linear")
    on_catbird.flow_of("fanout").run(count)
    numbers, each, _ = step_ids(connection, "fanout")
    ids, token = claim(connection, "steps", numbers, 1)
    connection.execute(
        "SELECT cb_complete_steps(%b::bigint[], ARRAY[%s::uuid], ARRAY[%s::jsonb])", (ids, token, str([*range(count)]))
    )
    return [each]


def step_ids(connection: Connection, flow: str) -> list[int]:
    return [row[0] for row in connection.execute(STEPS, (flow,))]


def claim(connection: Connection, kind: str, step_id: int, limit: int) -> tuple[list[int], str]:
    ids, token = connection.execute(CLAIM.format(kind=kind), (step_id, limit)).fetchone() or (None, "")
    return ids or [], token


def settle(connection: Connection, kind: str, statement: str, claimed: tuple[list[int], str]) -> int:
    ids, token = claimed
    parameters = {"ids": ids, "token": token, "count": len(ids)}
    row = connection.execute(statement.format(kind=kind), parameters).fetchone()
    assert row == (len(ids),), f"{row} of {len(ids)} were ours"
    return len(ids)


def value(connection: Connection, statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def main() -> None:
    match sys.argv[1:]:
        case ["setup"]:
            on_catbird.setup()
            say({})
        case ["batch", kind, size]:
            say(batch(kind, int(size)))
        case ["settle", kind, count, how]:
            say(settle_all(kind, int(count), how))
        case command:
            sys.exit(f"no command {command!r}")


if __name__ == "__main__":
    django.setup()
    main()
