"""Task runs: the list, and the page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.filters import QueueFilter, StatusFilter, TaskFilter
from catbird_django.admin.keyset_list import KeysetChangeList
from catbird_django.admin.markup import EMPTY, badge, folding, json_block, link, moment
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.models import TaskRun
from catbird_django.monitoring import queries
from catbird_django.monitoring.durations import in_words
from catbird_django.monitoring.paging import REACH
from catbird_django.monitoring.payloads import with_payload_text
from catbird_django.monitoring.permissions import may_view_payload
from catbird_django.statuses import TaskStatus

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypedDict

    from django.db.models import QuerySet
    from django.http import HttpRequest
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

RUN = (None, {"fields": ["status_badge", "task_link", "queue", "priority", "worker_link"]})
KEYS = (_("Key"), {"fields": ["concurrency_key", "idempotency_key"]})
CANCELED = (_("Canceled"), {"fields": ["cancel_requested", "cancel_reason", "canceled_by"]})
TIMES = (
    _("Times"),
    {"fields": [("queued", "waited"), ("started", "ran"), "finished", "not_before", "lease"]},
)
ATTEMPTS = (_("Attempts"), {"fields": [("delivery_count", "failure_count", "lost_count")]})
ERROR = (_("Error"), {"fields": ["error_report"]})
DATA = (_("Data"), {"fields": ["input_json", "output_json", "headers_json"]})


class TaskRunChangeList(KeysetChangeList):
    def reach(self) -> int | None:
        is_found = queries.is_found_by_index(status=self.params.get("status", ""), text=self.query)
        return REACH if self.is_filtered and not is_found else None


@admin.register(TaskRun)
class TaskRunAdmin(ReadOnlyAdmin):
    list_display = ("id", "status_badge", "task_link", "queue", "queued", "waited", "ran")
    list_filter = (StatusFilter, TaskFilter, QueueFilter)
    search_fields = ("id", "task__name")  # shows the form; get_search_results does the work
    search_help_text = _("The number of a run, or how the name of a task begins.")
    change_list_template = "admin/catbird/keyset_list.html"
    readonly_fields = (
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

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        run_id = queries.run_id_in(object_id)
        runs = self.get_queryset(request).prefetch_related("worker").filter(pk=run_id)
        return (with_payload_text(runs) if may_view_payload(request.user) else runs).first()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if not may_view_payload(request.user):
            return [RUN, TIMES, ATTEMPTS]
        parts: list[tuple[Any, bool]] = [
            (RUN, True),
            (ERROR, obj is not None and obj.error_text is not None),
            (CANCELED, obj is not None and obj.cancel_requested_at is not None),
            (KEYS, obj is not None and bool(obj.concurrency_key or obj.idempotency_key)),
            (TIMES, True),
            (ATTEMPTS, True),
            (DATA, True),
        ]
        return [part for part, is_shown in parts if is_shown]

    @admin.display(description=_("status"))
    def status_badge(self, run: TaskRun) -> SafeString:
        return badge(TaskStatus(run.status))

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
        return _how_long(run.queued_at, run.started_at or run.finished_at, run.read_at)

    @admin.display(description=_("ran"))
    def ran(self, run: Run) -> str:
        return _how_long(run.started_at, run.finished_at, run.read_at)

    @admin.display(description=_("error"))
    def error_report(self, run: RunWithPayload) -> SafeString | str:
        if run.error_type is None and run.error_message is None:
            return json_block(run.error_text)  # written by someone else than our workers
        traceback = folding(_now("Traceback"), run.error_traceback) if run.error_traceback else ""
        return format_html(
            '<div class="catbird-error"><strong>{}</strong><span>{}</span></div>{}',
            run.error_type or "",
            run.error_message or "",
            traceback,
        )

    @admin.display(description=_("input"))
    def input_json(self, run: RunWithPayload) -> SafeString | str:
        return json_block(run.input_text)

    @admin.display(description=_("output"))
    def output_json(self, run: RunWithPayload) -> SafeString | str:
        return json_block(run.output_text)

    @admin.display(description=_("headers"))
    def headers_json(self, run: RunWithPayload) -> SafeString | str:
        return json_block(run.headers_text)


def _how_long(since: datetime | None, until: datetime | None, now: datetime) -> str:
    """How long something took, or has taken so far by the database's clock."""
    return EMPTY if since is None else in_words((until or now) - since)
