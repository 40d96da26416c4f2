"""A real Chromium against the live admin; every page must obey the Content-Security-Policy and log no error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from pytest_django.live_server_helper import LiveServer

SCREENSHOTS = Path(__file__).parent / "screenshots"

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """The path of an installed Chromium; Playwright's own would have to be downloaded."""
    return next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium: install the package `chromium` of your system to run the browser tests")
    from playwright import sync_api as playwright

    # Playwright's sync API runs an event loop in this thread, and Django would refuse to query inside one.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with playwright.sync_playwright() as driver:
            chromium = driver.chromium.launch(executable_path=executable, args=FLAGS)
            yield chromium
            chromium.close()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def page(browser: Browser, live_server: LiveServer) -> Iterator[Page]:
    """A fresh window. At its end the test fails if any page logged an error, violated the policy or missed a file."""
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    context.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # asked for by the browser, not by a page
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda response: complaints.append(response.url) if response.status >= 400 else None)
    yield page
    context.close()
    assert complaints == []
