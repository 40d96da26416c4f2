"""T1: tasks are found in `tasks.py` and `flows.py` of every installed app, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import modify_settings

from catbird_django import discovery
from catbird_django.definitions.registry import registry

TASK = "from catbird_django import task\n\n@task\ndef {}() -> None: ...\n"
MODULES = {"tasks": "sell", "flows": "deliver", "work": "sweep"}


@pytest.fixture(autouse=True)
def _a_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed app with three modules."""
    shop = tmp_path / "corner_shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    for module, name in MODULES.items():
        (shop / f"{module}.py").write_text(TASK.format(name))
    monkeypatch.syspath_prepend(tmp_path)
    with modify_settings(INSTALLED_APPS={"append": "corner_shop"}):
        forget_modules()  # they were looked for as the app was installed
        registry.tasks.clear()
        yield
    forget_modules()
    del sys.modules["corner_shop"]


def forget_modules() -> None:
    for module in MODULES:
        sys.modules.pop(f"corner_shop.{module}", None)


def test_tasks_and_flows_are_looked_for_in_every_app() -> None:
    discovery.discover()

    assert registry.tasks.keys() >= {"sell", "deliver"}
    assert "sweep" not in registry.tasks


def test_other_modules_can_be_named(settings: Any) -> None:
    settings.CATBIRD = {"TASK_MODULES": ["work"]}

    discovery.discover()

    assert "sweep" in registry.tasks
    assert "sell" not in registry.tasks


def test_a_module_that_cannot_be_imported_is_kept_for_the_checks_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "corner_shop" / "tasks.py").write_text("import something_that_is_nowhere\n")

    discovery.discover()
    broken = list(discovery.broken_modules)
    discovery.broken_modules.clear()

    assert [(module.name, "something_that_is_nowhere" in module.error) for module in broken] == [
        ("corner_shop.tasks", True)
    ]
    assert "deliver" in registry.tasks
