"""What scenarios do to the server's sessions and settings, and how they see that work goes on."""

from __future__ import annotations

import time

from tests.chaos.cluster import WORKER_ROLE
from tests.chaos.processes import RECOVERY_BOUND
from tests.chaos.rounds import Round

COMPLETED = "SELECT count(*) FROM cb_task_runs WHERE status = 'completed'"


def goes_on(round_: Round, *, within: float = RECOVERY_BOUND + 4) -> None:
    """Note how long it takes from now until one more run is completed."""
    began = time.monotonic()
    before = completed(round_)
    round_.until(lambda: completed(round_) > before, seconds=within, what="work")
    round_.recoveries.append(round(time.monotonic() - began, 2))


def completed(round_: Round) -> int:
    return int(round_.query(COMPLETED)[0][0])


def set_for_workers(round_: Round, setting: str, value: str) -> None:
    """Change a setting of the workers' role, for sessions to come."""
    statement = f"ALTER ROLE {WORKER_ROLE} IN DATABASE {round_.database} SET {setting} = '{value}'"
    round_.cluster.execute(statement)


def end_sessions(round_: Round, where: str = "true") -> int:
    """pg_terminate_backend on every session of the workers; return how many there were."""
    return len(
        round_.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = %s AND usename = %s AND pid <> pg_backend_pid() AND {where}",
            [round_.database, WORKER_ROLE],
        )
    )
