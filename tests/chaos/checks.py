"""What must be true when a round is over, whatever the fault was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from catbird_django.engine.doctor import examine
from tests.chaos.processes import LEASE, POLL, SWEEP

if TYPE_CHECKING:
    from tests.chaos.rounds import Round

TERMINAL = ("completed", "failed", "skipped", "canceled", "expired")


def what_is_wrong(round_: Round) -> Iterator[str]:
    """Everything that is not as promised; nothing, if all is well."""
    yield from doctor_errors(round_)
    yield from lost_runs(round_)
    yield from second_completions(round_)
    yield from executions_without_a_claim(round_)


def doctor_errors(round_: Round) -> Iterator[str]:
    """SPEC 14, as `catbird_doctor` checks it."""
    for finding in examine(
        lease=timedelta(seconds=LEASE),
        sweep=timedelta(seconds=SWEEP),
        worker_ttl=timedelta(minutes=5),
        patience=timedelta(seconds=LEASE + SWEEP + POLL),
        is_notifying=True,
        using=round_.using,
    ):
        if finding.severity == "error":
            yield f"doctor: {finding.check_id}, run {finding.run_id} of {finding.subject} {finding.message}"


def lost_runs(round_: Round) -> Iterator[str]:
    """Accepted runs that are not there, or have not ended."""
    statuses = dict(round_.query("SELECT id, status FROM cb_task_runs"))
    for run_id in round_.accepted:
        status = statuses.get(run_id, "gone")
        if status not in TERMINAL:
            yield f"run {run_id} was accepted, and is {status}"


def second_completions(round_: Round) -> Iterator[str]:
    """One effective completion per run: as many events as there are completed runs, one of each."""
    rows = round_.query(
        """
        SELECT run.id, count(event.id)
        FROM cb_task_runs AS run
        LEFT JOIN cb_events AS event ON event.run_id = run.id AND event.event = 'completed'
        GROUP BY run.id, run.status
        HAVING count(event.id) <> (run.status = 'completed')::integer
        """
    )
    for run_id, count in rows:
        yield f"run {run_id} has {count} completions"


def executions_without_a_claim(round_: Round) -> Iterator[str]:
    """No handler ran without a claim of its own (RELIABILITY 2.2, T2), and what a run answers, its handler did."""
    begun: dict[int, int] = {}
    ended: set[tuple[int, int, int]] = set()
    for run, attempt, pid, phase in round_.effects():
        if phase == "begin":
            begun[run] = begun.get(run, 0) + 1
        if phase == "end":
            ended.add((run, attempt, pid))
    for run_id, deliveries, status, output in round_.query(
        "SELECT id, delivery_count, status, output FROM cb_task_runs WHERE id = ANY (%s)", [list(begun)]
    ):
        if begun[run_id] > deliveries:
            yield f"run {run_id} was delivered {deliveries} times, and begun {begun[run_id]} times"
        if status == "completed" and (run_id, output["attempt"], output["pid"]) not in ended:
            yield f"run {run_id} has an output that no handler returned: {output}"


def in_short(problems: Iterable[str], most: int = 8) -> str:
    listed: Sequence[Any] = list(problems)
    more = [f"… and {len(listed) - most} more"] if len(listed) > most else []
    return "; ".join([*listed[:most], *more])
