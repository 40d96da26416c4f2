"""Who takes part in the benchmark of tasks, with which settings and in which environment."""

from __future__ import annotations

from benchmarks.contenders import OURS, RAW, Contender, Engine

ADAPTERS = "benchmarks.tasks.engines"
SITE = f"{ADAPTERS}.catbird_site.settings"

# In the terms of the partial indexes: with millions of finished rows a scan of the table would hold up the drain.
_LIVE_RUNS = """
SELECT (SELECT count(*) FROM cb_task_runs WHERE status = 'queued' AND visible_at IS NULL AND lost_count < 2)
     + (SELECT count(*) FROM cb_task_runs WHERE status = 'queued' AND visible_at IS NULL AND lost_count >= 2)
     + (SELECT count(*) FROM cb_task_runs WHERE status = 'queued' AND visible_at < now() + interval '1 hour')
     + (SELECT count(*) FROM cb_task_runs WHERE lease_until IS NOT NULL)
"""
# Spread over the last days, as a table looks that is pruned after a month.
_FINISHED_RUNS = """
INSERT INTO cb_task_runs
    (task_id, queue, status, input, output, delivery_count, delivery_token, queued_at, started_at, finished_at)
SELECT task.id, 'default', 'completed', to_jsonb(n), 'null', 1, gen_random_uuid(), at.moment, at.moment, at.moment
FROM generate_series(1, %s) AS n
CROSS JOIN (SELECT id FROM cb_tasks WHERE name = 'noop') AS task
CROSS JOIN LATERAL (SELECT now() - interval '7 days' + n * interval '100 ms' AS moment) AS at
"""
_RUNS_FOR_TOMORROW = """
INSERT INTO cb_task_runs (task_id, queue, input, run_at, visible_at, queued_at)
SELECT task.id, 'default', '-1', now() + interval '1 day', now() + interval '1 day', now()
FROM generate_series(1, %s) CROSS JOIN (SELECT id FROM cb_tasks WHERE name = 'noop') AS task
"""
_WORKER = ("manage.py", "catbird_worker", "--noreload")

CATBIRD = Engine(
    name=OURS,
    settings=SITE,
    module=f"{ADAPTERS}.on_catbird",
    unfinished=_LIVE_RUNS,
    takes_documents=True,
    hot_table="cb_task_runs",
    finish=_FINISHED_RUNS,
    postpone=_RUNS_FOR_TOMORROW,
)
RAW_LIMIT = Engine(name=RAW, settings=SITE, module=f"{ADAPTERS}.raw_limit", unfinished=_LIVE_RUNS, takes_documents=True)
PGQUEUER = Engine(
    name="pgqueuer",
    module=f"{ADAPTERS}.on_pgqueuer",
    packages=["pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"],
    unfinished="SELECT count(*) FROM pgqueuer WHERE execute_after < now() + interval '1 hour'",
    takes_documents=True,
    hot_table="pgqueuer",
    postpone="""
        INSERT INTO pgqueuer (priority, entrypoint, payload, status, execute_after)
        SELECT 0, 'noop', '-1', 'queued', now() + interval '1 day' FROM generate_series(1, %s)
    """,
)
PROCRASTINATE = Engine(
    name="procrastinate",
    module=f"{ADAPTERS}.on_procrastinate",
    packages=["procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"],
    unfinished="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    slowness=20,
)
DJANGO_TASKS_DB = Engine(
    name="django-tasks-db",
    module=f"{ADAPTERS}.on_django_tasks",
    packages=["django==5.2.19", "django-tasks==0.12.0", "django-tasks-db==0.13.0", "psycopg[binary]==3.3.9"],
    unfinished="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status IN ('READY', 'RUNNING')",
    slowness=40,
)
DJANGO_OX = Engine(
    name="django-ox",
    module=f"{ADAPTERS}.on_django_ox",
    packages=["django==6.1.3", "django-ox==1.9.1", "psycopg[binary]==3.3.9"],
    python=(3, 12),
    unfinished="SELECT count(*) FROM django_ox_oxtask WHERE status IN ('READY', 'WAITING', 'RUNNING')",
    slowness=40,
)
DBOS = Engine(
    name="dbos",
    module=f"{ADAPTERS}.on_dbos",
    packages=["dbos==3.3.0", "psycopg[binary]==3.3.9"],
    unfinished="SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
    slowness=40,
)
CHANCY = Engine(
    name="chancy",
    module=f"{ADAPTERS}.on_chancy",
    packages=["chancy==0.26.0", "psycopg[binary,pool]==3.3.9"],
    unfinished="SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')",
    slowness=5,
)
CELERY = Engine(
    name="celery",
    module=f"{ADAPTERS}.on_celery",
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
    Contender(
        name="catbird, prepared statements",
        engine=CATBIRD,
        options={"prepare_threshold": 5},
        worker=_WORKER,
        only=["enqueue"],
    ),
    Contender(name="pgqueuer, batch 100", engine=PGQUEUER, options={"batch": 100}),
    Contender(name="pgqueuer, batch 500", engine=PGQUEUER, options={"batch": 500}, is_main=False),
    Contender(name="pgqueuer, batch 1000", engine=PGQUEUER, options={"batch": 1000}, is_main=False),
    Contender(name="raw SQL limit, batch 100", engine=RAW_LIMIT, options={"batch": 100}),
    Contender(name="procrastinate", engine=PROCRASTINATE),
    Contender(name="django-tasks-db", engine=DJANGO_TASKS_DB),
    Contender(name="django-ox, concurrency 1", engine=DJANGO_OX),
    Contender(name="django-ox, concurrency 4", engine=DJANGO_OX, options={"concurrency": 4}, is_main=False),
    Contender(name="dbos", engine=DBOS),
    Contender(name="chancy", engine=CHANCY),
    Contender(name="celery + Redis (solo)", engine=CELERY),
]
