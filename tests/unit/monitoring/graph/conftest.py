"""Every test declares its own flows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catbird_django.definitions.registry import registry


@pytest.fixture(autouse=True)
def _only_what_the_test_declares() -> Iterator[None]:
    with registry.isolated():
        registry.flows.clear()
        yield
