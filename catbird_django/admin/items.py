"""The page of one item of a map. There is no list of all items: those of one map have a page beside their run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.markup import (
    EMPTY,
    badge,
    error_block,
    how_long,
    items_url,
    json_block,
    link,
    moment,
    progress_bar,
)
from catbird_django.admin.read_only import ReadOnlyAdmin
from catbird_django.admin.run_records import history_table, log_table
from catbird_django.models import Item
from catbird_django.monitoring import queries
from catbird_django.monitoring.payloads import with_item_text
from catbird_django.monitoring.permissions import VIEW_FLOW_RUN, may_view_payload
from catbird_django.statuses import ItemStatus

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponse
    from django.utils.safestring import SafeString

ITEM = (None, {"fields": ["status_badge", "progress_shown", "run_link", "place", "queue", "priority", "worker_link"]})
ITEM_WITH_MESSAGE = (
    None,
    {"fields": ["status_badge", "progress_told", "run_link", "place", "queue", "priority", "worker_link"]},
)
TIMES = (
    _("Times"),
    {"fields": [("queued", "waited"), ("started", "ran"), "finished", "not_before", "cancel_requested", "lease"]},
)
ATTEMPTS = (_("Attempts"), {"fields": [("delivery_count", "failure_count", "lost_count")]})
ERROR = (_("Error"), {"fields": ["error_report"]})
DATA = (_("Data"), {"fields": ["input_json", "output_json"]})
LOG = (_("Log"), {"fields": ["log_lines"]})
HISTORY = (_("History"), {"fields": ["history_short"]})
HISTORY_WITH_DETAILS = (_("History"), {"fields": ["history_with_details"]})


@admin.register(Item)
class ItemAdmin(ReadOnlyAdmin):
    change_form_template = "admin/catbird/item.html"
    readonly_fields = (
        *("status_badge", "progress_shown", "progress_told", "run_link", "place", "worker_link", "queued", "waited"),
        *("started", "ran", "finished", "not_before", "cancel_requested", "lease", "error_report", "input_json"),
        *("output_json", "log_lines", "history_short", "history_with_details"),
    )

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Not among the models of the app: it is found from its run."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever sees a run sees its items."""
        return request.user.has_perm(VIEW_FLOW_RUN)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:catbird_flowrun_changelist"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return queries.items().prefetch_related("step", "flow_run")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        item_id = queries.run_id_in(object_id)
        found = self.get_queryset(request).prefetch_related("worker").filter(pk=item_id)
        return (with_item_text(found) if may_view_payload(request.user) else found).first()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or not may_view_payload(request.user):
            return [ITEM, TIMES, ATTEMPTS, HISTORY]
        error = [ERROR] if obj.error_text is not None else []
        return [ITEM_WITH_MESSAGE, *error, DATA, TIMES, ATTEMPTS, LOG, HISTORY_WITH_DETAILS]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        item = context["original"]
        return super().render_change_form(request, {**context, **_way_to(item)}, *args, **kwargs)

    @admin.display(description=_("status"))
    def status_badge(self, item: Item) -> SafeString:
        return badge(ItemStatus(item.status))

    @admin.display(description=_("progress"))
    def progress_shown(self, item: Item) -> SafeString | str:
        return progress_bar(item.progress, with_message=False)

    @admin.display(description=_("progress"))
    def progress_told(self, item: Item) -> SafeString | str:
        return progress_bar(item.progress, with_message=True)

    @admin.display(description=_("flow run"))
    def run_link(self, item: Item) -> SafeString | str:
        step = _now("step %(step)s") % {"step": item.step.name}
        name = f"{item.flow_run.flow_name} {item.flow_run_id}"
        return format_html('{} <span class="quiet">{}</span>', link(item.flow_run, name), step)

    @admin.display(description=_("index"))
    def place(self, item: Item) -> SafeString | str:
        if item.source_id is None:
            return str(item.index)
        source = link(Item(pk=item.source_id), _now("the item that it goes on with"))
        return format_html('{} <span class="quiet">{}</span>', item.index, source)

    @admin.display(description=_("worker"))
    def worker_link(self, item: Item) -> SafeString | str:
        if item.worker is not None:
            return link(item.worker, str(item.worker))
        if item.worker_id is not None:
            return _now("worker %(id)d, no longer on record") % {"id": item.worker_id}
        return EMPTY

    @admin.display(description=_("queued"))
    def queued(self, item: Item) -> SafeString | str:
        return moment(item.queued_at)

    @admin.display(description=_("waited"))
    def waited(self, item: Any) -> str:
        return how_long(item.queued_at, item.started_at or item.finished_at, item.read_at)

    @admin.display(description=_("started"))
    def started(self, item: Item) -> SafeString | str:
        return moment(item.started_at)

    @admin.display(description=_("ran"))
    def ran(self, item: Any) -> str:
        return how_long(item.started_at, item.finished_at, item.read_at)

    @admin.display(description=_("finished"))
    def finished(self, item: Item) -> SafeString | str:
        return moment(item.finished_at)

    @admin.display(description=_("not before"))
    def not_before(self, item: Item) -> SafeString | str:
        return moment(item.visible_at)

    @admin.display(description=_("cancel requested"))
    def cancel_requested(self, item: Item) -> SafeString | str:
        return moment(item.cancel_requested_at)

    @admin.display(description=_("lease until"))
    def lease(self, item: Item) -> SafeString | str:
        return moment(item.lease_until)

    @admin.display(description=_("error"))
    def error_report(self, item: Any) -> SafeString | str:
        return error_block(item)

    @admin.display(description=_("input"))
    def input_json(self, item: Any) -> SafeString | str:
        return json_block(item.input_text)

    @admin.display(description=_("output"))
    def output_json(self, item: Any) -> SafeString | str:
        return json_block(item.output_text)

    @admin.display(description=_("log"))
    def log_lines(self, item: Item) -> SafeString | str:
        return log_table(item)

    @admin.display(description=_("history"))
    def history_short(self, item: Item) -> SafeString:
        return history_table(item, with_details=False)

    @admin.display(description=_("history"))
    def history_with_details(self, item: Item) -> SafeString:
        return history_table(item, with_details=True)


def _way_to(item: Item) -> dict[str, str]:
    """The pages that lead to an item, unless the project took them out of its admin."""
    try:
        return {
            "runs_url": reverse("admin:catbird_flowrun_changelist"),
            "run_url": reverse("admin:catbird_flowrun_change", args=[item.flow_run_id]),
            "list_url": items_url(item.flow_run_id, item.step.name),
        }
    except NoReverseMatch:
        return {}
