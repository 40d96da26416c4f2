"""Task runs: the list, and the page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.urls import path
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.filters import QueueFilter, StatusFilter, TagFilter, TaskFilter
from catbird_django.admin.keyset_list import KeysetChangeList
from catbird_django.admin.markup import (
    EMPTY,
    badge,
    error_block,
    how_long,
    json_block,
    link,
    moment,
    names,
    progress_bar,
)
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.admin.run_actions import cancel_one, cancel_selected, retry_one, retry_selected
from catbird_django.admin.run_records import history_table, log_table
from catbird_django.models import TaskRun
from catbird_django.monitoring import queries
from catbird_django.monitoring.history import MAX_SUCCESSORS, successors_of, tags_of
from catbird_django.monitoring.paging import REACH
from catbird_django.monitoring.payloads import with_payload_text
from catbird_django.monitoring.permissions import may_cancel, may_retry, may_view_payload
from catbird_django.monitoring.reasons import why_waiting
from catbird_django.statuses import TERMINAL_STATUSES, RunRole, TaskStatus

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypedDict

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponse, HttpResponseBase
    from django.utils.safestring import SafeString
    from django_stubs_ext import WithAnnotations

    class Reading(TypedDict):
        read_at: datetime

    class PayloadText(Reading):
        input_text: str
        output_text: str | None
        headers_text: str | None
        error_text: str | None
        error_type: str | None
        error_message: str | None
        error_traceback: str | None

    Run = WithAnnotations[TaskRun, Reading]
    RunWithPayload = WithAnnotations[TaskRun, PayloadText]

RUN = (None, {"fields": ["status_badge", "progress_shown", "task_link", "queue", "priority", "worker_link"]})
RUN_WITH_MESSAGE = (
    None,
    {"fields": ["status_badge", "progress_told", "task_link", "queue", "priority", "worker_link"]},
)
WAITING = (_("Why is it waiting?"), {"fields": ["reasons"]})
FAMILY = (_("Related runs"), {"fields": ["origin_link", "successor_links"]})
TAGS = (_("Tags"), {"fields": ["tag_names"]})
KEYS = (_("Key"), {"fields": ["concurrency_key", "idempotency_key", "debounce_key"]})
CANCELED = (_("Canceled"), {"fields": ["cancel_requested", "cancel_reason", "canceled_by"]})
TIMES = (
    _("Times"),
    {"fields": [("queued", "waited"), ("started", "ran"), "finished", "not_before", "expires", "lease"]},
)
ATTEMPTS = (_("Attempts"), {"fields": [("delivery_count", "failure_count", "lost_count")]})
ERROR = (_("Error"), {"fields": ["error_report"]})
DATA = (_("Data"), {"fields": ["input_json", "output_json", "headers_json"]})
LOG = (_("Log"), {"fields": ["log_lines"]})
HISTORY = (_("History"), {"fields": ["history_table"]})
HISTORY_WITH_DETAILS = (_("History"), {"fields": ["history_with_details"]})


class TaskRunChangeList(KeysetChangeList):
    def reach(self) -> int | None:
        is_found = queries.is_found_by_index(
            status=self.params.get("status", ""), text=self.query, tag=self.params.get("tag", "")
        )
        return REACH if self.is_filtered and not is_found else None


@admin.register(TaskRun)
class TaskRunAdmin(ReadOnlyAdmin):
    actions = (cancel_selected, retry_selected)
    list_display = ("id", "status_badge", "progress_shown", "task_link", "queue", "queued", "waited", "ran")
    list_filter = (StatusFilter, TaskFilter, QueueFilter, TagFilter)
    search_fields = ("id", "task__name")  # shows the form; get_search_results does the work
    search_help_text = _("The number of a run, or how the name of a task begins.")
    change_list_template = "admin/catbird/keyset_list.html"
    change_form_template = "admin/catbird/task_run.html"
    readonly_fields = (
        *("progress_shown", "progress_told", "origin_link", "successor_links", "tag_names", "expires", "log_lines"),
        *("history_table", "history_with_details", "reasons"),
        *("status_badge", "task_link", "worker_link", "queued", "waited", "started", "ran", "finished", "not_before"),
        *("lease", "cancel_requested", "error_report", "input_json", "output_json", "headers_json"),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        return TaskRunChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return queries.task_runs().prefetch_related("task")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return (queries.matching(queryset, search_term) if search_term.strip() else queryset), False

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return may_cancel(request.user)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return may_retry(request.user)

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/cancel/", wrap(self.cancel_view), name="catbird_taskrun_cancel"),
            path("<path:object_id>/run-again/", wrap(self.retry_view), name="catbird_taskrun_retry"),
            *super().get_urls(),
        ]

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        return cancel_one(self, request, object_id)

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        return retry_one(self, request, object_id)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        status = context["original"].status
        buttons = {
            "offers_cancel": status not in (*TERMINAL_STATUSES, TaskStatus.CANCELING) and may_cancel(request.user),
            "offers_retry": status in TERMINAL_STATUSES and may_retry(request.user),
        }
        return super().render_change_form(request, {**context, **buttons}, *args, **kwargs)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        run_id = queries.run_id_in(object_id)
        runs = self.get_queryset(request).prefetch_related("worker", "origin").filter(pk=run_id)
        return (with_payload_text(runs) if may_view_payload(request.user) else runs).first()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or not may_view_payload(request.user):
            waiting = [WAITING] if obj is not None and why_waiting(obj) else []
            return [RUN, *waiting, TIMES, ATTEMPTS, FAMILY, HISTORY]
        parts: list[tuple[Any, bool]] = [
            (RUN_WITH_MESSAGE, True),
            (WAITING, bool(why_waiting(obj))),
            (ERROR, obj.error_text is not None),
            (CANCELED, obj.cancel_requested_at is not None),
            (TAGS, bool(tags_of(obj))),
            (KEYS, bool(obj.concurrency_key or obj.idempotency_key or obj.debounce_key)),
            (TIMES, True),
            (ATTEMPTS, True),
            (FAMILY, True),
            (LOG, True),
            (HISTORY_WITH_DETAILS, True),
            (DATA, True),
        ]
        return [part for part, is_shown in parts if is_shown]

    @admin.display(description=_("status"))
    def status_badge(self, run: TaskRun) -> SafeString:
        return badge(TaskStatus(run.status))

    @admin.display(description=_("progress"))
    def progress_shown(self, run: TaskRun) -> SafeString | str:
        return progress_bar(run.progress, with_message=False)

    @admin.display(description=_("progress"))
    def progress_told(self, run: TaskRun) -> SafeString | str:
        return progress_bar(run.progress, with_message=True)

    @admin.display(description=_("because"))
    def reasons(self, run: TaskRun) -> SafeString | str:
        return format_html_join("", "<div>{}</div>", ((reason,) for reason in why_waiting(run)))

    @admin.display(description=_("made from"))
    def origin_link(self, run: TaskRun) -> SafeString | str:
        if run.origin_id is None:
            return EMPTY
        role = RunRole(run.role).label if run.role in RunRole.values else run.role
        shown = str(run.origin_id) if run.origin is None else link(run.origin, str(run.origin_id))
        return format_html('{} <span class="quiet">{}</span>', shown, role)

    @admin.display(description=_("runs made from it"))
    def successor_links(self, run: TaskRun) -> SafeString | str:
        made = successors_of(run)
        rows = ((link(successor, str(successor.pk)), badge(TaskStatus(successor.status))) for successor in made)
        links = format_html_join(" ", "<span>{} {}</span>", list(rows)[:MAX_SUCCESSORS])
        more = _now("… and more.") if len(made) > MAX_SUCCESSORS else ""
        return format_html('<div class="catbird-counts">{} {}</div>', links, more) if made else EMPTY

    @admin.display(description=_("tags"))
    def tag_names(self, run: TaskRun) -> SafeString | str:
        return names(tags_of(run)) or EMPTY

    @admin.display(description=_("expires"))
    def expires(self, run: TaskRun) -> SafeString | str:
        return moment(run.expires_at)

    @admin.display(description=_("log"))
    def log_lines(self, run: TaskRun) -> SafeString | str:
        return log_table(run)

    @admin.display(description=_("history"))
    def history_table(self, run: TaskRun) -> SafeString | str:
        return history_table(run, with_details=False)

    @admin.display(description=_("history"))
    def history_with_details(self, run: TaskRun) -> SafeString | str:
        return history_table(run, with_details=True)

    @admin.display(description=_("task"))
    def task_link(self, run: TaskRun) -> SafeString | str:
        return link(run.task, run.task.name)

    @admin.display(description=_("worker"))
    def worker_link(self, run: TaskRun) -> SafeString | str:
        if run.worker is not None:
            return link(run.worker, str(run.worker))
        if run.worker_id is not None:
            return _now("worker %(id)d, no longer on record") % {"id": run.worker_id}
        return EMPTY

    @admin.display(description=_("queued"))
    def queued(self, run: TaskRun) -> SafeString | str:
        return moment(run.queued_at)

    @admin.display(description=_("started"))
    def started(self, run: TaskRun) -> SafeString | str:
        return moment(run.started_at)

    @admin.display(description=_("finished"))
    def finished(self, run: TaskRun) -> SafeString | str:
        return moment(run.finished_at)

    @admin.display(description=_("not before"))
    def not_before(self, run: TaskRun) -> SafeString | str:
        return moment(run.visible_at)

    @admin.display(description=_("requested"))
    def cancel_requested(self, run: TaskRun) -> SafeString | str:
        return moment(run.cancel_requested_at)

    @admin.display(description=_("lease until"))
    def lease(self, run: TaskRun) -> SafeString | str:
        return moment(run.lease_until)

    @admin.display(description=_("waited"))
    def waited(self, run: Run) -> str:
        return how_long(run.queued_at, run.started_at or run.finished_at, run.read_at)

    @admin.display(description=_("ran"))
    def ran(self, run: Run) -> str:
        return how_long(run.started_at, run.finished_at, run.read_at)

    @admin.display(description=_("error"))
    def error_report(self, run: RunWithPayload) -> SafeString | str:
        return error_block(run)

    @admin.display(description=_("input"))
    def input_json(self, run: RunWithPayload) -> SafeString | str:
        return json_block(run.input_text)

    @admin.display(description=_("output"))
    def output_json(self, run: RunWithPayload) -> SafeString | str:
        return json_block(run.output_text)

    @admin.display(description=_("headers"))
    def headers_json(self, run: RunWithPayload) -> SafeString | str:
        return json_block(run.headers_text)
