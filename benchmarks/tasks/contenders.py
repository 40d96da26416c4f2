"""Who takes part, with which settings and in which environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "ours"
RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A task engine and how to ask it whether it is done.

    `unfinished` is the SQL that counts what is not durably complete; None where PostgreSQL is not the one to ask.
    `slowness` divides the number of jobs, so that a slow engine does not take the whole evening.
    """

    name: str
    module: str
    packages: Sequence[str] = ()
    unfinished: str | None = None
    slowness: int = 1
    needs_redis: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """An engine with one choice of settings."""

    name: str
    engine: Engine
    options: Mapping[str, Any] = field(default_factory=dict)
    worker: Sequence[str] = ()
    """The worker's command line after `python`; the adapter's own when empty."""
    is_main: bool = True
    """Whether enqueueing, pick-up and idling are measured too; settings that only concern drains are not."""


_LIVE_RUNS = "SELECT count(*) FROM cb_task_runs WHERE status IN ('queued', 'started')"
_WORKER = ("manage.py", "catbird_worker")

CATBIRD = Engine(name=OURS, module="on_catbird", unfinished=_LIVE_RUNS)
RAW_LIMIT = Engine(name=RAW, module="raw_limit", unfinished=_LIVE_RUNS)
PGQUEUER = Engine(
    name="pgqueuer",
    module="on_pgqueuer",
    packages=["pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"],
    unfinished="SELECT count(*) FROM pgqueuer",
)
PROCRASTINATE = Engine(
    name="procrastinate",
    module="on_procrastinate",
    packages=["procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"],
    unfinished="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    slowness=20,
)
DJANGO_TASKS_DB = Engine(
    name="django-tasks-db",
    module="on_django_tasks",
    packages=["django==5.2.19", "django-tasks==0.12.0", "django-tasks-db==0.13.0", "psycopg[binary]==3.3.9"],
    unfinished="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status IN ('READY', 'RUNNING')",
    slowness=40,
)
DBOS = Engine(
    name="dbos",
    module="on_dbos",
    packages=["dbos==3.3.0", "psycopg[binary]==3.3.9"],
    unfinished="SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
    slowness=40,
)
CHANCY = Engine(
    name="chancy",
    module="on_chancy",
    packages=["chancy==0.26.0", "psycopg[binary,pool]==3.3.9"],
    unfinished="SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')",
    slowness=5,
)
CELERY = Engine(
    name="celery",
    module="on_celery",
    packages=["celery==5.7.0", "redis==8.1.0", "packaging==26.3"],
    slowness=10,
    needs_redis=True,
)

CONTENDERS = [
    Contender(name="catbird, sync on threads", engine=CATBIRD, worker=_WORKER),
    Contender(
        name="catbird, async on the loop", engine=CATBIRD, options={"task": "async_noop"}, worker=_WORKER, is_main=False
    ),
    Contender(
        name="catbird, dataclass in and out",
        engine=CATBIRD,
        options={"task": "typed_noop"},
        worker=_WORKER,
        is_main=False,
    ),
    Contender(name="pgqueuer, batch 100", engine=PGQUEUER, options={"batch": 100}),
    Contender(name="pgqueuer, batch 500", engine=PGQUEUER, options={"batch": 500}, is_main=False),
    Contender(name="pgqueuer, batch 1000", engine=PGQUEUER, options={"batch": 1000}, is_main=False),
    Contender(name="raw SQL limit, batch 100", engine=RAW_LIMIT, options={"batch": 100}),
    Contender(name="procrastinate", engine=PROCRASTINATE),
    Contender(name="django-tasks-db", engine=DJANGO_TASKS_DB),
    Contender(name="dbos", engine=DBOS),
    Contender(name="chancy", engine=CHANCY),
    Contender(name="celery + Redis (solo)", engine=CELERY),
]
ENGINES = list(dict.fromkeys(contender.engine.name for contender in CONTENDERS))


def chosen(names: Sequence[str] | None) -> list[Contender]:
    """The contenders of the engines named, in the usual order; all without names. ValueError for an unknown one."""
    if unknown := [name for name in names or () if name not in ENGINES]:
        raise ValueError(f"no engine {unknown[0]!r}: there are {', '.join(ENGINES)}")
    return [contender for contender in CONTENDERS if names is None or contender.engine.name in names]
