"""Sends a strict Content-Security-Policy with every page: scripts, styles and data come from this site only."""

from __future__ import annotations

from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.decorators import sync_and_async_middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    SyncHandler = Callable[[HttpRequest], HttpResponseBase]
    AsyncHandler = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

HEADER = "Content-Security-Policy"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)

# Django's own error pages for developers are full of inline style and script.
DEBUG_PAGES = {HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR}


@sync_and_async_middleware
def content_security_policy(get_response: Any) -> SyncHandler | AsyncHandler:
    """Add the policy to responses that do not bring one."""
    return async_layer(get_response) if iscoroutinefunction(get_response) else layer(get_response)


def async_layer(get_response: AsyncHandler) -> AsyncHandler:
    async def add(request: HttpRequest) -> HttpResponseBase:
        return add_policy(await get_response(request))

    return add


def layer(get_response: SyncHandler) -> SyncHandler:
    def add(request: HttpRequest) -> HttpResponseBase:
        return add_policy(get_response(request))

    return add


def add_policy(response: HttpResponseBase) -> HttpResponseBase:
    if not (settings.DEBUG and response.status_code in DEBUG_PAGES):
        response.headers.setdefault(HEADER, POLICY)
    return response
