"""`examples/first_task/press`: what the how-to page about tasks shows, with a real worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from catbird_django import PayloadError, RunCanceled, RunSkipped, TaskHandle, run_task
from catbird_django.models import RunLog, RunTag, Task, TaskRun
from catbird_django.statuses import TaskStatus
from tests.support import working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def press(example: Any) -> Any:
    return example("press.tasks")


@pytest.fixture
def desk(example: Any) -> Any:
    return example("press.desk")


@pytest.fixture
def issue(press: Any) -> Any:
    return press.Issue(number=7, recipients=["ada", "kim"])


def make_due() -> None:
    TaskRun.objects.filter(visible_at__isnull=False).update(visible_at=Now() - timedelta(seconds=1))


def test_an_issue_is_sent_with_progress_and_log(press: Any, issue: Any, example: Any, work_until_idle: Any) -> None:
    handle = press.send_issue.run(issue)
    work_until_idle()

    assert handle.wait(timeout=10) == press.Sent(number=7, copies=2)
    assert example("press.post").sent == [("ada", "Issue 7"), ("kim", "Issue 7")]
    assert TaskRun.objects.get().progress["message"] == "to kim"
    assert RunLog.objects.get().message == "sent 2 copies at attempt 1"


def test_every_option_reaches_the_run(desk: Any, issue: Any) -> None:
    deadline = timezone.now() + timedelta(hours=1)
    handle = desk.announce(issue, deadline=deadline, trace="abc")

    run = TaskRun.objects.get(id=handle.id)
    assert (run.queue, run.priority, run.headers, run.expires_at) == ("bulk", -10, {"trace": "abc"}, deadline)
    assert run.visible_at - run.queued_at == timedelta(minutes=5)
    assert set(RunTag.objects.values_list("tag", flat=True)) == {"newsletter", "issue-7"}


def test_each_key_does_what_it_is_for(desk: Any, press: Any, issue: Any, work_until_idle: Any) -> None:
    once, archive, edited = desk.send_once(issue), desk.rebuild(2026), desk.page_was_edited(1, "one")
    assert desk.send_once(issue).id == once.id
    assert desk.rebuild(2026).id == archive.id
    assert desk.rebuild(2027).id != archive.id
    assert desk.page_was_edited(1, "one two three").id == edited.id
    make_due()
    work_until_idle()

    assert edited.wait(timeout=10) == 3
    assert desk.send_once(issue).id == once.id
    assert desk.rebuild(2026).id != archive.id
    assert desk.page_was_edited(1, "four").id != edited.id


def test_many_are_queued_in_order(desk: Any, example: Any, work_until_idle: Any) -> None:
    example("press.post").unreachable.add("b")
    handles = desk.check_addresses(["a", "b", "c"])
    work_until_idle()

    assert [handle.wait(timeout=10) for handle in handles] == [True, False, True]
    assert {run.queue for run in TaskRun.objects.all()} == {"bulk"}


def test_whoever_waits_is_told_how_it_ended(desk: Any, press: Any, issue: Any, example: Any) -> None:
    with working("send_issue", "tell_editor"):
        assert desk.send_now(issue) == "2 copies are on their way"
        assert desk.send_now(press.Issue(number=8, recipients=[])).startswith("not sent: ")
    assert TaskRun.objects.latest("id").cancel_reason == "nobody wants it"


def test_the_editor_is_told_once_after_the_last_attempt(
    press: Any, desk: Any, issue: Any, example: Any, work_until_idle: Any
) -> None:
    example("press.post").unreachable.add("kim")
    handle = press.send_issue.run(issue)
    for _ in range(4):
        make_due()
        work_until_idle()

    assert desk.how_it_went(handle) == "not sent: kim cannot be reached"
    [told] = TaskRun.objects.filter(task__name="tell_editor")
    assert told.output == "issue 7 failed after 3 attempts: ConnectionError: kim cannot be reached"


def test_small_donations_are_skipped(press: Any, work_until_idle: Any) -> None:
    small, large = (press.thank.run(press.Donation(donor="Ada", amount=amount)) for amount in (9, 10))
    work_until_idle()

    assert large.wait(timeout=10) == "Dear Ada, thank you!"
    with pytest.raises(RunSkipped):
        small.wait()


def test_a_run_is_stopped_and_run_again(desk: Any, press: Any, issue: Any, work_until_idle: Any) -> None:
    handle = press.send_issue.run(issue)
    assert desk.stop(handle.id, editor="kim")
    with pytest.raises(RunCanceled):
        handle.wait()
    number = desk.again(handle.id, editor="kim")
    work_until_idle()

    assert TaskHandle(number).wait(timeout=10) == {"number": 7, "copies": 2}
    assert TaskRun.objects.get(id=number).origin_id == handle.id
    assert not desk.stop(number, editor="kim")


def test_a_task_of_another_project_is_declared_and_queued(press: Any) -> None:
    handle = press.translate.run("hello")

    assert handle.status() is TaskStatus.QUEUED
    assert run_task("translate", "hello").status() is TaskStatus.QUEUED
    with pytest.raises(PayloadError, match="input: should be a valid string"):
        press.translate.run(7)


def test_options_of_tasks_are_stored(press: Any) -> None:
    press.print_copies.run(1)
    press.send_issue.run(press.Issue(number=1, recipients=["ada"]))

    assert Task.objects.get(name="print_copies").on_cancel == "finish"
    stored = Task.objects.get(name="send_issue")
    assert (stored.max_retries, stored.on_fail, stored.retention) == (2, "tell_editor", timedelta(days=90))
