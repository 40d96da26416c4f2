"""`cb_run_tasks`, and `cb_run_task` for one run without options."""

from typing import Any

import pytest
from django.db import connection, transaction

from catbird_django.definitions.conditions import parse_condition
from catbird_django.engine.tasks import run_tasks
from catbird_django.engine.workers import announce_sleep
from catbird_django.errors import InvalidArgument
from catbird_django.models import Task, TaskRun
from catbird_django.statuses import RunVerdict
from tests.support import USING, queue_runs, register, register_worker, second_session


def test_one_id_per_input_in_the_order_given() -> None:
    register("mail")

    ids = queue_runs("mail", 500)

    assert list(TaskRun.objects.order_by("id").values_list("id", "input")) == list(zip(ids, range(500), strict=True))


def test_a_new_run_is_queued_and_due() -> None:
    """T3."""
    [task_id] = register("mail", queue="post")

    [run_id] = queue_runs("mail", 1, priority=7, headers='{"trace": "x"}')

    run = TaskRun.objects.get(id=run_id)
    assert (run.task_id, run.status, run.queue, run.priority) == (task_id, "queued", "post", 7)
    assert (run.visible_at, run.started_at, run.finished_at, run.output) == (None, None, None, None)
    assert run.headers == {"trace": "x"}


def test_a_run_may_go_to_another_queue() -> None:
    """T4b."""
    register("mail", queue="post")

    [run_id] = queue_runs("mail", 1, queue="express")

    assert TaskRun.objects.get(id=run_id).queue == "express"


def answer_of(call: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT run_id, verdict, queue, is_awaited FROM {call}")
        [answer] = cursor.fetchall()
        return answer


@pytest.mark.parametrize("sleeps", [False, True])
def test_one_run_is_queued_as_many_are(sleeps: bool) -> None:
    """R9a: the answer is the same, too, also about who sleeps."""
    register("mail", queue="post")
    worker_id = register_worker()
    if sleeps:
        announce_sleep(worker_id, using=USING)

    many = answer_of("cb_run_tasks('mail', ARRAY['{\"n\": 1}']::jsonb[])")
    one = answer_of("cb_run_task('mail', '{\"n\": 1}')")

    assert one[1:] == many[1:] == ("queued", "post", sleeps)
    [of_many, of_one] = TaskRun.objects.filter(id__in=[many[0], one[0]]).order_by("id").values()
    differing = {name for name in of_one if of_one[name] != of_many[name]}
    assert differing == {"id", "queued_at"}


def test_one_run_of_a_task_with_a_condition_is_decided_as_many_are() -> None:
    """T6."""
    register("mail")
    Task.objects.update(condition=parse_condition("input gte 10", roots={"input"}).as_json())

    assert [answer_of(f"cb_run_task('mail', '{given}')")[1] for given in ("10", "9", '"x"')] == [
        "queued",
        "skipped",
        "failed",
    ]


def test_one_run_of_an_unknown_task_or_without_an_input_is_refused_as_many_are() -> None:
    """R5a."""
    register("mail")

    assert answer_of("cb_run_task('nobody', '1')") == (None, "unknown", None, None)
    with pytest.raises(Exception, match="p_inputs holds a NULL"), transaction.atomic():
        answer_of("cb_run_task('mail', NULL)")


def test_an_unknown_task_is_an_answer_not_an_exception() -> None:
    """R5a: the caller's transaction stays usable."""
    answers = run_tasks("nobody", ["1", "2"], using=USING)

    assert [(answer.run_id, answer.verdict) for answer in answers] == [(None, RunVerdict.UNKNOWN)] * 2
    assert TaskRun.objects.count() == 0


def test_the_runs_vanish_with_the_callers_transaction() -> None:
    register("mail")

    with transaction.atomic():
        queue_runs("mail", 3)
        transaction.set_rollback(True)

    assert TaskRun.objects.count() == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("'mail', ARRAY['1']::jsonb[], p_priority => 101", "p_priority is 101"),
        ("'mail', ARRAY['1']::jsonb[], p_priority => NULL", "p_priority is NULL"),
        ("'mail', ARRAY['1']::jsonb[], p_queue => 'No Queue'", "p_queue is not a name"),
        ("'mail', ARRAY['1']::jsonb[], p_headers => '[]'", "p_headers is not a JSON object"),
        ("'mail', ARRAY['1', NULL]::jsonb[]", "p_inputs holds a NULL"),
    ],
)
def test_plain_sql_gets_a_clear_error_for_bad_arguments(arguments: str, complaint: str) -> None:
    """R3, R10: other languages call the same functions."""
    register("mail")

    with pytest.raises(Exception, match=complaint) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM cb_run_tasks({arguments})")

    assert caught.value.__cause__.sqlstate == "CB001"
    assert TaskRun.objects.count() == 0


def test_our_own_error_is_made_of_our_sqlstate() -> None:
    register("mail")

    with pytest.raises(InvalidArgument, match="p_priority is 500"), transaction.atomic():
        run_tasks("mail", ["1"], priority=500, using=USING)


@pytest.mark.django_db(transaction=True)
def test_plain_sql_may_notify_from_inside_its_transaction() -> None:
    """R9a: p_notify => true, for callers that have no on_commit."""
    register("mail")
    worker_id = register_worker()
    with connection.cursor() as cursor:
        cursor.execute("SELECT cb_announce_sleep(%s)", [worker_id])

    with second_session() as listener:
        listener.autocommit = True
        listener.execute("LISTEN cb_work")
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM cb_run_tasks('mail', ARRAY['1']::jsonb[], p_notify => true)")
        heard = [notice.payload for notice in listener.notifies(timeout=5, stop_after=1)]

    assert heard == [str(worker_id)]
