"""The policy that every page of the host project is sent with."""

from __future__ import annotations

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from project.content_security_policy import HEADER, POLICY, content_security_policy


def answer(response: HttpResponse) -> HttpResponse:
    return content_security_policy(lambda _request: response)(RequestFactory().get("/"))


def test_a_page_is_sent_with_the_policy():
    assert answer(HttpResponse())[HEADER] == POLICY


async def test_under_asgi_too():
    async def view(_request: object) -> HttpResponse:
        return HttpResponse()

    response = await content_security_policy(view)(RequestFactory().get("/"))

    assert response[HEADER] == POLICY


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere():
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "default-src 'none'" in POLICY


def test_a_page_with_a_policy_of_its_own_keeps_it():
    assert answer(HttpResponse(headers={HEADER: "default-src 'self'"}))[HEADER] == "default-src 'self'"


@pytest.mark.parametrize(("debug", "sent"), [(True, False), (False, True)])
def test_only_the_error_pages_of_debug_go_without(settings, debug, sent):
    settings.DEBUG = debug

    assert (HEADER in answer(HttpResponse(status=500))) is sent
