"""Filters of lists. Their choices come from small tables, never from the runs themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.utils.translation import gettext_lazy as _

from catbird_django.models import Flow, FlowRun
from catbird_django.monitoring import queries
from catbird_django.monitoring.permissions import may_view_payload
from catbird_django.monitoring.worker_states import WorkerState
from catbird_django.statuses import FlowStatus, TaskStatus

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from catbird_django.models import TaskRun, Worker

MAX_CHOICES = 100
"""At most so many are listed; the address takes any other, and the search finds tasks by name."""


class StatusFilter(SimpleListFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(TaskStatus.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[TaskRun]) -> QuerySet[TaskRun]:
        status = self.value()
        return queryset if status is None else queries.of_status(queryset, status)


class FlowStatusFilter(SimpleListFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(FlowStatus.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[FlowRun]) -> QuerySet[FlowRun]:
        status = self.value()
        return queryset if status is None else queryset.filter(status=status)


class FlowFilter(SimpleListFilter):
    title = _("flow")
    parameter_name = "flow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = queries.flows().order_by("name").values_list("name", flat=True).distinct()
        return [(name, name) for name in names[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[FlowRun]) -> QuerySet[FlowRun]:
        name = self.value()
        return queryset if name is None else queryset.filter(flow_name=name)


class FlowNameFilter(FlowFilter):
    """By name, of versions of flows."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        name = self.value()
        return queryset if name is None else queryset.filter(name=name)


class TaskFilter(SimpleListFilter):
    title = _("task")
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = queries.tasks().order_by("name").values_list("name", flat=True)
        return [(name, name) for name in names[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[TaskRun]) -> QuerySet[TaskRun]:
        name = self.value()
        return queryset if name is None else queries.of_tasks(queryset, queries.tasks().filter(name=name))


class QueueFilter(SimpleListFilter):
    """By queue: those that tasks, or flows, belong to. A run may have been sent to another; the address takes any."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        is_about_flows = model_admin.model in (Flow, FlowRun)
        declared: QuerySet[Any] = queries.flows() if is_about_flows else queries.tasks()
        queues = declared.order_by("queue").values_list("queue", flat=True).distinct()
        return [(queue, queue) for queue in queues[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        queue = self.value()
        return queryset if queue is None else queryset.filter(queue=queue)


class TagFilter(SimpleListFilter):
    """By tag, typed in: there may be as many as runs. Tags may name people, so it is for those who see payloads."""

    title = _("tag")
    parameter_name = "tag"
    template = "admin/catbird/tag_filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        self.is_allowed = may_view_payload(request.user)
        return []

    def has_output(self) -> bool:
        return True  # else Django would leave the filter out, and show the whole list to whoever may not use it

    def choices(self, changelist: Any) -> Any:
        """What the form of the filter needs: the tag, the address without it, and the other filters to keep."""
        if not self.is_allowed:
            return
        others = {name: value for name, value in changelist.params.items() if name != self.parameter_name}
        yield {
            "value": self.value() or "",
            "selected": self.value() is not None,
            "others": others.items(),
            "all": changelist.get_query_string(remove=[self.parameter_name]),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        tag = self.value()
        if tag is None:
            return queryset
        return queries.with_tag(queryset, tag) if self.is_allowed else queryset.none()


class WorkerStateFilter(SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(WorkerState.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Worker]:
        state = self.value()
        return queryset if state is None else queryset.filter(state=state)
