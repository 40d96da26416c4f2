"""The admin's pages as a person sees them, in light and dark and from right to left."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from catbird_django.models import Task, TaskRun
from tests.browser.conftest import SCREENSHOTS
from tests.factories import TaskFactory, TaskRunFactory, WorkerFactory

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# Set-up installs it only where there is a Chromium to drive.
expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SCHEMA = {
    "type": "object",
    "title": "Order",
    "required": ["order_id", "lines"],
    "properties": {
        "order_id": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
}
TRACEBACK = """Traceback (most recent call last):
  File "shop/tasks.py", line 41, in charge
    receipt = gateway.charge(order.total, card=order.card)
  File "shop/gateway.py", line 112, in charge
    raise CardRefused(answer.reason)
shop.gateway.CardRefused: The card was refused by its bank: insufficient funds
"""


@pytest.fixture
def shop() -> TaskRun:
    """A shop with work in every state; the answer is the run that failed."""
    User.objects.create_superuser("boss", password="boss")
    description = "Charge a customer's card and keep the receipt.\n\nRefused cards fail at once."
    charge = TaskFactory(name="charge", queue="payments", description=description, input_schema=SCHEMA)
    mail = TaskFactory(name="send_mail", queue="mail", description="Send one letter.")
    pack = TaskFactory(name="pack_parcel", description="Print the label, open the drawer.")
    worker = WorkerFactory(
        host="worker-a", pid=4021, handlers=["charge", "pack_parcel", "send_mail"], queues=["mail", "payments"]
    )
    WorkerFactory(host="worker-b", pid=977, sleeping=True)
    WorkerFactory(host="worker-c", pid=31, silent=True)
    WorkerFactory(host="worker-d", pid=12, stopped=True)
    ago = timezone.now() - timedelta(minutes=20)
    for task in (mail, pack, charge, mail, mail, charge, pack) * 8:
        TaskRunFactory(task=task, completed=True, worker=worker, queued_at=ago)
    for trait in ("expired", "skipped", "canceled", "canceling", "started", "started", "delayed"):
        TaskRunFactory(task=pack, **{trait: True}, **({"worker": worker} if trait in {"canceling", "started"} else {}))
    TaskRunFactory.create_batch(2, task=mail)
    return TaskRunFactory(
        task=charge,
        failed=True,
        worker=worker,
        priority=10,
        input={
            "order_id": 9007199254740993,
            "total": "129.00",
            "customer": {"name": "Ada Lovelace", "address": ["12 St James's Square", "London"]},
            "lines": [{"sku": "TEA-GREEN", "count": 2}, {"sku": "CUP", "count": 1}],
        },
        headers={"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00"},
        error={
            "type": "CardRefused",
            "message": "The card was refused by its bank: insufficient funds",
            "traceback": TRACEBACK,
        },
    )


def log_in(page: Page) -> None:
    page.goto("/admin/")
    page.fill("#id_username", "boss")
    page.fill("#id_password", "boss")
    page.click("[type=submit]")
    page.wait_for_url("**/admin/")


def rows(page: Page) -> Locator:
    return page.locator("#result_list tbody tr")


def take(page: Page, name: str) -> None:
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def test_someone_logs_in_and_finds_the_run_that_failed(page: Page, shop: TaskRun) -> None:
    log_in(page)
    page.click("text=Task runs")
    page.click("#changelist-filter >> text=failed")
    expect(rows(page)).to_have_count(1)
    page.click("#result_list th a")

    expect(page.locator("h1")).to_have_text(f"Task run {shop.pk}")
    expect(page.locator(".catbird-badge")).to_have_text("failed")
    expect(page.locator(".field-input_json")).to_contain_text("9007199254740993")
    traceback = page.locator(".field-error_report pre")
    expect(traceback).to_be_hidden()
    page.click("text=Traceback")
    expect(traceback).to_be_visible()


def test_someone_turns_the_pages_of_the_list(page: Page, shop: TaskRun) -> None:
    log_in(page)
    page.goto("/admin/catbird/taskrun/")
    expect(rows(page)).to_have_count(50)
    page.click("text=Older")
    expect(rows(page)).to_have_count(TaskRun.objects.count() - 50)
    page.click("text=Newer")

    expect(rows(page)).to_have_count(50)
    expect(page.locator("text=Newer")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_shown_without_a_complaint(page: Page, shop: TaskRun, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    log_in(page)
    charge = Task.objects.get(name="charge")
    pages = {
        "index": "/admin/",
        "runs": "/admin/catbird/taskrun/",
        "runs-none": "/admin/catbird/taskrun/?status=failed&task=send_mail",
        "run-failed": f"/admin/catbird/taskrun/{shop.pk}/change/",
        "run-started": f"/admin/catbird/taskrun/{TaskRun.objects.started()[0].pk}/change/",
        "run-completed": f"/admin/catbird/taskrun/{TaskRun.objects.finished()[0].pk}/change/",
        "tasks": "/admin/catbird/task/",
        "task": f"/admin/catbird/task/{charge.pk}/change/",
        "workers": "/admin/catbird/worker/",
        "worker": f"/admin/catbird/worker/{shop.worker_id}/change/",
    }

    for name, url in pages.items():
        page.goto(url)
        page.wait_for_load_state("networkidle")
        take(page, f"{theme}-{name}")


def test_the_pages_read_from_right_to_left(page: Page, shop: TaskRun, settings: Any) -> None:
    settings.LANGUAGE_CODE = "ar"
    log_in(page)
    page.goto("/admin/catbird/taskrun/")
    assert page.get_attribute("html", "dir") == "rtl"
    take(page, "rtl-runs")
    page.goto(f"/admin/catbird/taskrun/{shop.pk}/change/")
    take(page, "rtl-run-failed")


def test_the_list_fits_a_small_window(page: Page, shop: TaskRun) -> None:
    page.set_viewport_size({"width": 420, "height": 800})
    log_in(page)
    page.goto("/admin/catbird/taskrun/")
    take(page, "small-runs")
    page.goto(f"/admin/catbird/taskrun/{shop.pk}/change/")
    take(page, "small-run-failed")
