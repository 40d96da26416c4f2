"""A database with millions of finished jobs: made once, kept between runs, made anew when the tables change."""

from __future__ import annotations

import hashlib

from benchmarks.bench import CHECKOUT, Bench

SEED_WITHIN = "30min"
# What the seeded tables depend on.
SOURCES = ("catbird_django/migrations/*.py", "benchmarks/tasks/contenders.py", "benchmarks/tasks/engines/**/tasks.py")


def database_with_finished(bench: Bench, rows: int) -> str:
    """The name of the database to copy; it is made first, if need be."""
    database = f"{bench.template}_finished"
    wanted = f"{rows} finished, {_fingerprint()}"
    # The note is written last, so what was interrupted has none.
    if bench.postgres.note_on(database) != wanted:
        bench.say(f"seeding {rows} finished jobs, once for all runs")
        _seed(bench, database, rows)
        bench.postgres.note(database, wanted)
    return database


def _seed(bench: Bench, database: str, rows: int) -> None:
    bench.postgres.create(database, template=bench.template)
    with bench.postgres.connect(database) as connection:
        connection.execute(f"SET statement_timeout = '{SEED_WITHIN}'")
        connection.execute(bench.contender.engine.finish, (rows,))  # type: ignore[arg-type]
        # As rows are that have been there for a while; otherwise the first reader would pay for that.
        connection.execute("VACUUM (FREEZE, ANALYZE)")
    bench.postgres.checkpoint()


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in CHECKOUT.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
