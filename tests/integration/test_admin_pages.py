"""The admin's pages of tasks, runs and workers: what they show, to whom, and that nothing can be changed there."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from catbird_django.models import Task, TaskRun, Worker
from catbird_django.statuses import TaskStatus
from tests.factories import TaskFactory, TaskRunFactory, WorkerFactory

pytestmark = pytest.mark.django_db

MODELS = ["task", "taskrun", "worker"]
EVIL = '<script>alert("cb")</script><img src=x onerror=alert(1)>'


@pytest.fixture
def client(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user)
    return client


def viewer_of(*models: str) -> Client:
    """Someone from the staff who may view rows of these models, and nothing else."""
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=[f"view_{model}" for model in models]))
    client = Client()
    client.force_login(user)
    return client


def list_url(model: str) -> str:
    return reverse(f"admin:catbird_{model}_changelist")


def page_url(row: Task | TaskRun | Worker) -> str:
    return reverse(f"admin:catbird_{type(row).__name__.lower()}_change", args=[row.pk])


def shown(client: Client, url: str, **parameters: Any) -> str:
    response = client.get(url, parameters)
    assert response.status_code == 200, response
    return response.content.decode()


def one_of_each() -> dict[str, Any]:
    run = TaskRunFactory(started=True)
    return {"task": run.task, "taskrun": run, "worker": run.worker}


# What is shown


@pytest.mark.parametrize("status", TaskStatus.values)
def test_a_run_of_any_status_has_a_page_and_a_line_in_the_list(client: Client, status: str) -> None:
    run = TaskRunFactory(**({} if status == "queued" else {status: True}))

    for page in (shown(client, list_url("taskrun")), shown(client, page_url(run))):
        badge = re.search(rf'<span class="catbird-badge" data-status="{status}">.*?</span>', page)
        assert badge
        assert f"</svg>{status}</span>" in badge.group()


def test_the_page_of_a_run_says_how_long_it_waited_and_ran(client: Client) -> None:
    queued_at = timezone.now() - timedelta(hours=1)
    run = TaskRunFactory(
        completed=True,
        queued_at=queued_at,
        started_at=queued_at + timedelta(minutes=2, seconds=3),
        finished_at=queued_at + timedelta(minutes=2, seconds=7.5),
    )

    page = shown(client, page_url(run))

    assert "2 min 3 s" in page
    assert "4.5 s" in page


def test_the_page_of_a_running_run_says_how_long_by_the_databases_clock(client: Client) -> None:
    run = TaskRunFactory(started=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION _cb_now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ "
            "SELECT statement_timestamp() + interval '3 hours' $$"
        )

    assert re.search(r"3 h \d+ min", shown(client, page_url(run)))


def test_the_page_of_a_run_links_to_its_task_and_its_worker(client: Client) -> None:
    run = TaskRunFactory(completed=True)

    page = shown(client, page_url(run))

    assert f'<a href="{page_url(run.task)}">{run.task.name}</a>' in page
    assert f'<a href="{page_url(run.worker)}">{run.worker}</a>' in page


def test_a_run_whose_worker_was_forgotten_still_has_a_page(client: Client) -> None:
    run = TaskRunFactory(completed=True)
    Worker.objects.all().delete()

    assert "no longer on record" in shown(client, page_url(run))


def test_numbers_in_payloads_keep_every_digit(client: Client) -> None:
    run = TaskRunFactory()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cb_task_runs SET input = %s", ['{"id": 9007199254740993, "price": 1.10, "e": 1e2}'])

    page = shown(client, page_url(run))

    assert "9007199254740993" in page
    assert "1.10" in page


def test_an_output_of_json_null_is_not_an_absent_one(client: Client) -> None:
    run = TaskRunFactory(completed=True)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cb_task_runs SET output = 'null'")

    assert '<pre class="catbird-code" dir="ltr">null</pre>' in shown(client, page_url(run))


def test_a_payload_too_deep_for_python_is_shown_all_the_same(client: Client) -> None:
    run = TaskRunFactory()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cb_task_runs SET input = %s", ["[" * 3000 + "]" * 3000])

    assert "…" in shown(client, page_url(run))


def test_a_huge_payload_is_cut(client: Client) -> None:
    run = TaskRunFactory(input=["x" * 1000] * 1000)

    assert len(shown(client, page_url(run))) < 300_000


def test_the_page_of_a_failed_run_shows_the_error_and_folds_the_traceback(client: Client) -> None:
    page = shown(client, page_url(TaskRunFactory(failed=True)))

    assert "<strong>ZeroDivisionError</strong><span>division by zero</span>" in page
    assert '<details class="catbird-fold"><summary>Traceback</summary>' in page


def test_an_error_that_another_client_wrote_is_shown_as_it_is(client: Client) -> None:
    run = TaskRunFactory(failed=True, error=["no", "idea"])

    assert "&quot;no&quot;,\n  &quot;idea&quot;" in shown(client, page_url(run))


def test_the_page_of_a_task_counts_its_recent_runs_by_status(client: Client) -> None:
    task = TaskFactory(name="pack")
    TaskRunFactory.create_batch(3, task=task, completed=True)
    TaskRunFactory(task=task, failed=True)
    TaskRunFactory(completed=True)

    page = shown(client, page_url(task))

    assert '?task=pack&amp;status=completed">3</a>' in page
    assert '?task=pack&amp;status=failed">1</a>' in page
    assert "status=queued" not in page


def test_the_page_of_a_worker_lists_the_runs_it_holds(client: Client) -> None:
    held, other = TaskRunFactory(started=True), TaskRunFactory(started=True)
    done = TaskRunFactory(completed=True, worker=held.worker)

    page = shown(client, page_url(held.worker))

    assert page_url(held) in page
    assert page_url(other) not in page
    assert page_url(done) not in page


@pytest.mark.parametrize(
    ("traits", "state"),
    [
        ({}, "alive"),
        ({"silent": True}, "silent"),
        ({"stopped": True}, "stopped"),
        ({"silent": True, "stopped": True}, "stopped"),
    ],
)
def test_a_worker_is_alive_silent_or_stopped(client: Client, traits: dict[str, bool], state: str) -> None:
    worker = WorkerFactory(**traits)

    for page in (shown(client, list_url("worker")), shown(client, page_url(worker))):
        assert f'data-status="{state}"' in page


def test_a_worker_falls_silent_by_the_databases_clock(client: Client, settings: Any) -> None:
    worker = WorkerFactory(seen_at=timezone.now() - timedelta(seconds=60))
    assert 'data-status="alive"' in shown(client, page_url(worker))

    settings.CATBIRD = {"WORKER_TTL": 30}

    assert 'data-status="silent"' in shown(client, page_url(worker))


def test_a_worker_that_waits_to_be_woken_is_shown_asleep(client: Client) -> None:
    assert "asleep" in shown(client, page_url(WorkerFactory(sleeping=True)))


def test_workers_can_be_filtered_by_state(client: Client) -> None:
    alive, silent = WorkerFactory(), WorkerFactory(silent=True)

    page = shown(client, list_url("worker"), state="silent")

    assert page_url(silent) in page
    assert page_url(alive) not in page


# Nobody changes anything


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["get", "post"])
def test_not_even_a_superuser_can_add_or_delete(client: Client, model: str, method: str) -> None:
    row = one_of_each()[model]
    urls = [reverse(f"admin:catbird_{model}_add"), reverse(f"admin:catbird_{model}_delete", args=[row.pk])]

    assert [getattr(client, method)(url).status_code for url in urls] == [403, 403]


@pytest.mark.parametrize("model", MODELS)
def test_not_even_a_superuser_can_change(client: Client, model: str) -> None:
    row = one_of_each()[model]

    assert client.post(page_url(row), {"status": "completed", "name": "x", "host": "x"}).status_code == 403


@pytest.mark.parametrize("model", MODELS)
def test_a_page_has_no_field_to_fill_in(client: Client, model: str) -> None:
    page = shown(client, page_url(one_of_each()[model]))
    form = page[page.index(f'id="{model}_form"') :]

    assert re.findall(r"<(?:input|textarea|select)\b(?![^>]*csrfmiddlewaretoken)", form[: form.index("</form>")]) == []


@pytest.mark.parametrize("model", MODELS)
def test_the_bulk_action_that_deletes_is_not_there(client: Client, model: str) -> None:
    row = one_of_each()[model]

    client.post(
        list_url(model), {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes", "index": "0"}
    )

    assert type(row).objects.filter(pk=row.pk).exists()
    assert "delete_selected" not in shown(client, list_url(model))


# Who sees what


@pytest.mark.parametrize("model", MODELS)
def test_a_stranger_is_asked_to_log_in(model: str) -> None:
    row = one_of_each()[model]

    for url in (list_url(model), page_url(row)):
        response = Client().get(url)
        assert response.status_code == 302
        assert response["Location"].startswith(reverse("admin:login"))


@pytest.mark.parametrize("model", MODELS)
def test_permission_to_view_is_enough_and_is_needed(model: str) -> None:
    rows = one_of_each()
    client = viewer_of(model)

    for other in MODELS:
        expected = 200 if other == model else 403
        assert client.get(list_url(other)).status_code == expected
        assert client.get(page_url(rows[other])).status_code == expected


def test_payloads_are_neither_shown_nor_read_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catbird_django.admin.task_runs.may_view_payload", lambda user: False)
    run = TaskRunFactory(
        failed=True, input="secret input", headers={"secret": "header"}, error={"message": "secret error"}
    )

    assert "secret" not in shown(viewer_of("taskrun"), page_url(run))


@pytest.mark.parametrize(
    "lookup", ["input__name__startswith", "error__message", "task__name", "worker__host", "id__lt"]
)
def test_columns_cannot_be_probed_from_the_address(client: Client, lookup: str) -> None:
    assert client.get(list_url("taskrun"), {lookup: "A"}).status_code == 400


# What comes from rows is text


def test_evil_payloads_and_errors_are_escaped(client: Client) -> None:
    error = {"type": EVIL, "message": EVIL, "traceback": EVIL}
    run = TaskRunFactory(failed=True, input={EVIL: EVIL}, headers={EVIL: [EVIL]}, error=error, queue=EVIL)

    for page in (shown(client, page_url(run)), shown(client, list_url("taskrun"))):
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_an_evil_task_is_escaped(client: Client) -> None:
    task = TaskFactory(name=EVIL, description=EVIL, handler=EVIL, queue=EVIL, input_schema={EVIL: EVIL})
    run = TaskRunFactory(task=task)

    urls = [page_url(task), page_url(run), list_url("task"), list_url("taskrun")]

    for page in (shown(client, url) for url in urls):
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_an_evil_worker_is_escaped(client: Client) -> None:
    worker = WorkerFactory(host=EVIL, version=EVIL, queues=[EVIL], handlers=[EVIL])
    run = TaskRunFactory(started=True, worker=worker)

    for page in (shown(client, url) for url in (page_url(worker), list_url("worker"), page_url(run))):
        assert "<script>alert" not in page
        assert "<img src=x" not in page


@pytest.mark.parametrize("path", ["0", "999999999", "x", "99999999999999999999999", "17_20"])
def test_a_run_that_does_not_exist_leads_back(client: Client, path: str) -> None:
    response = client.get(f"{list_url('taskrun')}{path}/change/")

    assert response.status_code == 302


# No inline style or script


def test_pages_bring_no_inline_style_or_script(client: Client) -> None:
    rows = one_of_each()
    TaskRunFactory(failed=True)

    urls = [*(list_url(model) for model in MODELS), *(page_url(row) for row in rows.values())]

    for page in (shown(client, url) for url in urls):
        assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []
        assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
