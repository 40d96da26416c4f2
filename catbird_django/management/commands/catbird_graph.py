"""`manage.py catbird_graph`: draw a flow."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catbird_django.definitions.plan import FlowPlan
from catbird_django.definitions.registry import registry
from catbird_django.discovery import broken_modules
from catbird_django.errors import DefinitionError
from catbird_django.monitoring.graph.flow_view import view_of_flow
from catbird_django.monitoring.graph.layout import Direction
from catbird_django.monitoring.graph.mermaid import render_mermaid
from catbird_django.monitoring.graph.svg import render_svg_file

USAGE = 2  # exit code, as argparse has it


class Command(BaseCommand):
    help = (
        "Draw a flow as it is declared in the code: as an SVG file that needs nothing else, or as the text of a "
        "Mermaid flowchart. Without a name, list the flows. Needs no database. Exits with 2 if there is no such flow, "
        "or if it cannot work."
    )
    requires_system_checks: list[str] = []  # a mistake elsewhere is no reason not to draw this flow

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", metavar="NAME", help="name of the flow")
        parser.add_argument("--format", choices=["svg", "mermaid"], default="svg", help="what to draw (default: svg)")
        parser.add_argument(
            "--direction",
            choices=[direction.value for direction in Direction],
            default=Direction.LEFT_TO_RIGHT.value,
            help="from left to right, or top down (default: lr)",
        )
        parser.add_argument("--output", metavar="FILE", help="write it to this file instead of printing it")

    def handle(self, **options: Any) -> None:
        if options["name"] is None:
            self._list_flows()
            return
        picture = _draw(_plan_of(options["name"]), options["format"], Direction(options["direction"]))
        if options["output"] is None:
            self.stdout.write(picture, ending="")
        else:
            _write(Path(options["output"]), picture)

    def _list_flows(self) -> None:
        if not registry.flows:
            self.stdout.write(f"there are no flows{_broken()}")
        for name in sorted(registry.flows):
            try:
                count = len(_plan_of(name).steps)
                self.stdout.write(f"{name}: {count} {'step' if count == 1 else 'steps'}")
            except CommandError:
                self.stdout.write(f"{name}: cannot work, see manage.py check")


def _plan_of(name: str) -> FlowPlan:
    if name not in registry.flows:
        raise CommandError(_unknown(name), returncode=USAGE)
    try:
        registry.refuse_flow_conflict(name)
        return registry.flow(name).definition.plan
    except DefinitionError as error:
        raise CommandError(str(error), returncode=USAGE) from error


def _draw(plan: FlowPlan, kind: str, direction: Direction) -> str:
    view = view_of_flow(plan)
    if kind == "mermaid":
        return render_mermaid(view, direction=direction)
    stylesheet = files("catbird_django").joinpath("static/catbird/graph.css").read_text(encoding="utf-8")
    return render_svg_file(view, stylesheet=stylesheet, direction=direction)


def _write(path: Path, picture: str) -> None:
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--output: {error}", returncode=USAGE) from error


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, registry.flows, n=1)
    there = ", ".join(sorted(registry.flows)[:20]) or "none"
    hint = f"; did you mean {close[0]!r}?" if close else f" (there are: {there})"
    return f"there is no flow named {name!r}{hint}{_broken()}"


def _broken() -> str:
    """The modules in which a flow may be that is not there."""
    return "".join(f"\n{module.name} cannot be imported: {module.error}" for module in broken_modules)
