"""The flow of the demo: a map of which one item fails, counted (F14, F15, F6)."""

from __future__ import annotations

import importlib
import sys

import pytest

from catbird_django.models import Item
from tests.support import work_off

pytestmark = pytest.mark.django_db(transaction=True)


def test_all_letters_but_one_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "project.demo.flows", raising=False)
    flows = importlib.import_module("project.demo.flows")  # declares it for this test

    readers = [f"reader {number}" for number in range(11, 16)]
    run = flows.newsletter.run(flows.Newsletter(title="June", readers=readers))
    work_off()

    assert run.wait(timeout=5) == "4 letters written"
    assert list(Item.objects.failed().values_list("index", flat=True)) == [2]
