"""What handlers really did: rows written at once, in a database of their own that no rollback of ours reaches."""

from __future__ import annotations

import os
import threading
import time
from uuid import uuid4

import psycopg

VARIABLE = "CATBIRD_CHAOS_LEDGER"
SCHEMA = "CATBIRD_CHAOS_ROUND"
PATIENCE = 20.0  # seconds: the server may be restarting

_here = threading.local()


def table(schema: str) -> str:
    """SQL that makes the ledger of one round."""
    return f"""
        CREATE SCHEMA {schema};
        CREATE TABLE {schema}.fx (
            id bigserial PRIMARY KEY,
            word uuid NOT NULL UNIQUE,
            run bigint NOT NULL,
            attempt integer NOT NULL,
            pid integer NOT NULL,
            phase text NOT NULL,
            part text NOT NULL DEFAULT '',
            at timestamptz NOT NULL DEFAULT clock_timestamp()
        )
    """


def write(run: int, attempt: int, phase: str, *, part: str = "") -> None:
    """Write down that this process is at this point of a run, or of a part of a flow's run.

    Tries again while the server is away.
    """
    deadline = time.monotonic() + PATIENCE
    word = uuid4()  # a server that dies may have committed what it did not answer: said again, it is still one word
    while True:
        try:
            _connection().execute(
                "INSERT INTO fx (word, run, attempt, pid, phase, part) VALUES (%s, %s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [word, run, attempt, os.getpid(), phase, part],
            )
            return
        except psycopg.Error:
            _here.connection = None
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _connection() -> psycopg.Connection:
    known: psycopg.Connection | None = getattr(_here, "connection", None)
    if known is None or known.closed:
        options = f"-c default_transaction_read_only=off -c search_path={os.environ[SCHEMA]}"
        known = _here.connection = psycopg.connect(os.environ[VARIABLE], autocommit=True, options=options)
    return known
