"""What must be true when a round is over, whatever the fault was."""

from __future__ import annotations

from collections import Counter
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
    yield from lost_flows(round_)
    yield from second_completions(round_)
    yield from second_completions_of_items(round_)
    yield from executions_without_a_claim(round_)
    yield from items_without_a_claim(round_)


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


def lost_flows(round_: Round) -> Iterator[str]:
    """Accepted runs of flows that are not there, or have not ended, and items that live."""
    statuses = dict(round_.query("SELECT id, status FROM cb_flow_runs"))
    for run_id in round_.accepted_flows:
        status = statuses.get(run_id, "gone")
        if status not in TERMINAL:
            yield f"run {run_id} of a flow was accepted, and is {status}"
    live = "SELECT flow_run_id, index, status FROM cb_items WHERE status IN ('queued', 'started', 'canceling')"
    for run_id, index, status in round_.query(live):
        yield f"item {index} of run {run_id} is still {status}"


def second_completions(round_: Round) -> Iterator[str]:
    """One effective completion per run: as many events as there are completed runs, one of each."""
    rows = round_.query(
        """
        SELECT run.id, count(event.id)
        FROM cb_task_runs AS run
        LEFT JOIN cb_events AS event
            ON event.run_kind = 'task' AND event.run_id = run.id AND event.event = 'completed'
        GROUP BY run.id, run.status
        HAVING count(event.id) <> (run.status = 'completed')::integer
        """
    )
    for run_id, count in rows:
        yield f"run {run_id} has {count} completions"


def second_completions_of_items(round_: Round) -> Iterator[str]:
    """The same of every item of a map."""
    rows = round_.query(
        """
        SELECT item.flow_run_id, item.index, count(event.id)
        FROM cb_items AS item
        LEFT JOIN cb_events AS event
            ON event.run_kind = 'item' AND event.run_id = item.id AND event.event = 'completed'
        GROUP BY item.id
        HAVING count(event.id) <> (item.status = 'completed')::integer
        """
    )
    for run_id, index, count in rows:
        yield f"item {index} of run {run_id} has {count} completions"


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


def items_without_a_claim(round_: Round) -> Iterator[str]:
    """The same of every item of a map."""
    begun: Counter[tuple[int, int]] = Counter()
    ended: set[tuple[int, int, int, int]] = set()
    for run, index, attempt, pid, phase in round_.item_effects():
        begun[run, index] += phase == "begin"
        if phase == "end":
            ended.add((run, index, attempt, pid))
    for run_id, index, deliveries, status, output in round_.query(
        "SELECT flow_run_id, index, delivery_count, status, output FROM cb_items"
    ):
        name, times = f"item {index} of run {run_id}", begun[run_id, index]
        if times > deliveries:
            yield f"{name} was delivered {deliveries} times, and begun {times} times"
        if status == "completed" and (run_id, index, output["attempt"], output["pid"]) not in ended:
            yield f"{name} has an output that no handler returned: {output}"


def in_short(problems: Iterable[str], most: int = 8) -> str:
    listed: Sequence[Any] = list(problems)
    more = [f"… and {len(listed) - most} more"] if len(listed) > most else []
    return "; ".join([*listed[:most], *more])
