"""U4, U7, U8, F14, F14a, F16: what pages show of maps, of their items, and of runs that were completed early."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from catbird_django.client.explain import explain
from catbird_django.engine import items, reports, steps
from catbird_django.models import Event, FlowRun, Item, StepRun
from catbird_django.statuses import ItemStatus
from tests.flow_support import claim, plan, start
from tests.integration.test_admin_flows import client_with, page_url, shown, texts
from tests.item_support import claim_items, complete_items, fail_items, map_over
from tests.support import USING

pytestmark = pytest.mark.django_db

EVIL = '<script>alert("cb")</script><img src=x onerror=alert(1)>'


@pytest.fixture
def client(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user)
    return client


def run_over(values: list[Any], **options: Any) -> FlowRun:
    """A run of a flow with one map over its input."""
    return start(plan("numbers", map_over("input", **options)), values)


def list_url(run: FlowRun, step: str = "double") -> str:
    return reverse("admin:catbird_flowrun_items", args=[run.pk, step])


def item(run: FlowRun, index: int = 0) -> Item:
    return Item.objects.get(flow_run_id=run.pk, index=index)


def say(claimed: items.ItemClaim, message: str) -> None:
    """Write into the log of an item."""
    line = reports.LogLine(claimed.delivery, 1, "info", message, timedelta(0))
    assert reports.log_items([line], using=USING) == ["logged"]


def listed(page: str) -> list[int]:
    """The indexes of the items on a page of the list."""
    return [int(found) for found in re.findall(r'/catbird/item/\d+/change/">(\d+)</a>', page)]


# The page of the run


def test_the_page_of_a_run_says_how_far_a_map_is_and_leads_to_its_items(client: Client) -> None:
    run = run_over(list(range(10)), max_failed_items=5)
    claims = claim_items()
    complete_items(claims[:6])
    fail_items(claims[6:7])

    page = shown(client, page_url(run))
    said = texts(page)

    assert "6 / 10, 1 failed" in said
    assert "double waits for its items: 6 of 10 have completed, 1 failed" in said
    assert '<progress value="7" max="10"' in page
    assert f'href="{list_url(run)}">10 items</a>' in page
    assert f'href="{list_url(run)}?status=failed">1 failed</a>' in page
    assert "double map" in said


def test_a_map_without_a_worker_says_so(client: Client) -> None:
    """F25."""
    run = run_over([1, 2])

    [unmet] = explain(run.pk)

    assert (unmet.requirement, unmet.detail["spawned"]) == ("items", 2)
    assert str(unmet) == (
        "double waits for its items: 0 of 2 have completed, and no worker that is alive has its handler"
    )


def test_an_output_that_is_a_list_shows_its_beginning_and_how_long_it_is(client: Client) -> None:
    """F14a: the list is never assembled for a page."""
    run = run_over(list(range(100, 1600)), max_failed_items=None)
    claims = claim_items(2000)
    fail_items(claims[1:2])
    complete_items([*claims[:1], *claims[2:]])
    run.refresh_from_db()
    assert run.output_run_id is not None

    with CaptureQueriesContext(connection) as asked:
        page = shown(client, page_url(run))
    said = texts(page)

    assert "A list of 1,500 values, of which these are the first. Show items 0 200 1 ValueError: no good 2 204" in said
    assert "19 238" in said
    assert "20 240" not in said
    assert "output 1,500 items" in said
    assert not [query["sql"] for query in asked if re.search(r"jsonb_agg|_cb_list_of_items|COUNT\(", query["sql"])]


def test_a_short_list_is_shown_whole(client: Client) -> None:
    run = run_over([1, 2])
    complete_items(claim_items())

    said = texts(shown(client, page_url(run)))

    assert "A list of 2 values. Show items 0 2 1 4" in said


def test_an_empty_list_has_no_items(client: Client) -> None:
    run = run_over([])

    assert "A list of 0 values." in texts(shown(client, page_url(run)))
    assert "No such items here." in shown(client, list_url(run))


def test_whoever_takes_a_list_received_items_and_not_nothing(client: Client) -> None:
    """F14a: a value that is stored nowhere is not one that was skipped."""
    run = start(
        plan("numbers", map_over("input"), {"name": "total", "needs": ["double"], "takes_lists": True}), [1, 2, 3]
    )
    complete_items(claim_items())

    said = texts(shown(client, page_url(run)))

    assert "from double 3 items" in said
    assert "skipped" not in said


def test_the_error_of_a_run_says_which_item_it_was(client: Client) -> None:
    """F14."""
    run = run_over([1, 2, 3])
    fail_items(claim_items()[1:2])

    assert "ValueError no good in step double, item 1" in texts(shown(client, page_url(run)))


def test_who_completed_a_run_early_is_shown_and_why_to_those_who_see_payloads(client: Client) -> None:
    """F16, U7."""
    run = start(plan("lookup", {"name": "look"}, {"name": "ask", "needs": ["look"]}))
    [claimed] = claim().values()
    steps.complete_steps_early([(claimed.delivery, "7", "S3CRET customer")], notify=False, using=USING)

    said = texts(shown(client, page_url(run)))
    hidden = texts(shown(client_with("view_flowrun"), page_url(run)))

    assert "Completed early By step: look Because: S3CRET customer" in said
    assert "Canceled Requested" not in said
    assert "By step: look" in hidden
    assert "S3CRET" not in hidden


@pytest.mark.parametrize(("status", "outcome"), [("failing", "failed"), ("completing", "completed")])
def test_a_run_that_is_ending_says_what_is_left_to_stop(client: Client, status: str, outcome: str) -> None:
    """R8a."""
    run = run_over(list(range(3000)))
    FlowRun.objects.update(
        status=status, outcome=outcome, ending_since=timezone.now(), early_step="double" * (status == "completing")
    )
    StepRun.objects.update(status="canceled", finished_at=timezone.now(), items_ended_from=2000, items_canceled=1000)

    said = texts(shown(client, page_url(run)))

    assert "It is ending: 2,000 of its items are yet to be stopped." in said
    assert f"Status: {status}" in said


def test_inline_and_atomic_steps_are_marked(client: Client) -> None:
    """F6, F22."""
    run = start(
        plan(
            "marked",
            {"name": "keep", "is_atomic": True},
            {"name": "shown", "needs": ["keep"], "is_inline": True},
            {"name": "total", "needs": ["shown"], "kind": "reduce", "over": "shown"},
        )
    )

    for url in (page_url(run), page_url(run.flow)):
        said = texts(shown(client, url))
        assert "atomic" in said
        assert "inline" in said
        assert "reduce" in said


# The list of items


def test_the_list_is_walked_in_order_there_and_back(client: Client) -> None:
    """U3: by key; nothing is counted, nothing is skipped."""
    run = run_over(list(range(120)))
    pages = [shown(client, list_url(run))]
    for _ in range(2):
        [address] = re.findall(r'href="([^"]+)" rel="next"', pages[-1])
        pages.append(shown(client, list_url(run) + address))

    assert [listed(page) for page in pages] == [list(range(50)), list(range(50, 100)), list(range(100, 120))]
    assert 'rel="next"' not in pages[-1]
    [back] = re.findall(r'href="([^"]+)" rel="prev"', pages[-1])
    assert listed(shown(client, list_url(run) + back)) == list(range(50, 100))
    assert 'rel="prev"' not in pages[0]


def test_the_list_is_filtered_by_status_and_shows_errors_in_short(client: Client) -> None:
    run = run_over([1, 2, 3, 4], max_failed_items=None)
    claims = claim_items()
    fail_items([claims[2]])
    complete_items([claims[0]], "x" * 1000)

    everything = shown(client, list_url(run))
    failed = shown(client, list_url(run), status="failed")

    assert listed(everything) == [0, 1, 2, 3]
    assert "1 / 4, 1 failed" in texts(everything)
    assert "x" * 150 in everything
    assert "x" * 250 not in everything
    assert listed(failed) == [2]
    assert "ValueError no good" in texts(failed)
    assert '<strong aria-current="true">failed</strong>' in failed
    assert listed(shown(client, list_url(run), status="started")) == [1, 3]


def test_a_page_of_the_list_costs_the_same_however_many_items(client: Client) -> None:
    run = run_over([1])
    with CaptureQueriesContext(connection) as few:
        shown(client, list_url(run))
    many_items = run_over(list(range(3000)))

    with CaptureQueriesContext(connection) as many:
        shown(client, list_url(many_items), newer_than=2000)

    assert len(many) <= len(few)
    assert not [query["sql"] for query in many if "COUNT(" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE cb_items")
        [asked] = [one["sql"] for one in many if '"cb_items"."step_run_id" =' in one["sql"]]
        cursor.execute(f"EXPLAIN {asked}")
        told = "\n".join(row[0] for row in cursor.fetchall())
    assert "cb_items_one_per_place" in told
    assert "Sort" not in told


@pytest.mark.parametrize(
    ("step", "parameters", "status"),
    [
        ("double", {"status": "nonsense"}, 400),
        ("double", {"newer_than": "x"}, 400),
        ("double", {"newer_than": "1", "older_than": "2"}, 400),
        ("double", {"newer_than": "99999"}, 200),
        ("double", {"older_than": "0"}, 200),
        ("nobody", {}, 404),
        ("other", {}, 404),
    ],
)
def test_an_address_that_names_nothing_is_refused(
    client: Client, step: str, parameters: dict[str, str], status: int
) -> None:
    run = start(plan("numbers", map_over("input"), {"name": "other", "needs": ["double"]}), [1])

    assert client.get(list_url(run, step), parameters).status_code == status
    assert client.get(list_url(FlowRun(pk=run.pk + 1), "double")).status_code == 404


# The page of one item


def test_the_page_of_an_item_shows_its_life_and_what_it_carries(client: Client) -> None:
    """U4, T10, E1."""
    run = run_over([{"name": "Ada"}], max_failed_items=None)
    [claimed] = claim_items()
    say(claimed, "half way there")
    reports.report_items(
        [(claimed.delivery, '{"done": 1, "total": 2, "message": "reading"}')], notify=False, using=USING
    )
    fail_items([claimed])

    page = shown(client, page_url(item(run)))
    said = texts(page)

    for part in ("&quot;Ada&quot;", "half way there", "1 / 2", "reading", "ValueError no good"):
        assert part in (page if "&quot;" in part else said), part
    assert re.search(r"failed .*started failed worker", said)
    assert f'href="{page_url(run)}"' in page
    assert f'href="{list_url(run)}"' in page


def test_an_item_of_a_map_over_a_map_shows_the_value_that_it_takes(client: Client) -> None:
    """F14a: its element is stored with the item before it."""
    run = start(
        plan("numbers", map_over("input", max_failed_items=None), map_over("double", "again", max_failed_items=None)),
        [1, 2],
    )
    first, second = claim_items()
    complete_items([first], 4711)
    fail_items([second])

    took = [
        texts(shown(client, page_url(one)))
        for one in Item.objects.filter(flow_run_id=run.pk, step__name="again").order_by("index")
    ]

    assert "Input: 4711" in took[0]
    assert "no good" in took[1][took[1].index("Input:") :]
    assert "the item that it goes on with" in took[0]


@pytest.mark.parametrize("status", ItemStatus.values)
def test_an_item_of_any_status_has_a_page_and_a_line_in_the_list(client: Client, status: str) -> None:
    run = run_over([1])
    one = item(run)
    if status in ("started", "canceling"):
        claim_items()
    is_over = status in ("completed", "failed", "canceled")
    Item.objects.filter(pk=one.pk).update(
        status=status, output=1, error={"odd": [EVIL]}, finished_at=timezone.now() if is_over else None
    )

    for page in (shown(client, list_url(run)), shown(client, page_url(one))):
        assert f'class="catbird-badge" data-status="{status}"' in page
        assert EVIL not in page


def test_who_may_not_see_payloads_sees_the_life_of_items_and_nothing_they_carry() -> None:
    """U7."""
    run = run_over(["S3CRET", "S3CRET"], max_failed_items=None)
    claims = claim_items()
    say(claims[0], "S3CRET")
    reports.report_items([(claims[0].delivery, '{"done": 1, "message": "S3CRET"}')], notify=False, using=USING)
    complete_items(claims[:1], "S3CRET")
    failure = '{"type": "Error", "message": "S3CRET", "traceback": "S3CRET"}'
    items.fail_items([(claims[1].delivery, failure, None)], notify=False, using=USING)
    Event.objects.filter(run_kind="item").update(details={"message": "S3CRET"})
    urls = [page_url(run), list_url(run), page_url(item(run)), page_url(item(run, 1))]

    viewer, trusted = client_with("view_flowrun"), client_with("view_flowrun", "view_payload")

    for url in urls:
        assert "S3CRET" not in shown(viewer, url), url
        assert "S3CRET" in shown(trusted, url), url


def test_items_are_for_those_who_may_see_runs_and_nobody_changes_them(client: Client) -> None:
    """U7."""
    run = run_over([1])
    stranger = client_with("view_task", "view_item")
    for url in (list_url(run), page_url(item(run))):
        assert stranger.get(url).status_code == 403
    assert client.post(page_url(item(run)), {"status": "completed"}).status_code == 403
    assert client.get(page_url(item(run)).replace("change", "delete")).status_code == 403
    assert client.get(reverse("admin:catbird_item_changelist")).status_code == 302
    assert "/catbird/item/" not in shown(client, reverse("admin:app_list", args=["catbird"]))


def test_what_items_hold_is_escaped_and_the_pages_need_no_inline_script(client: Client) -> None:
    """U8."""
    run = run_over([EVIL], max_failed_items=None)
    [claimed] = claim_items()
    say(claimed, EVIL)
    failure = f'{{"type": "{EVIL[:10]}", "message": "{EVIL[:8]}", "traceback": ""}}'
    items.fail_items([(claimed.delivery, failure, None)], notify=False, using=USING)
    FlowRun.objects.update(early_step=EVIL, early_reason=EVIL)

    for url in (page_url(run), list_url(run), page_url(item(run))):
        page = shown(client, url)
        content = page[page.index('id="content"') :]
        assert "<script>" not in content
        assert "<img src=x" not in content
        tags = " ".join(re.findall(r"<[^>]+>", content))
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\bsrc=)(?![^>]*application/json)", tags), url
