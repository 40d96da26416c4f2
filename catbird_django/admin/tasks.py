"""Tasks: the catalogue, and the page of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.filters import QueueFilter
from catbird_django.admin.markup import EMPTY, badge, grouped, json_block, link, list_link, moment, names
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.conf import get_settings
from catbird_django.models import Task, TaskRun
from catbird_django.monitoring import queries
from catbird_django.monitoring.durations import in_one_unit
from catbird_django.monitoring.figures import RECENT, open_or_closed, recent_counts
from catbird_django.monitoring.json_text import condition_in_words
from catbird_django.monitoring.payloads import with_schema_text
from catbird_django.statuses import TaskStatus

if TYPE_CHECKING:
    from typing import TypedDict

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString
    from django_stubs_ext import WithAnnotations

    class SchemaText(TypedDict):
        input_schema_text: str | None
        output_schema_text: str | None

    TaskWithSchemas = WithAnnotations[Task, SchemaText]


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    list_display = ("name", "queue", "first_line", "runs_link")
    list_filter = (QueueFilter,)
    list_per_page = 100
    show_full_result_count = True  # there are as many as the code has
    ordering = ("name",)
    search_fields = ("name__startswith",)
    search_help_text = _("How the name begins.")
    fieldsets = (
        (
            None,
            {
                "fields": [
                    "name",
                    "queue",
                    "description",
                    "handler",
                    "registered",
                    "fingerprint",
                ]
            },
        ),
        (
            _("How it runs"),
            {
                "fields": [
                    ("max_retries", "max_lost"),
                    "condition_text",
                    "on_fail_link",
                    "on_cancel",
                    "option_list",
                    "retention_text",
                    "breaker_state",
                ]
            },
        ),
        (_("Runs"), {"fields": ["recent_runs", "runs_link"]}),
        (_("Types"), {"fields": ["input_schema_json", "output_schema_json"]}),
    )
    readonly_fields = (
        *("registered", "recent_runs", "runs_link", "input_schema_json", "output_schema_json"),
        *("condition_text", "on_fail_link", "option_list", "retention_text", "breaker_state"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_schema_text(queries.tasks().defer("input_schema", "output_schema"))

    @admin.display(description=_("description"))
    def first_line(self, task: Task) -> str:
        return task.description.strip().partition("\n")[0] or EMPTY

    @admin.display(description=_("registered"))
    def registered(self, task: Task) -> SafeString | str:
        return moment(task.registered_at)

    @admin.display(description=_("runs"))
    def runs_link(self, task: Task) -> SafeString | str:
        return list_link(TaskRun, _now("Show runs"), task=task.name)

    @admin.display(description=_("condition"))
    def condition_text(self, task: Task) -> SafeString | str:
        return condition_in_words(task.condition) or EMPTY

    @admin.display(description=_("on fail"))
    def on_fail_link(self, task: Task) -> SafeString | str:
        if not task.on_fail:
            return EMPTY
        other = queries.tasks().filter(name=task.on_fail).first()
        return task.on_fail if other is None else link(other, task.on_fail)

    @admin.display(description=_("options"))
    def option_list(self, task: Task) -> SafeString | str:
        options = task.options if isinstance(task.options, dict) else {}
        return names(f"{name} = {json.dumps(value)}" for name, value in sorted(options.items())) or EMPTY

    @admin.display(description=_("retention"))
    def retention_text(self, task: Task) -> str:
        if task.retention is not None:
            return in_one_unit(task.retention)
        usual = get_settings().retention
        return _now("as usual: %(duration)s") % {"duration": _now("for ever") if usual is None else in_one_unit(usual)}

    @admin.display(description=_("circuit breaker"))
    def breaker_state(self, task: Task) -> SafeString | str:
        breaker = open_or_closed(task)
        if breaker is None:
            return _now("closed: no failures seen")
        failures = _now("%(count)d failures in a row") % {"count": breaker.failure_count}
        if breaker.open_until is None:
            return format_html('{} <span class="quiet">{}</span>', _now("closed"), failures)
        tried = breaker.trial_run_id
        trial = "" if tried is None else _now("run %(id)d is tried, or was last") % {"id": tried}
        return format_html(
            '<strong>{}</strong> {} <span class="quiet">{} {}</span>',
            _now("open until"),
            moment(breaker.open_until),
            failures,
            trial,
        )

    @admin.display(description=_("recent runs"))
    def recent_runs(self, task: Task) -> SafeString:
        counts = recent_counts(task)
        return format_html(
            '<div class="catbird-counts">{}</div><div class="quiet">{}</div>',
            _count_badges(task, counts) or _now("None."),
            _now("Among the newest %(count)s runs of all tasks.") % {"count": grouped(RECENT)},
        )

    @admin.display(description=_("input schema"))
    def input_schema_json(self, task: TaskWithSchemas) -> SafeString | str:
        return json_block(task.input_schema_text, is_open=False)

    @admin.display(description=_("output schema"))
    def output_schema_json(self, task: TaskWithSchemas) -> SafeString | str:
        return json_block(task.output_schema_text, is_open=False)


def _count_badges(task: Task, counts: dict[str, int]) -> SafeString:
    """A badge and a number for each status that occurs, in the order of a run's life."""
    return format_html_join(
        " ",
        "<span>{} {}</span>",
        (
            (badge(status), list_link(TaskRun, str(counts[status]), task=task.name, status=status.value))
            for status in TaskStatus
            if status in counts
        ),
    )
