"""The admin's pages of a map as a person sees them, who looks for the item that failed (U4, U8, F14)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User

from catbird_django.engine import reports
from catbird_django.models import FlowRun, Item
from tests.browser.test_admin_in_browser import log_in, take
from tests.flow_support import plan, start
from tests.item_support import claim_items, complete_items, fail_items, map_over
from tests.support import USING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Set-up installs it only where there is a Chromium to drive.
expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def invoices() -> FlowRun:
    """A run with a map over a map, in the middle of its work."""
    User.objects.create_superuser("boss", password="boss")
    run = start(
        plan(
            "invoices",
            map_over("input", "check", max_failed_items=None, max_retries=2),
            map_over("check", "book", is_atomic=True, max_failed_items=3),
            {"name": "total", "kind": "reduce", "over": "book", "needs": ["book"], "takes_lists": True},
            {"name": "wording", "needs": ["total"], "is_inline": True},
        ),
        [{"number": number, "amount": number * 100} for number in range(1200)],
    )
    checked = claim_items(2000)
    fail_items(checked[700:703])
    complete_items([*checked[:700], *checked[703:]], *({"number": n, "ok": True} for n in range(1197)))
    booked = claim_items(2000)
    line = reports.LogLine(booked[0].delivery, 1, "warning", "the bank answers slowly", timedelta(0))
    reports.log_items([line], using=USING)
    complete_items(booked[:500], *range(500))
    fail_items(booked[500:502])
    return run


def test_someone_finds_the_item_that_failed(page: Page, invoices: FlowRun) -> None:
    log_in(page)
    page.goto(f"/admin/catbird/flowrun/{invoices.pk}/change/")
    expect(page.locator(".catbird-picture")).to_contain_text("500 / 1,200, 2 failed")

    page.click("a:text-is('3 failed')")
    expect(page.locator(".catbird-items")).to_contain_text("1,197 / 1,200, 3 failed")
    page.click("a:text-is('701')")

    expect(page.locator(".field-error_report")).to_contain_text("no good")
    expect(page.locator(".field-input_json")).to_contain_text('"number": 701')
    page.click(".breadcrumbs >> text=Items of check")
    page.click("text=Next")
    expect(page.locator(".catbird-table")).to_contain_text("99")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_of_items_is_shown_without_a_complaint(page: Page, invoices: FlowRun, theme: str) -> None:
    """U8."""
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    log_in(page)
    failed = Item.objects.filter(flow_run_id=invoices.pk, status="failed").order_by("pk").first()
    assert failed is not None
    pages = {
        "map-run": f"/admin/catbird/flowrun/{invoices.pk}/change/",
        "map-flow": f"/admin/catbird/flow/{invoices.flow_id}/change/",
        "items": f"/admin/catbird/flowrun/{invoices.pk}/items/check/?newer_than=680",
        "item": f"/admin/catbird/item/{failed.pk}/change/",
    }

    for name, url in pages.items():
        page.goto(url)
        page.wait_for_load_state("networkidle")
        take(page, f"{theme}-{name}")
