"""The page with the items of one map of a flow run: in their order, a page at a time, of one status if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from catbird_django.admin.markup import EMPTY, badge, how_long, link, moment, progress_bar, table
from catbird_django.monitoring import queries
from catbird_django.monitoring.item_pages import counts_of, read_items
from catbird_django.monitoring.paging import BadPositionError, Position
from catbird_django.monitoring.permissions import may_view_payload
from catbird_django.statuses import ItemStatus

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponse
    from django.utils.safestring import SafeString

    from catbird_django.models import FlowRun, StepRun


def item_list(page: Any, request: HttpRequest, object_id: str, step: str) -> HttpResponse:
    """Show the items of a map."""
    run, step_run = _map_of(page, request, object_id, step)
    status = request.GET.get("status", "")
    if status and status not in ItemStatus.values:
        raise BadRequest("no such status of an item")
    try:
        position = Position.from_parameters(request.GET.dict())
    except BadPositionError as error:
        raise BadRequest(str(error)) from error
    with_payloads = may_view_payload(request.user)
    shown = read_items(step_run, position, status=status, with_payloads=with_payloads)
    context = {
        **page.admin_site.each_context(request),
        "title": _("Items of %(step)s") % {"step": step},
        "opts": page.opts,
        "media": page.media,
        "run": run,
        "summary": counts_of(step_run).text,
        "choices": _choices(status),
        "items": _table(shown.rows, with_payloads=with_payloads) if shown.rows else "",
        "previous": _address(shown.previous, status),
        "next": _address(shown.next, status),
        "first": _address(Position(), status),
    }
    return TemplateResponse(request, "admin/catbird/item_list.html", context)


def _map_of(page: Any, request: HttpRequest, object_id: str, step: str) -> tuple[FlowRun, StepRun]:
    """The run of the address, and its map."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    run_id = queries.run_id_in(object_id)
    run = page.get_queryset(request).filter(pk=run_id).first() if run_id and run_id < 2**63 else None
    if run is None:
        raise Http404
    for step_run in run.step_runs.filter(step__kind="map").select_related("step"):
        if step_run.step.name == step:
            return run, step_run
    raise Http404


def _choices(chosen: str) -> list[tuple[str, str, bool]]:
    """The statuses to choose from: the address of each, its name, and whether it is chosen."""
    return [
        (_address(Position(), status) or "?", str(label), status == chosen)
        for status, label in [("", _("all")), *ItemStatus.choices]
    ]


def _address(position: Position | None, status: str) -> str | None:
    if position is None:
        return None
    given = {name: value for name, value in position.parameters().items() if value is not None}
    return "?" + urlencode(given | ({"status": status} if status else {}))


def _table(items: Any, *, with_payloads: bool) -> SafeString:
    headings = [_("item"), _("status"), _("progress"), _("started"), _("ran"), _("deliveries"), _("failures")]
    last = [_("error or output")] if with_payloads else [""]
    rows = (("", *_cells(item), _result(item) if with_payloads else "") for item in items)
    return table([*headings, *last], rows, row_class="catbird-wide")


def _cells(item: Any) -> list[object]:
    return [
        link(item, str(item.index)),
        badge(ItemStatus(item.status)),
        progress_bar(item.progress, with_message=False),
        moment(item.started_at),
        how_long(item.started_at, item.finished_at, item.read_at),
        item.delivery_count,
        item.failure_count,
    ]


def _result(item: Any) -> SafeString | str:
    """How the item failed, or how its output begins, in short."""
    if item.error_type is not None or item.error_message is not None:
        return format_html("<strong>{}</strong> {}", item.error_type or "", _cut(item.error_message or ""))
    return EMPTY if item.output_text is None else format_html('<code dir="ltr">{}</code>', _cut(item.output_text))


def _cut(text: str, limit: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + "…"
