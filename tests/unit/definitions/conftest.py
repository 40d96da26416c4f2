"""Every test declares on its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catbird_django.definitions.registry import registry


@pytest.fixture(autouse=True)
def _only_what_the_test_declares() -> Iterator[None]:
    with registry.isolated():
        registry.tasks.clear()
        registry.flows.clear()
        yield
