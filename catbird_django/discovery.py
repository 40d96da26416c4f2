"""Imports `tasks.py` and `flows.py` of every installed app, and keeps what went wrong for the checks.

`ready()` must not raise for a broken module: the checks report it, and a worker refuses to start.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from importlib import import_module

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from catbird_django import conf

logger = logging.getLogger("catbird.discovery")


@dataclass(frozen=True, slots=True)
class BrokenModule:
    """A module that could not be imported, and why."""

    name: str
    error: str


broken_modules: list[BrokenModule] = []


def discover() -> None:
    """Import the task modules of all installed apps."""
    broken_modules.clear()
    for module_name in _module_names():
        for config in apps.get_app_configs():
            if config.module is not None and module_has_submodule(config.module, module_name):
                _import(f"{config.name}.{module_name}")


def _module_names() -> tuple[str, ...]:
    # Bad settings are reported by their own check; discovery goes on with the defaults.
    return conf.Settings().task_modules if conf.problems() else conf.get_settings().task_modules


def _import(name: str) -> None:
    try:
        import_module(name)
    except Exception as error:
        # Web servers run no checks: the log must say it too.
        logger.exception("a task module cannot be imported", extra={"module_name": name})
        broken_modules.append(BrokenModule(name, traceback.format_exception_only(error)[-1].strip()))
