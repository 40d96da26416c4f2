"""The list of task runs: pages by key, filters and search, and the queries behind them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from catbird_django.admin import task_runs
from catbird_django.models import TaskRun
from tests.factories import TaskFactory, TaskRunFactory

pytestmark = pytest.mark.django_db

PAGE = 50


@pytest.fixture
def client(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user)
    return client


class Shown:
    """A page of the list, as its reader sees it."""

    def __init__(self, client: Client, query: str = "") -> None:
        response = client.get(reverse("admin:catbird_taskrun_changelist") + query)
        assert response.status_code == 200, response
        self.html = response.content.decode()
        self.ids = [int(pk) for pk in re.findall(r'<th class="field-id"><a href="[^"]*?/(\d+)/change/', self.html)]
        self.newer = self._link("prev")
        self.older = self._link("next")

    def _link(self, rel: str) -> str | None:
        found = re.search(rf'<a href="([^"]*)" rel="{rel}">', self.html)
        return found.group(1).replace("&amp;", "&") if found else None


def make_runs(count: int, **traits: Any) -> list[int]:
    """Queue so many runs of one task; newest last."""
    task = traits.pop("task", None) or TaskFactory()
    runs = TaskRun.objects.bulk_create(TaskRunFactory.build_batch(count, task=task, **traits))
    return [run.pk for run in runs]


def walk(client: Client, query: str, direction: str) -> list[Shown]:
    pages = [Shown(client, query)]
    while further := getattr(pages[-1], direction):
        pages.append(Shown(client, further))
    return pages


# Pages


def test_the_newest_runs_come_first_fifty_to_a_page(client: Client) -> None:
    ids = make_runs(120)

    page = Shown(client)

    assert page.ids == ids[:-51:-1]
    assert page.newer is None


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 101, 175])
def test_every_run_is_on_exactly_one_page_in_both_directions(client: Client, count: int) -> None:
    ids = make_runs(count)

    down = walk(client, "", "older")
    up = walk(client, f"?older_than={down[-1].ids[-1] + 1}" if count else "", "newer")

    assert [pk for page in down for pk in page.ids] == ids[::-1]
    assert [pk for page in reversed(up) for pk in page.ids] == ids[::-1]


def test_runs_that_arrive_meanwhile_move_no_other_run_to_another_page(client: Client) -> None:
    ids = make_runs(120)
    first = Shown(client)
    make_runs(75)
    second = Shown(client, first.older or "")
    make_runs(10)
    third = Shown(client, second.older or "")

    assert first.ids + second.ids + third.ids == ids[::-1]


def test_newer_pages_reach_the_runs_that_arrived_meanwhile(client: Client) -> None:
    ids = make_runs(60)
    last = walk(client, "", "older")[-1]
    ids += make_runs(60)

    up = walk(client, last.newer or "", "newer")

    assert [pk for page in reversed(up) for pk in page.ids] + last.ids == ids[::-1]


def test_a_page_of_runs_that_were_purged_leads_back(client: Client) -> None:
    ids = make_runs(60)
    first = Shown(client)
    TaskRun.objects.filter(pk__in=ids[:10]).delete()

    gone = Shown(client, first.older or "")

    assert (gone.ids, gone.older) == ([], None)
    assert Shown(client, gone.newer or "").ids == first.ids


@pytest.mark.parametrize("query", ["?older_than=x", "?older_than=1&newer_than=2", "?older_than=99999999999999999999"])
def test_an_address_that_names_no_page_leads_to_the_newest(client: Client, query: str) -> None:
    response = client.get(reverse("admin:catbird_taskrun_changelist") + query)

    assert response.status_code == 302
    assert response["Location"].endswith("?e=1")
    assert client.get(response["Location"]).status_code == 200


@pytest.mark.parametrize("query", ["?o=5", "?o=-2.3", "?p=3", "?all="])
def test_the_address_cannot_ask_for_another_order_or_a_numbered_page(client: Client, query: str) -> None:
    ids = make_runs(60)

    assert Shown(client, query).ids == ids[:-51:-1]


# Filters and search


def test_filters_go_along_from_page_to_page(client: Client) -> None:
    task = TaskFactory(name="pack", queue="mail")
    wanted = []
    for _ in range(4):
        wanted += make_runs(20, task=task, completed=True, worker=None)
        make_runs(20, task=task)
        make_runs(20, completed=True, worker=None)

    pages = walk(client, "?status=completed&task=pack&queue=mail", "older")

    assert [len(page.ids) for page in pages] == [50, 30]
    assert [pk for page in pages for pk in page.ids] == wanted[::-1]


def test_another_filter_begins_at_the_newest_again(client: Client) -> None:
    make_runs(120)

    second = Shown(client, Shown(client).older or "")

    assert re.findall(r'href="([^"]*status=failed[^"]*)"', second.html) == ["?status=failed"]
    assert 'name="older_than"' not in second.html


def test_the_queues_and_tasks_to_choose_from_are_those_that_are_registered(client: Client) -> None:
    TaskFactory(name="pack", queue="mail")
    TaskFactory(name="ship", queue="kitchen")

    html = Shown(client).html

    for choice in ("?task=pack", "?task=ship", "?queue=mail", "?queue=kitchen"):
        assert f'href="{choice}"' in html


def test_a_queue_that_no_task_belongs_to_can_still_be_asked_for(client: Client) -> None:
    run = TaskRunFactory(queue="elsewhere")
    make_runs(3)

    assert Shown(client, "?queue=elsewhere").ids == [run.pk]


@pytest.mark.parametrize(
    "query",
    [
        "?task=unknown",
        "?status=unknown",
        "?q=unknown",
        "?q=999999",
        "?q=99999999999999999999",
        "?q=9999999999999999999",
    ],
)
def test_what_does_not_exist_is_not_found(client: Client, query: str) -> None:
    make_runs(3)

    page = Shown(client, query)

    assert page.ids == []
    assert "Nothing found." in page.html


def test_a_run_is_found_by_its_number(client: Client) -> None:
    ids = make_runs(60)

    assert Shown(client, f"?q={ids[3]}").ids == [ids[3]]


def test_runs_are_found_by_how_their_tasks_name_begins(client: Client) -> None:
    first, second = make_runs(1, task=TaskFactory(name="send_mail")), make_runs(1, task=TaskFactory(name="send_fax"))
    make_runs(3, task=TaskFactory(name="resend_mail"))

    assert Shown(client, "?q=send").ids == second + first
    assert Shown(client, "?q=send_mail").ids == first
    assert Shown(client, "?q=send%25").ids == []


# A search that no index answers stops somewhere


def test_a_rare_status_is_looked_for_within_reach_and_the_page_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runs, "REACH", 100)
    old = make_runs(2, failed=True, worker=None)
    make_runs(250)
    new = make_runs(1, failed=True, worker=None)

    pages = walk(client, "?status=failed", "older")

    assert [page.ids for page in pages] == [new, [], old[::-1]]
    assert "Looked at 100 rows" in pages[0].html
    assert "Looked at" not in pages[2].html


@pytest.mark.parametrize("query", ["?status=started", "?q={id}"])
def test_what_an_index_answers_is_found_however_old_it_is(
    client: Client, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(task_runs, "REACH", 100)
    started = TaskRunFactory(started=True)
    make_runs(250)

    assert Shown(client, query.format(id=started.pk)).ids == [started.pk]


# Figures


def test_a_list_on_one_page_is_counted_exactly(client: Client) -> None:
    make_runs(7)

    assert "7 task runs" in Shown(client).html


def test_a_longer_list_says_about_how_many_there_are(client: Client) -> None:
    make_runs(1200)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE cb_task_runs")

    assert "about 1,200 task runs" in Shown(client).html


def test_an_empty_list_says_so(client: Client) -> None:
    assert "No task runs yet." in Shown(client).html


# Queries


QUERIES = [
    "",
    "?older_than=100",
    "?newer_than=3",
    "?status=failed",
    "?status=started",
    "?task=pack",
    "?queue=mail",
    "?q=pa",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_page_counts_and_skips_nothing_and_reads_no_payload(client: Client, query: str) -> None:
    make_runs(120, task=TaskFactory(name="pack", queue="mail"))

    with CaptureQueriesContext(
        connection,
    ) as captured:
        Shown(client, query)

    statements = [query["sql"] for query in captured if "cb_task_runs" in query["sql"]]
    for statement in statements:
        assert "COUNT(" not in statement
        assert "OFFSET" not in statement
        assert "DISTINCT" not in statement
        assert "JOIN" not in statement
        assert re.search(r"ORDER BY [\w.\"]+ (ASC|DESC) LIMIT", statement)  # or the planner may read from the beginning
        assert not re.search(r'"(input|output|error|headers)"', statement)


@pytest.mark.parametrize("query", QUERIES)
def test_the_number_of_queries_does_not_grow_with_the_rows(client: Client, query: str) -> None:
    def queries_with(count: int) -> int:
        make_runs(count, task=TaskFactory(queue="mail"), failed=True, worker=None)
        with CaptureQueriesContext(connection) as captured:
            Shown(client, query)
        return len(captured)

    make_runs(1, task=TaskFactory(name="pack", queue="mail"))
    few = queries_with(60)
    assert queries_with(200) <= few
    assert few <= 15
