"""Who takes part in the benchmark of flows, with which settings and in which environment."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contenders import OURS, Contender, Engine
from benchmarks.tasks.contenders import DBOS as DBOS_FOR_TASKS

ADAPTERS = "benchmarks.flows.engines"
SITE = f"{ADAPTERS}.catbird_site.settings"
WORKER = ("manage.py", "catbird_worker", "--noreload")

CATBIRD = Engine(
    name=OURS,
    module=f"{ADAPTERS}.on_catbird",
    settings=SITE,
    unfinished="SELECT count(*) FROM cb_flow_runs WHERE status <> 'completed'",
)
SQL_ALONE = replace(CATBIRD, module=f"{ADAPTERS}.sql_alone")
# The same packages as for tasks, so that both have one environment.
DBOS = replace(DBOS_FOR_TASKS, module=f"{ADAPTERS}.on_dbos", slowness=30)
ABSURD = Engine(
    name="absurd",
    module=f"{ADAPTERS}.on_absurd",
    packages=["absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.9"],
    unfinished="""
        SELECT (SELECT count(*) FROM absurd.t_bench WHERE state <> 'completed')
             + (SELECT count(*) FROM absurd.t_children WHERE state <> 'completed')
    """,
    slowness=10,
)
WAYMARK = Engine(name="waymark", module=f"{ADAPTERS}.on_waymark", packages=["waymark==0.22.0"], python=(3, 12))

FANNING = ["fanout", "map"]
STRAIGHT = ["linear", "diamond"]

# "shapes" are those that a contender takes part in; all, if it does not say.
CONTENDERS = [
    Contender(name="catbird, sync on threads", engine=CATBIRD, worker=WORKER),
    Contender(
        name="catbird, async on the loop",
        engine=CATBIRD,
        options={"handlers": "async", "shapes": [*STRAIGHT, "fanout"]},
        worker=WORKER,
        is_main=False,
    ),
    Contender(
        name="catbird, sync, reduce at the end",
        engine=CATBIRD,
        options={"handlers": "reduce", "shapes": FANNING},
        worker=WORKER,
        is_main=False,
    ),
    Contender(name="catbird's SQL alone", engine=SQL_ALONE, options={"shapes": []}, is_main=False),
    Contender(name="dbos, sync workflow, 100 at once", engine=DBOS, options={"shapes": STRAIGHT}),
    Contender(
        name="dbos, sync workflow, 20 at once",
        engine=DBOS,
        options={"shapes": STRAIGHT, "concurrency": 20, "poll": 0.02},
        is_main=False,
    ),
    Contender(
        name="dbos, async workflow, gather, 100 at once", engine=DBOS, options={"handlers": "async"}, is_main=False
    ),
    Contender(
        name="dbos, queued children, 100 at once",
        engine=DBOS,
        options={"handlers": "children", "shapes": FANNING},
        is_main=False,
    ),
    Contender(
        name="dbos, queued children, 10 at once",
        engine=DBOS,
        options={"handlers": "children", "shapes": FANNING, "concurrency": 10, "poll": 0.02},
        is_main=False,
    ),
    Contender(name="absurd, steps of one task", engine=ABSURD),
    Contender(
        name="absurd, steps of one task, async SDK", engine=ABSURD, options={"handlers": "async", "concurrency": 20}
    ),
    Contender(
        name="absurd, child tasks, a step waits for each",
        engine=ABSURD,
        options={"handlers": "children", "shapes": FANNING},
        is_main=False,
    ),
    Contender(
        name="absurd, child tasks, a step waits for all",
        engine=ABSURD,
        options={"handlers": "children", "waits": "all", "shapes": FANNING},
        is_main=False,
    ),
    Contender(name="waymark", engine=WAYMARK),
]
