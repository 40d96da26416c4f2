"""F26, T13: `cb_retry_flows` makes a new run of one that has ended."""

from __future__ import annotations

import pytest

from catbird_django.engine.flow_cancel import cancel_flows
from catbird_django.engine.flow_retry import retry_flows
from catbird_django.engine.flows import register_flows, run_flows
from catbird_django.models import Event, FlowRun, Readiness, RunTag, StepRun
from catbird_django.statuses import RetryVerdict
from tests.flow_support import plan, start, statuses
from tests.support import USING

SHAPE = plan("mail", {"name": "a"}, {"name": "b", "needs": ["a"]})


def ended(**options: object) -> FlowRun:
    run = start(SHAPE, {"to": "kim"}, **options)
    cancel_flows([run.pk], reason="", actor="", notify=False, using=USING)
    run.refresh_from_db()
    return run


def test_the_new_run_is_like_the_old_one_and_knows_it() -> None:
    old = ended(priority=3, headers='{"a": 1}', tags=["red"], idempotency_keys=["i"], queue="post")

    [answer] = retry_flows([old.pk], actor="ada", using=USING)

    new = FlowRun.objects.get(pk=answer.run_id)
    assert (answer.verdict, answer.queue, new.status) == (RetryVerdict.QUEUED, "post", "started")
    assert (new.origin_id, new.role, new.started_by) == (old.pk, "retry", "ada")
    assert (new.flow_id, new.queue, new.priority, new.input, new.headers) == (
        old.flow_id,
        "post",
        3,
        {"to": "kim"},
        {"a": 1},
    )
    assert (new.idempotency_key, new.run_at, new.expires_at) == (None, None, None)
    assert list(RunTag.objects.filter(run_kind="flow", run_id=new.pk).values_list("tag", flat=True)) == ["red"]
    assert statuses(new) == {"a": "queued", "b": "waiting_for_dependencies"}
    assert Readiness.objects.filter(flow_run=new).count() == 3


def test_the_old_run_is_left_as_it_was() -> None:
    old = ended()
    steps, events = StepRun.objects.filter(flow_run=old).values(), Event.objects.count()
    before = list(steps)

    retry_flows([old.pk], actor="", using=USING)

    assert FlowRun.objects.get(pk=old.pk).status == "canceled"
    assert (list(steps.all()), Event.objects.count()) == (before, events)


def test_it_is_of_the_version_that_is_registered_now() -> None:
    """F21: what was changed to make it work shall count."""
    old = ended()
    [newest] = register_flows([plan("mail", {"name": "a"})], using=USING)

    [answer] = retry_flows([old.pk], actor="", using=USING)

    assert FlowRun.objects.get(pk=answer.run_id).flow_id == newest != old.flow_id


def test_what_is_live_or_unknown_is_an_answer_and_answers_come_in_order() -> None:
    """R5a."""
    done, live = ended(), start(SHAPE)

    answers = retry_flows([live.pk, done.pk, 0, done.pk], actor="", using=USING)

    assert [answer.verdict.value for answer in answers] == ["live", "queued", "unknown", "queued"]
    assert [answer.run_id is None for answer in answers] == [True, False, True, False]
    assert retry_flows([], actor="", using=USING) == []


def test_the_concurrency_key_is_kept_and_a_live_run_that_has_it_is_the_answer() -> None:
    old = ended(concurrency_keys=["k"])

    first, second = retry_flows([old.pk, old.pk], actor="", using=USING)

    assert (first.verdict, second.verdict) == (RetryVerdict.QUEUED, RetryVerdict.DUPLICATE)
    assert first.run_id == second.run_id
    [third] = run_flows("mail", ["1"], concurrency_keys=["k"], using=USING)
    assert third.run_id == first.run_id


@pytest.mark.parametrize("status", ["canceling", "failing", "completing"])
def test_a_run_that_is_being_ended_is_live(status: str) -> None:
    run = start(SHAPE)
    FlowRun.objects.update(status=status)

    assert [answer.verdict for answer in retry_flows([run.pk], actor="", using=USING)] == [RetryVerdict.LIVE]
