"""Flows: the catalogue of their versions, and the page of one with its picture and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.filters import FlowNameFilter, QueueFilter
from catbird_django.admin.markup import EMPTY, badge, grouped, json_block, link, list_link, moment, names, table
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.conf import get_settings
from catbird_django.models import Flow, FlowRun
from catbird_django.monitoring import queries
from catbird_django.monitoring.durations import in_one_unit
from catbird_django.monitoring.figures import RECENT, recent_flow_counts
from catbird_django.monitoring.graph.flow_view import kind_in_words, view_of_flow
from catbird_django.monitoring.graph.svg import render_svg
from catbird_django.monitoring.graph.view import Status
from catbird_django.monitoring.json_text import condition_in_words
from catbird_django.monitoring.payloads import with_schema_text
from catbird_django.monitoring.stored_plan import read_plan
from catbird_django.statuses import FlowStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from django.db.models import QuerySet
    from django.http import HttpRequest

    from catbird_django.definitions.plan import FlowPlan, StepPlan

MAX_DRAWN = 200
"""With more steps than that nobody sees anything in a picture, and laying it out takes long."""


def picture(plan: FlowPlan, statuses: Mapping[str, Status] | None = None) -> SafeString | str:
    """The flow as a picture; with the statuses of its steps, a run of it."""
    if len(plan.steps) > MAX_DRAWN:
        return _now("Not drawn: it has more than %(count)d steps.") % {"count": MAX_DRAWN}
    drawn = render_svg(view_of_flow(plan, statuses=statuses))
    return format_html(
        '<div class="catbird-picture" tabindex="0">{}</div>',
        SafeString(drawn),
    )


@admin.register(Flow)
class FlowAdmin(ReadOnlyAdmin):
    list_display = ("name", "version", "queue", "first_line", "registered", "runs_link")
    list_filter = (FlowNameFilter, QueueFilter)
    list_per_page = 100
    show_full_result_count = True  # there are as many as the code has had
    ordering = ("name", "-version")
    search_fields = ("name__startswith",)
    search_help_text = _("How the name begins.")
    fieldsets = (
        (None, {"fields": ["name", "version", "currency", "queue", "description", "registered", "fingerprint"]}),
        (_("Picture"), {"fields": ["drawn"]}),
        (_("Steps"), {"fields": ["step_table"]}),
        (_("How it ends"), {"fields": ["output_names", "on_fail_link", "deadline_text", "retention_text"]}),
        (_("Runs"), {"fields": ["recent_runs", "runs_link"]}),
        (_("Types"), {"fields": ["input_schema_json", "output_schema_json"]}),
    )
    readonly_fields = (
        *("currency", "registered", "drawn", "step_table", "output_names", "on_fail_link", "deadline_text"),
        *("retention_text", "recent_runs", "runs_link", "input_schema_json", "output_schema_json"),
    )

    class Media:
        css = {"all": ["catbird/admin.css", "catbird/graph.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_schema_text(queries.flows())

    @admin.display(description=_("description"))
    def first_line(self, flow: Flow) -> str:
        return flow.description.strip().partition("\n")[0] or EMPTY

    @admin.display(description=_("registered"))
    def registered(self, flow: Flow) -> SafeString | str:
        return moment(flow.registered_at)

    @admin.display(description=_("current"))
    def currency(self, flow: Flow) -> SafeString | str:
        newest = queries.flows().filter(name=flow.name).order_by("-registered_at", "-version").first()
        if newest is None or newest.pk == flow.pk:
            return _now("yes: it is what is run by name")
        return format_html("{} {}", _now("no, that is version"), link(newest, str(newest.version)))

    @admin.display(description=_("runs"))
    def runs_link(self, flow: Flow) -> SafeString | str:
        return list_link(FlowRun, _now("Show runs"), flow=flow.name)

    @admin.display(description=_("picture"))
    def drawn(self, flow: Flow) -> SafeString | str:
        return picture(read_plan(flow))

    @admin.display(description=_("steps"))
    def step_table(self, flow: Flow) -> SafeString | str:
        headings = [
            _now("step"),
            _now("kind"),
            _now("needs"),
            _now("only if"),
            _now("signal"),
            _now("retries"),
            _now("handler"),
        ]
        rows = (("", *_step_cells(step)) for step in read_plan(flow).steps)
        return table(headings, rows, row_class="catbird-wide")

    @admin.display(description=_("output"))
    def output_names(self, flow: Flow) -> SafeString | str:
        required = _now("one of them must complete") if flow.output_required else ""
        return format_html('{} <span class="quiet">{}</span>', names(flow.outputs), required)

    @admin.display(description=_("on fail"))
    def on_fail_link(self, flow: Flow) -> SafeString | str:
        task = queries.tasks().filter(name=flow.on_fail).first()
        return (flow.on_fail or EMPTY) if task is None else link(task, flow.on_fail)

    @admin.display(description=_("deadline"))
    def deadline_text(self, flow: Flow) -> str:
        return _in_words(flow.deadline)

    @admin.display(description=_("retention"))
    def retention_text(self, flow: Flow) -> str:
        if flow.retention is not None:
            return in_one_unit(flow.retention)
        usual = get_settings().retention
        return _now("as usual: %(duration)s") % {"duration": _now("for ever") if usual is None else in_one_unit(usual)}

    @admin.display(description=_("recent runs"))
    def recent_runs(self, flow: Flow) -> SafeString:
        counts = recent_flow_counts(flow.name)
        badges = format_html_join(
            " ",
            "<span>{} {}</span>",
            (
                (badge(status), list_link(FlowRun, str(counts[status]), flow=flow.name, status=status.value))
                for status in FlowStatus
                if status in counts
            ),
        )
        return format_html(
            '<div class="catbird-counts">{}</div><div class="quiet">{}</div>',
            badges or _now("None."),
            _now("Of all versions, among the newest %(count)s runs of all flows.") % {"count": grouped(RECENT)},
        )

    @admin.display(description=_("input schema"))
    def input_schema_json(self, flow: Any) -> SafeString | str:
        return json_block(flow.input_schema_text, is_open=False)

    @admin.display(description=_("output schema"))
    def output_schema_json(self, flow: Any) -> SafeString | str:
        return json_block(flow.output_schema_text, is_open=False)


def _step_cells(step: StepPlan) -> list[object]:
    signal = "" if step.signal is None else str((step.signal_schema or {}).get("title") or _now("any"))
    needed = names(dependency.step for dependency in step.dependencies) or EMPTY
    return [
        step.name,
        kind_in_words(step),
        needed,
        condition_in_words(step.condition),
        signal,
        step.max_retries,
        step.handler,
    ]


def _in_words(duration: timedelta | None) -> str:
    return EMPTY if duration is None else in_one_unit(duration)
