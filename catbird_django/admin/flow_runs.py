"""Runs of flows: the list, and the page of one with its steps, its signals, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.urls import path
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.filters import FlowFilter, FlowStatusFilter, QueueFilter, TagFilter
from catbird_django.admin.flow_run_parts import list_output, signal_table, step_data, step_table, where_failed
from catbird_django.admin.flows import picture
from catbird_django.admin.item_list import item_list
from catbird_django.admin.keyset_list import KeysetChangeList
from catbird_django.admin.markup import (
    EMPTY,
    badge,
    error_block,
    grouped,
    how_long,
    json_block,
    link,
    moment,
    names,
    table,
)
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.admin.run_records import compact
from catbird_django.admin.signal_page import signal_page
from catbird_django.client.explain import explain
from catbird_django.models import FlowRun, StepRun
from catbird_django.monitoring import queries
from catbird_django.monitoring.graph.view import Status
from catbird_django.monitoring.history import MAX_SUCCESSORS, flow_successors_of, history_of_flow, tags_of
from catbird_django.monitoring.item_pages import counts_of, live_item_count
from catbird_django.monitoring.paging import REACH
from catbird_django.monitoring.payloads import with_failed_step, with_payload_text
from catbird_django.monitoring.permissions import may_signal, may_view_payload
from catbird_django.monitoring.step_runs import open_to_signals, signals_of, steps_of
from catbird_django.monitoring.stored_plan import read_plan
from catbird_django.statuses import FlowStatus, RunRole, StepStatus

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponse, HttpResponseBase
    from django.utils.safestring import SafeString

RUN = (None, {"fields": ["status_badge", "flow_link", "queue", "priority"]})
RUN_WITH_ACTOR = (None, {"fields": ["status_badge", "flow_link", "queue", "priority", "started_by"]})
WAITING = (_("Why is it waiting?"), {"fields": ["reasons"]})
PICTURE = (_("Picture"), {"fields": ["drawn"]})
STEPS = (_("Steps"), {"fields": ["step_list"]})
STEP_DATA = (_("Data of the steps"), {"fields": ["step_values"]})
ERROR = (_("Error"), {"fields": ["error_shown"]})
CANCELED = (_("Canceled"), {"fields": ["cancel_requested", "cancel_reason", "canceled_by"]})
EARLY = (_("Completed early"), {"fields": ["early_by"]})
EARLY_WITH_REASON = (_("Completed early"), {"fields": ["early_by", "early_why"]})
SIGNALS = (_("Signals"), {"fields": ["signals_given"]})
TAGS = (_("Tags"), {"fields": ["tag_names"]})
KEYS = (_("Key"), {"fields": ["concurrency_key", "idempotency_key"]})
TIMES = (_("Times"), {"fields": [("started", "took"), "finished", "not_before", "expires", "deadline_shown"]})
FAMILY = (_("Related runs"), {"fields": ["origin_link", "successor_links"]})
HISTORY = (_("History"), {"fields": ["history_table"]})
HISTORY_WITH_DETAILS = (_("History"), {"fields": ["history_with_details"]})
DATA = (_("Data"), {"fields": ["input_json", "output_json", "headers_json"]})


class FlowRunChangeList(KeysetChangeList):
    def reach(self) -> int | None:
        is_found = queries.run_id_in(self.query) is not None or self.params.get("tag")
        return REACH if self.is_filtered and not is_found else None


@admin.register(FlowRun)
class FlowRunAdmin(ReadOnlyAdmin):
    list_display = ("id", "status_badge", "flow_link", "queue", "started", "took")
    list_filter = (FlowStatusFilter, FlowFilter, QueueFilter, TagFilter)
    search_fields = ("id", "flow_name")  # shows the form; get_search_results does the work
    search_help_text = _("The number of a run, or how the name of a flow begins.")
    change_list_template = "admin/catbird/keyset_list.html"
    change_form_template = "admin/catbird/flow_run.html"
    readonly_fields = (
        *("status_badge", "flow_link", "reasons", "drawn", "step_list", "step_values", "error_shown"),
        *("cancel_requested", "signals_given", "tag_names", "started", "took", "finished", "not_before", "expires"),
        *("deadline_shown", "origin_link", "successor_links", "history_table", "history_with_details"),
        *("input_json", "output_json", "headers_json", "early_by", "early_why"),
    )

    class Media:
        css = {"all": ["catbird/admin.css", "catbird/graph.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        return FlowRunChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return queries.flow_runs().prefetch_related("flow")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        found = queries.matching_flow_runs(queryset, search_term) if search_term.strip() else queryset
        return found, False

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/items/<str:step>/", wrap(self.items_view), name="catbird_flowrun_items"),
            path("<path:object_id>/signal/", wrap(self.signal_view), name="catbird_flowrun_signal"),
            *super().get_urls(),
        ]

    def signal_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        return signal_page(self, request, object_id)

    def items_view(self, request: HttpRequest, object_id: str, step: str) -> HttpResponse:
        return item_list(self, request, object_id, step)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        run_id = queries.run_id_in(object_id)
        runs = self.get_queryset(request).prefetch_related("origin").filter(pk=run_id)
        return (with_failed_step(with_payload_text(runs)) if may_view_payload(request.user) else runs).first()

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        waiting = open_to_signals(context["original"]) if may_signal(request.user) else []
        return super().render_change_form(request, {**context, "signal_steps": waiting}, *args, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or not may_view_payload(request.user):
            waiting = [WAITING] if obj is not None and obj.finished_at is None else []
            early = [EARLY] if obj is not None and obj.early_step else []
            return [RUN, *waiting, *early, PICTURE, STEPS, TIMES, FAMILY, HISTORY]
        parts: list[tuple[Any, bool]] = [
            (RUN_WITH_ACTOR, True),
            (WAITING, obj.finished_at is None),
            (ERROR, obj.error_text is not None),
            (EARLY_WITH_REASON, bool(obj.early_step)),
            (PICTURE, True),
            (STEPS, True),
            (CANCELED, _is_canceled(obj)),
            (SIGNALS, bool(signals_of(obj))),
            (TAGS, bool(tags_of(obj))),
            (KEYS, bool(obj.concurrency_key or obj.idempotency_key)),
            (TIMES, True),
            (FAMILY, True),
            (DATA, True),
            (STEP_DATA, True),
            (HISTORY_WITH_DETAILS, True),
        ]
        return [part for part, is_shown in parts if is_shown]

    @admin.display(description=_("status"))
    def status_badge(self, run: FlowRun) -> SafeString:
        return badge(FlowStatus(run.status))

    @admin.display(description=_("flow"))
    def flow_link(self, run: FlowRun) -> SafeString | str:
        version = _now("version %(version)d") % {"version": run.flow.version}
        return format_html('{} <span class="quiet">{}</span>', link(run.flow, run.flow_name), version)

    @admin.display(description=_("because"))
    def reasons(self, run: FlowRun) -> SafeString | str:
        unmet = explain(run.pk, using=run._state.db)  # noqa: SLF001 - documented by Django
        return format_html_join("", "<div>{}</div>", ((str(one),) for one in unmet)) or _ending(run)

    @admin.display(description=_("picture"))
    def drawn(self, run: FlowRun) -> SafeString | str:
        statuses = {
            step_run.step.name: Status(
                name=step_run.status,
                label=str(StepStatus(step_run.status).label),
                items=counts_of(step_run) if step_run.step.kind == "map" else None,
            )
            for step_run in steps_of(run)
        }
        return picture(read_plan(run.flow), statuses)

    @admin.display(description=_("steps"))
    def step_list(self, run: FlowRun) -> SafeString:
        return step_table(steps_of(run))

    @admin.display(description=_("steps"))
    def step_values(self, run: FlowRun) -> SafeString | str:
        return step_data(steps_of(run, with_payloads=True))

    @admin.display(description=_("error"))
    def error_shown(self, run: Any) -> SafeString | str:
        return error_block(run, where=where_failed(run.failed_step or "", run.failed_item))

    @admin.display(description=_("by step"))
    def early_by(self, run: FlowRun) -> str:
        return run.early_step

    @admin.display(description=_("because"))
    def early_why(self, run: FlowRun) -> str:
        return run.early_reason or EMPTY

    @admin.display(description=_("requested"))
    def cancel_requested(self, run: FlowRun) -> SafeString | str:
        return moment(run.ending_since)

    @admin.display(description=_("signals"))
    def signals_given(self, run: FlowRun) -> SafeString:
        return signal_table(signals_of(run))

    @admin.display(description=_("tags"))
    def tag_names(self, run: FlowRun) -> SafeString | str:
        return names(tags_of(run)) or EMPTY

    @admin.display(description=_("started"))
    def started(self, run: FlowRun) -> SafeString | str:
        return moment(run.started_at)

    @admin.display(description=_("took"))
    def took(self, run: Any) -> str:
        return how_long(run.started_at, run.finished_at, run.read_at)

    @admin.display(description=_("finished"))
    def finished(self, run: FlowRun) -> SafeString | str:
        return moment(run.finished_at)

    @admin.display(description=_("not before"))
    def not_before(self, run: FlowRun) -> SafeString | str:
        return moment(run.run_at)

    @admin.display(description=_("expires"))
    def expires(self, run: FlowRun) -> SafeString | str:
        return moment(run.expires_at)

    @admin.display(description=_("deadline"))
    def deadline_shown(self, run: FlowRun) -> SafeString | str:
        return moment(run.deadline_at)

    @admin.display(description=_("made from"))
    def origin_link(self, run: FlowRun) -> SafeString | str:
        if run.origin_id is None:
            return EMPTY
        role = RunRole(run.role).label if run.role in RunRole.values else run.role
        shown = str(run.origin_id) if run.origin is None else link(run.origin, str(run.origin_id))
        return format_html('{} <span class="quiet">{}</span>', shown, role)

    @admin.display(description=_("runs made from it"))
    def successor_links(self, run: FlowRun) -> SafeString | str:
        made = flow_successors_of(run)
        rows = [(link(successor, str(successor.pk)), badge(FlowStatus(successor.status))) for successor in made]
        links = format_html_join(" ", "<span>{} {}</span>", rows[:MAX_SUCCESSORS])
        more = _now("… and more.") if len(made) > MAX_SUCCESSORS else ""
        return format_html('<div class="catbird-counts">{} {}</div>', links, more) if made else EMPTY

    @admin.display(description=_("history"))
    def history_table(self, run: FlowRun) -> SafeString:
        return _history(run, with_details=False)

    @admin.display(description=_("history"))
    def history_with_details(self, run: FlowRun) -> SafeString:
        return _history(run, with_details=True)

    @admin.display(description=_("input"))
    def input_json(self, run: Any) -> SafeString | str:
        return json_block(run.input_text)

    @admin.display(description=_("output"))
    def output_json(self, run: Any) -> SafeString | str:
        if run.output_run_id is None:
            return json_block(run.output_text)
        steps = StepRun.objects.using(run._state.db).select_related("step")  # noqa: SLF001
        source = steps.filter(pk=run.output_run_id).first()
        return EMPTY if source is None else list_output(run.pk, source)

    @admin.display(description=_("headers"))
    def headers_json(self, run: Any) -> SafeString | str:
        return json_block(run.headers_text)


def _history(run: FlowRun, *, with_details: bool) -> SafeString:
    headings = [_now("at"), _now("step"), _now("event"), _now("from"), _now("to"), _now("by"), _now("details")]
    step_names = {step_run.pk: step_run.step.name for step_run in steps_of(run)}
    rows = [
        ("", moment(one.at), one.step, one.what, one.from_status, one.to_status, one.actor, compact(one.details))
        for one in history_of_flow(run, step_names)
    ]
    # Details, and who did something, may name people.
    shown = (headings, rows) if with_details else (headings[:5], [row[:6] for row in rows])
    return table(*shown, row_class="catbird-wide")


def _is_canceled(run: FlowRun) -> bool:
    """Whether somebody wanted its end: a run that fails or is completed early is being ended too."""
    return run.ending_since is not None and run.outcome not in (FlowStatus.FAILED, FlowStatus.COMPLETED)


def _ending(run: FlowRun) -> str:
    """What a run waits for whose outcome is decided."""
    left = live_item_count(run)
    if not left:
        return _now("Nothing: it is ending.")
    return _now("It is ending: %(count)s of its items are yet to be stopped.") % {"count": grouped(left)}
