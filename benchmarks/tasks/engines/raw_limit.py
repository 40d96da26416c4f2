"""What PostgreSQL can do with our SQL: claim(100) and complete(100) in turn, and no handlers, codec or threads.

Ids go back as the text they came as, so that Python does next to nothing. Enqueueing is COPY, or a bare insert.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks.engines.exchange import dsn, option
from benchmarks.engines.probe import hit
from benchmarks.tasks.engines import on_catbird
from benchmarks.tasks.engines.adapter import UNNUMBERED, Adapter, Enqueue, batches

CLAIM = """
SELECT count(*), min(run_id), array_agg(run_id ORDER BY run_id)::text, min(delivery_token::text)
FROM cb_claim_tasks(1, '30 s', ARRAY['default'], ARRAY[1], ARRAY[0], ARRAY[%s::bigint], ARRAY[%s::integer])
"""
COMPLETE = """
SELECT count(*)
FROM cb_complete_tasks(%s::bigint[], array_fill(%s::uuid, ARRAY[%s::integer]),
                       array_fill('null'::jsonb, ARRAY[%s::integer]))
"""
INSERT = "INSERT INTO cb_task_runs (task_id, queue, input, queued_at) VALUES (1, 'default', %s::jsonb, now())"
COPY = "COPY cb_task_runs (task_id, queue, input, queued_at) FROM STDIN"


def worker() -> None:
    batch = option("batch", 100)
    mark = 0
    with psycopg.connect(dsn(), autocommit=True, prepare_threshold=0) as connection:
        hit(UNNUMBERED, times=0)  # the clock begins with the first claim
        while True:
            if (row := connection.execute(CLAIM, (mark, batch)).fetchone()) is None or row[0] == 0:
                mark = 0
                time.sleep(0.01)
                continue
            claimed, mark, ids, token = row
            connection.execute(COMPLETE, (ids, token, claimed, claimed))
            hit(UNNUMBERED, times=claimed)


@contextmanager
def enqueuer() -> Iterator[Enqueue]:
    with psycopg.connect(dsn(), autocommit=True, prepare_threshold=0) as connection:

        def one(number: int) -> None:
            connection.execute(INSERT, (str(number),))

        def many(count: int) -> None:
            for size in batches(count):
                with connection.cursor().copy(COPY) as copy:
                    for _ in range(size):
                        copy.write_row((1, "default", "-1", "now"))

        def documents(batch: list[dict[str, Any]]) -> None:
            with connection.cursor().copy(COPY) as copy:
                for document in batch:
                    copy.write_row((1, "default", json.dumps(document), "now"))

        yield Enqueue(one, many, documents)


if __name__ == "__main__":
    import django

    django.setup()
    Adapter(on_catbird.setup, worker, enqueuer).main()
