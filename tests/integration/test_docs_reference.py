"""The reference pages list what the code has: settings with defaults, ids of checks, commands with options."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import BaseCommand, get_commands, load_command_class

from catbird_django import FlowHandle, conf, testing
from catbird_django.client.options import CommonOptions, FlowRunOptions
from catbird_django.definitions.flow_options import FlowOptions, MapOptions, ReduceOptions, StepOptions
from catbird_django.definitions.signal import Signal
from catbird_django.statuses import SignalVerdict

CHECKOUT = Path(__file__).resolve().parents[2]
REFERENCE = CHECKOUT / "docs" / "reference"

OUR_COMMANDS = sorted(name for name, app in get_commands().items() if app == "catbird_django")


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def rows_of(page: str) -> list[list[str]]:
    """The cells of the tables of a page, without heads and rulers."""
    lines = [line for line in (REFERENCE / page).read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def as_written(default: object) -> str:
    """A default as one would write it into the settings."""
    match default:
        case timedelta() if default >= timedelta(days=1):
            return f"{default.days} * 24 * 3600"
        case timedelta():
            return f"{default.total_seconds():g}"
        case tuple():
            return json.dumps(default)
        case str():
            return json.dumps(default)
        case _:
            return repr(default)


def test_every_setting_is_listed_with_its_default():
    settings = conf.Settings()
    there = {field.name.upper(): as_written(getattr(settings, field.name)) for field in fields(settings)}

    assert {key.strip("`"): default.strip("`") for key, default, _ in rows_of("settings.md")} == there


def test_every_id_of_a_check_is_listed():
    issued = set(re.findall(r'"(catbird\.[EW]\d{3})"', (CHECKOUT / "catbird_django" / "checks.py").read_text()))

    assert set(re.findall(r"catbird\.[EW]\d{3}", (REFERENCE / "checks.md").read_text())) == issued


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("Options of a flow", set(FlowOptions.__annotations__)),
        ("Options of a step", set(StepOptions.__annotations__)),
        ("Options of a map", set(MapOptions.__annotations__) - set(StepOptions.__annotations__) | {"over"}),
        (
            "Options of a reduce",
            set(ReduceOptions.__annotations__) - set(StepOptions.__annotations__) | {"over", "initial"},
        ),
        ("Signals", {field.name for field in fields(Signal)} - {"type"}),
    ],
)
def test_every_option_of_a_declaration_is_listed(heading: str, options: set[str]):
    page = (REFERENCE / "flows.md").read_text()
    [section] = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)

    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == options


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Options of a run", set(CommonOptions.__annotations__) | set(FlowRunOptions.__annotations__)),
        ("Signals", set(SignalVerdict.values)),
        ("The handle", {name for name in public_names(FlowHandle) if f"a{name}" in dir(FlowHandle)} | {"wait"}),
    ],
)
def test_every_option_verdict_and_call_of_a_run_of_a_flow_is_listed(heading: str, names: set[str]):
    page = (REFERENCE / "flow-runs.md").read_text()
    [section] = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)

    assert set(re.findall(r"^\| `(\w+)", section, re.MULTILINE)) == names


def test_every_name_of_the_test_kit_is_listed():
    listed = {re.split(r"\W", cells[0].strip("`"))[0] for cells in rows_of("testing.md")}

    assert listed == set(testing.__all__)
    assert {name for name in testing.__all__ if not hasattr(testing, name)} == set()


def test_every_command_is_described():
    assert re.findall(r"^## `(\w+)`", (REFERENCE / "commands.md").read_text(), re.MULTILINE) == OUR_COMMANDS


@pytest.mark.parametrize("name", OUR_COMMANDS)
def test_every_option_of_a_command_is_listed(name: str):
    own = options_of(load_command_class("catbird_django", name)) - options_of(BaseCommand())

    assert listed_options(name) == own


def options_of(command: BaseCommand) -> set[str]:
    parser = command.create_parser("manage.py", "")
    return {option for action in parser._actions for option in action.option_strings if option.startswith("--")}


def listed_options(name: str) -> set[str]:
    text = (REFERENCE / "commands.md").read_text()
    [section] = re.findall(rf"^## `{name}`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE))


def test_the_pages_build_without_a_warning_and_load_nothing_from_elsewhere(tmp_path: Path):
    pytest.importorskip("sphinx", reason="the packages of requirements/check.txt build the pages")

    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-d", tmp_path / "trees", CHECKOUT / "docs", tmp_path / "html"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (built.returncode, built.stderr) == (0, "")
    pages = [page.read_text() for page in (tmp_path / "html").rglob("*.html")]
    assert any("cb_claim_tasks" in page for page in pages)
    assert [url for page in pages for url in re.findall(r'(?:src|<link[^>]+href)="(https?:[^"]+)"', page)] == []
