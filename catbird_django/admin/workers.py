"""Workers: who is there, and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.filters import WorkerStateFilter
from catbird_django.admin.keyset_list import KeysetChangeList
from catbird_django.admin.markup import badge, link, moment, names
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.models import Worker
from catbird_django.monitoring import queries
from catbird_django.monitoring.durations import in_words
from catbird_django.monitoring.figures import held_by
from catbird_django.monitoring.worker_states import WorkerState

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypedDict

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.utils.safestring import SafeString
    from django_stubs_ext import WithAnnotations

    class Reading(TypedDict):
        read_at: datetime
        state: str

    ReadWorker = WithAnnotations[Worker, Reading]

MAX_HELD = 50


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("host_and_pid", "state_badge", "seen_ago", "queue_names", "slots", "version")
    list_filter = (WorkerStateFilter,)
    change_list_template = "admin/catbird/keyset_list.html"
    fieldsets = (
        (None, {"fields": ["state_badge", "host_and_pid", "version", "boot_id"]}),
        (_("Health"), {"fields": ["hearing", "draining", "abandoned_count"]}),
        (_("Work"), {"fields": ["queue_names", "handler_names", "slots", "held_runs"]}),
        (_("Times"), {"fields": ["started", "seen", "sleeping", "stopped"]}),
    )
    readonly_fields = (
        *("state_badge", "host_and_pid", "queue_names", "handler_names", "held_runs"),
        *("started", "seen", "sleeping", "stopped", "hearing", "draining"),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        return KeysetChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return queries.workers()

    @admin.display(description=_("worker"))
    def host_and_pid(self, worker: Worker) -> str:
        return str(worker)

    @admin.display(description=_("state"))
    def state_badge(self, worker: ReadWorker) -> SafeString:
        state = WorkerState(worker.state)
        if state is not WorkerState.STOPPED and worker.draining_since is not None:
            return format_html('{} <span class="quiet">{}</span>', badge(state), _now("draining"))
        if state is WorkerState.ALIVE and worker.sleeping_since is not None:
            return format_html('{} <span class="quiet">{}</span>', badge(state), _now("asleep"))
        return badge(state)

    @admin.display(description=_("hears of work by"))
    def hearing(self, worker: Worker) -> str:
        return _now("listening (NOTIFY)") if worker.is_listening else _now("polling")

    @admin.display(description=_("draining since"))
    def draining(self, worker: Worker) -> SafeString | str:
        return moment(worker.draining_since)

    @admin.display(description=_("queues"))
    def queue_names(self, worker: Worker) -> SafeString | str:
        return _now("all") if worker.queues is None else names(worker.queues)

    @admin.display(description=_("handlers"))
    def handler_names(self, worker: Worker) -> SafeString | str:
        return names(worker.handlers) or _now("none")

    @admin.display(description=_("runs it holds now"))
    def held_runs(self, worker: Worker) -> SafeString | str:
        held = held_by(worker, limit=MAX_HELD + 1)
        if not held:
            return _now("none")
        lease = _now("lease until")
        rows = ((link(run, f"{run.task.name} {run.pk}"), lease, moment(run.lease_until)) for run in held[:MAX_HELD])
        return format_html(
            '<ul class="catbird-list">{}</ul>{}',
            format_html_join("", '<li>{} <span class="quiet">{} {}</span></li>', rows),
            _now("… and more.") if len(held) > MAX_HELD else "",
        )

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> SafeString | str:
        return moment(worker.started_at)

    @admin.display(description=_("last seen"))
    def seen_ago(self, worker: ReadWorker) -> str:
        return _now("%(duration)s ago") % {"duration": in_words(worker.read_at - worker.seen_at)}

    @admin.display(description=_("last seen"))
    def seen(self, worker: ReadWorker) -> SafeString:
        return format_html('{} <span class="quiet">{}</span>', moment(worker.seen_at), self.seen_ago(worker))

    @admin.display(description=_("asleep since"))
    def sleeping(self, worker: Worker) -> SafeString | str:
        return moment(worker.sleeping_since)

    @admin.display(description=_("stopped"))
    def stopped(self, worker: Worker) -> SafeString | str:
        return moment(worker.stopped_at)
