"""The admin's pages of flows as a person sees them, who approves an order there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User

from catbird_django.definitions.registry import registry
from catbird_django.models import FlowRun
from tests.browser.test_admin_in_browser import log_in, take
from tests.flows import Order, declare_orders, run_steps

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Set-up installs it only where there is a Chromium to drive.
expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def waiting() -> Iterator[FlowRun]:
    """A run that waits for its approval, beside one that has ended."""
    User.objects.create_superuser("boss", password="boss")
    with registry.isolated():
        orders = declare_orders("orders_of_the_browser", description="Ship orders, and ask before expensive ones.")
        orders.run(Order(2, 5.0))
        run = orders.run(Order(1, 5000.0), actor="ada", tags=["customer:42"])
        run_steps()
        yield FlowRun.objects.get(pk=run.id)


def test_someone_finds_what_waits_for_them_and_approves_it(page: Page, waiting: FlowRun) -> None:
    """F12, F25."""
    log_in(page)
    page.click("text=Flow runs")
    page.click("#changelist-filter >> text=started")
    page.click("#result_list th a")
    expect(page.locator(".field-reasons")).to_contain_text("approve waits for a signal")

    page.click("text=Give signal to approve")
    page.fill("textarea", '{"by": "kim"}')
    page.click("[type=submit].default")
    expect(page.locator(".errorlist")).to_contain_text("signal.ok")
    page.fill("textarea", '{"by": "kim", "ok": true}')
    page.click("[type=submit].default")

    expect(page.locator(".messagelist")).to_contain_text("The signal was given to approve.")
    run_steps()
    page.reload()
    expect(page.locator(".field-output_json")).to_contain_text("shipped 1")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_of_flows_is_shown_without_a_complaint(page: Page, waiting: FlowRun, theme: str) -> None:
    """U8."""
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    log_in(page)
    pages = {
        "flows": "/admin/catbird/flow/",
        "flow": f"/admin/catbird/flow/{waiting.flow_id}/change/",
        "flow-runs": "/admin/catbird/flowrun/",
        "flow-run": f"/admin/catbird/flowrun/{waiting.pk}/change/",
        "signal": f"/admin/catbird/flowrun/{waiting.pk}/signal/?step=approve",
    }

    for name, url in pages.items():
        page.goto(url)
        page.wait_for_load_state("networkidle")
        take(page, f"{theme}-{name}")
        for picture in page.locator(".catbird-picture").all():
            assert picture.evaluate("one => one.scrollWidth <= one.clientWidth"), "the picture is cut"
