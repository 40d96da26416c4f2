"""E1, T14, U7: the page of a run tells its whole story, and offers to cancel it or run it again."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from catbird_django.models import Breaker, TaskRun
from catbird_django.monitoring import actions
from catbird_django.monitoring.actions import Person, Shell, cancel_runs, retry_runs
from tests.factories import EventFactory, RunLogFactory, RunTagFactory, TaskFactory, TaskRunFactory, WorkerFactory

pytestmark = pytest.mark.django_db

EVIL = '<script>alert("cb")</script><img src=x onerror=alert(1)>'
LIST = "/admin/catbird/taskrun/"


def user_with(*codenames: str) -> User:
    user = User.objects.create_user(f"user-{'-'.join(codenames)}", is_staff=True)
    permissions = Permission.objects.filter(content_type__app_label="catbird", codename__in=codenames)
    assert len(permissions) == len(codenames)
    user.user_permissions.set(permissions)
    return user


def client_with(*codenames: str) -> Client:
    client = Client()
    client.force_login(user_with(*codenames))
    return client


@pytest.fixture
def client(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user)
    return client


def page_url(row: Any) -> str:
    return reverse(f"admin:catbird_{type(row).__name__.lower()}_change", args=[row.pk])


def action_url(run: TaskRun, action: str) -> str:
    return reverse(f"admin:catbird_taskrun_{action}", args=[run.pk])


def shown(client: Client, url: str, **parameters: Any) -> str:
    response = client.get(url, parameters)
    assert response.status_code == 200, response
    return response.content.decode()


def texts(page: str) -> str:
    """The words of a page, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


# What is shown


def test_history_merges_the_timestamps_of_the_row_and_the_events_oldest_first(client: Client) -> None:
    """E1."""
    start = timezone.now() - timedelta(hours=1)
    run = TaskRunFactory(
        completed=True,
        queued_at=start,
        started_at=start + timedelta(minutes=1),
        finished_at=start + timedelta(minutes=9),
    )
    EventFactory(run_id=run.pk, at=start + timedelta(minutes=3), event="retried", details={"delay": 7})
    EventFactory(run_id=run.pk, at=start + timedelta(minutes=2), event="released")
    EventFactory(run_id=run.pk + 1, event="somebody_elses")

    page = texts(shown(client, page_url(run)))
    history = page[page.index("History") :]

    places = [history.index(word) for word in ("queued", "first started", "released", "retried", "completed")]
    assert places == sorted(places)
    assert "&quot;delay&quot;: 7" in history
    assert "somebody_elses" not in history


def test_what_an_event_tells_is_not_told_twice(client: Client) -> None:
    """E1: with EVENTS = "all" every transition has an event, at the same time as the row's timestamp."""
    run = TaskRunFactory(completed=True)
    EventFactory(run_id=run.pk, at=run.started_at, event="claimed", from_status="queued", to_status="started")

    page = shown(client, page_url(run))

    assert "claimed" in page
    assert "first started" not in page


def test_progress_is_a_bar_with_numbers_and_message(client: Client) -> None:
    """T14."""
    run = TaskRunFactory(started=True, progress={"done": 3, "total": 12, "message": "packing cups"})

    page = shown(client, page_url(run))

    assert '<progress value="3" max="12"' in page
    assert "3 / 12" in page
    assert "packing cups" in page
    assert '<progress value="3" max="12"' in shown(client, LIST)


@pytest.mark.parametrize("progress", [{"done": 3}, {"done": 3, "total": 0}, {"done": "x"}, [1], "x", {"total": 3}])
def test_progress_that_makes_no_bar_makes_no_error(client: Client, progress: Any) -> None:
    run = TaskRunFactory(started=True, progress=progress)

    assert "<progress" not in shown(client, page_url(run))


def test_the_log_shows_the_newest_lines_with_their_levels(client: Client) -> None:
    """T14."""
    run = TaskRunFactory(started=True)
    for number in range(203):
        RunLogFactory(run_id=run.pk, message=f"line {number:03}", level="error" if number == 202 else "info")

    page = shown(client, page_url(run))

    assert '<tr data-level="error">' in page
    assert page.index("line 003") < page.index("line 202")
    assert "line 002" not in page
    assert "Only the newest 200 lines" in page


def test_tags_origin_successors_keys_and_expiry_are_shown(client: Client) -> None:
    origin = TaskRunFactory(failed=True)
    run = TaskRunFactory(
        origin=origin, role="retry", debounce_key="soon", expires_at=timezone.now() + timedelta(days=400)
    )
    successor = TaskRunFactory(origin=run, role="on_fail")
    RunTagFactory(run_id=run.pk)

    page = shown(client, page_url(run))

    for expected in (page_url(origin), page_url(successor), "customer:42", "soon", str(run.expires_at.year)):
        assert expected in page


def test_runs_are_found_by_their_tag_exactly(client: Client) -> None:
    tagged, other, similar = TaskRunFactory.create_batch(3)
    RunTagFactory(run_id=tagged.pk, tag="customer:42")
    RunTagFactory(run_id=other.pk, tag="customer:43")
    RunTagFactory(run_id=similar.pk, tag="customer:421")

    page = shown(client, LIST, tag="customer:42")

    assert page_url(tagged) in page
    assert page_url(other) not in page
    assert page_url(similar) not in page
    assert 'name="tag" value="customer:42"' in page


def test_the_page_of_a_task_says_how_it_runs(client: Client) -> None:
    undo = TaskFactory(name="undo")
    task = TaskFactory(
        condition={"text": "input.amount gte 10"},
        on_fail="undo",
        options={"timeout": 30.0},
        retention=timedelta(days=3),
    )
    Breaker.objects.create(task=task, failure_count=7, open_until=timezone.now() + timedelta(minutes=1))

    page = shown(client, page_url(task))

    for expected in ("input.amount gte 10", page_url(undo), "timeout = 30.0", "3 d<", "open until", "7 failures"):
        assert expected in page


@pytest.mark.parametrize(
    ("rest", "expected"),
    [(timedelta(minutes=1), "and rests; then one run is tried"), (-timedelta(minutes=1), "one run is tried before")],
)
def test_the_page_of_a_queued_run_says_that_its_task_rests(client: Client, rest: timedelta, expected: str) -> None:
    """T9."""
    run = TaskRunFactory()
    Breaker.objects.create(task=run.task, failure_count=7, open_until=timezone.now() + rest)
    ended, other = TaskRunFactory(task=run.task, completed=True), TaskRunFactory()

    page = shown(client, page_url(run))

    assert "has failed 7 times in a row" in page
    assert expected in page
    for unaffected in (ended, other):
        assert "Why is it waiting?" not in shown(client, page_url(unaffected))


def test_the_page_of_a_queued_run_says_that_it_is_claimed_alone(client: Client) -> None:
    """T7a."""
    run = TaskRunFactory(lost_count=3, delivery_count=3)

    assert "It has lost its worker 3 times: it is claimed alone" in shown(client, page_url(run))


def test_the_page_of_a_worker_says_how_it_hears_of_work_and_what_it_left_behind(client: Client) -> None:
    listening = WorkerFactory(is_listening=True, abandoned_count=2, draining_since=timezone.now())

    page = shown(client, page_url(listening))

    assert "listening (NOTIFY)" in page
    assert "draining" in page
    assert "polling" in shown(client, page_url(WorkerFactory()))


def test_what_handlers_and_events_say_is_escaped(client: Client) -> None:
    run = TaskRunFactory(failed=True, progress={"done": 1, "total": 2, "message": EVIL}, debounce_key=EVIL)
    RunLogFactory(run_id=run.pk, message=EVIL, level='"><img src=x>')
    RunTagFactory(run_id=run.pk, tag=EVIL)
    EventFactory(run_id=run.pk, event=EVIL, actor=EVIL, from_status=EVIL, details={EVIL: EVIL})
    task = TaskFactory(condition=EVIL, on_fail=EVIL, options={EVIL: EVIL})

    for url in (page_url(run), LIST, f"{LIST}?tag=%3Cscript%3Ealert", page_url(task)):
        page = shown(client, url)
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert re.findall(r"<style|\sstyle=|\son\w+=", re.sub(r"&lt;.*?&gt;", "", page)) == []
        assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []


# Who sees what


def test_without_view_payload_nothing_that_may_name_people_is_shown() -> None:
    """U7."""
    run = TaskRunFactory(
        failed=True,
        input="secret",
        progress={"done": 1, "total": 2, "message": "secret"},
        concurrency_key="secret",
        cancel_reason="secret",
    )
    RunLogFactory(run_id=run.pk, message="secret")
    RunTagFactory(run_id=run.pk, tag="secret")
    EventFactory(run_id=run.pk, details="secret", actor="secret")
    client = client_with("view_taskrun")

    page = shown(client, page_url(run))

    assert "secret" not in page
    assert '<progress value="1" max="2"' in page
    assert page_url(run) not in shown(client, LIST, tag="secret")
    assert "secret" in shown(client_with("view_taskrun", "view_payload"), page_url(run))


# Who does what

GRANTED = [
    # permissions, may see, may cancel, may retry
    ((), False, False, False),
    (("cancel_run", "retry_run"), False, False, False),
    (("view_taskrun",), True, False, False),
    (("view_taskrun", "cancel_run"), True, True, False),
    (("view_taskrun", "retry_run"), True, False, True),
]


@pytest.mark.parametrize(("codenames", "sees", "cancels", "retries"), GRANTED)
def test_each_permission_allows_what_it_says(
    codenames: tuple[str, ...], sees: bool, cancels: bool, retries: bool
) -> None:
    """U7."""
    client = client_with(*codenames)
    queued, failed = TaskRunFactory(), TaskRunFactory(failed=True)
    page, ended = client.get(page_url(queued)), client.get(page_url(failed))

    assert page.status_code == (200 if sees else 403)
    assert (action_url(queued, "cancel") in page.content.decode()) is cancels
    assert (action_url(failed, "retry") in ended.content.decode()) is retries
    assert client.get(LIST).status_code == (200 if sees else 403)
    assert client.post(action_url(queued, "cancel")).status_code == (302 if cancels else 403)
    assert client.post(action_url(failed, "retry")).status_code == (302 if retries else 403)
    assert TaskRun.objects.filter(pk=queued.pk, status="canceled").exists() is cancels
    assert TaskRun.objects.filter(origin=failed).exists() is retries


@pytest.mark.parametrize(("codenames", "sees", "cancels", "retries"), GRANTED)
def test_each_permission_allows_the_bulk_action_that_it_says(
    codenames: tuple[str, ...], sees: bool, cancels: bool, retries: bool
) -> None:
    """U7."""
    client = client_with(*codenames)
    queued, failed = TaskRunFactory(), TaskRunFactory(failed=True)
    for action in ("cancel_selected", "retry_selected"):
        client.post(LIST, {"action": action, "_selected_action": [queued.pk, failed.pk], "confirmed": "yes"})

    assert TaskRun.objects.filter(pk=queued.pk, status="canceled").exists() is cancels
    assert TaskRun.objects.filter(origin=failed).exists() is retries


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_looking_changes_nothing_and_strangers_log_in_first(client: Client, action: str) -> None:
    run = TaskRunFactory()

    assert client.get(action_url(run, action)).status_code == 405
    assert Client().post(action_url(run, action)).status_code == 302
    assert Client(enforce_csrf_checks=True).post(action_url(run, action)).status_code in (302, 403)
    assert TaskRun.objects.get().status == "queued"


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_a_post_without_the_token_against_forgery_is_refused(admin_user: User, action: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    assert client.post(action_url(TaskRunFactory(), action)).status_code == 403


@pytest.mark.parametrize("path", ["0", "999999999", "x", "99999999999999999999999"])
def test_a_run_that_is_not_there_cannot_be_acted_on(client: Client, path: str) -> None:
    assert client.post(f"{LIST}{path}/cancel/").status_code == 404


def test_a_cancel_keeps_who_and_why(client: Client, admin_user: User) -> None:
    run = TaskRunFactory()

    page = client.post(action_url(run, "cancel"), {"reason": "wrong address"}, follow=True).content.decode()

    run = TaskRun.objects.get()
    assert (run.status, run.cancel_reason, run.canceled_by) == ("canceled", "wrong address", admin_user.username)
    assert "Canceled: 1." in page
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user, entry.change_message) == (
        str(run.pk),
        admin_user,
        "Canceled: wrong address",
    )


def test_run_again_leads_to_the_new_run(client: Client) -> None:
    run = TaskRunFactory(failed=True)

    response = client.post(action_url(run, "retry"))

    new = TaskRun.objects.get(origin=run)
    assert response["Location"] == page_url(new)
    assert (new.status, new.role, new.input) == ("queued", "retry", run.input)
    assert LogEntry.objects.get().object_id == str(run.pk)


def test_bulk_actions_ask_first_with_exact_numbers(client: Client) -> None:
    runs = TaskRunFactory.create_batch(3)
    ticked = {"action": "cancel_selected", "_selected_action": [runs[0].pk, runs[2].pk]}

    page = client.post(LIST, {**ticked, "index": "0", "select_across": "0"}).content.decode()

    assert "Cancel 2 runs?" in page
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\bsrc=)", page) == []
    assert not TaskRun.objects.filter(status="canceled").exists()


def test_a_bulk_action_says_what_it_did_and_what_was_refused(client: Client) -> None:
    queued, started, ended = TaskRunFactory(), TaskRunFactory(started=True), TaskRunFactory(completed=True)
    ticked = {"_selected_action": [queued.pk, started.pk, ended.pk], "confirmed": "yes"}

    canceled = client.post(LIST, {**ticked, "action": "cancel_selected"}, follow=True).content.decode()
    retried = client.post(LIST, {**ticked, "action": "retry_selected"}, follow=True).content.decode()

    assert "Canceled: 1." in canceled
    assert "Told to stop, and canceled when they have: 1." in canceled
    assert "Had ended already, so not canceled: 1." in canceled
    assert "Queued again, as a new run: 2." in retried  # the canceled one has ended too
    assert "Have not ended, so not run again: 1." in retried


def test_all_of_a_list_cannot_be_selected(client: Client) -> None:
    """A filter may match millions."""
    ticked, other = TaskRunFactory.create_batch(2)

    client.post(
        LIST,
        {"action": "cancel_selected", "_selected_action": [ticked.pk], "select_across": "1", "confirmed": "yes"},
    )

    assert TaskRun.objects.get(pk=other.pk).status == "queued"


# The actions themselves


def test_nobody_acts_without_permission() -> None:
    run = TaskRunFactory()
    for user in (AnonymousUser(), user_with("view_taskrun")):
        with pytest.raises(PermissionDenied):
            cancel_runs(Person(user), [run.pk])
        with pytest.raises(PermissionDenied):
            retry_runs(Person(user), [run.pk])

    assert TaskRun.objects.get().status == "queued"


def test_many_runs_are_done_in_batches_each_once(monkeypatch: pytest.MonkeyPatch, admin_user: User) -> None:
    monkeypatch.setattr(actions, "BATCH", 2)
    runs = TaskRunFactory.create_batch(5)
    steps: list[int] = []

    answers = cancel_runs(Person(admin_user), [*(run.pk for run in runs), runs[0].pk, 0], done=steps.append)

    assert answers.counts == {"canceled": 5, "unknown": 1}
    assert steps == [2, 4, 6]
    assert LogEntry.objects.count() == 5


def test_the_shell_may_do_everything_and_leaves_its_name() -> None:
    run = TaskRunFactory()

    cancel_runs(Shell(), [run.pk])

    assert TaskRun.objects.get().canceled_by.startswith("command")
    assert not LogEntry.objects.exists()
