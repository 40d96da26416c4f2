"""Buttons and bulk actions on runs. They ask, show what was refused, and leave the doing to `monitoring/actions.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from catbird_django.monitoring import queries
from catbird_django.monitoring.actions import Answers, Person, cancel_runs, retry_runs

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponse, HttpResponseBase

MAX_REASON = 2000


@admin.action(description=_("Cancel selected runs"), permissions=["cancel"])
def cancel_selected(page: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    if "confirmed" not in request.POST:
        return _ask(page, request, _selected(request, queryset), action="cancel_selected", asks_reason=True)
    answers = cancel_runs(Person(request.user), _selected(request, queryset), reason=_reason(request))
    _tell(request, answers)
    return None


@admin.action(description=_("Run selected runs again"), permissions=["retry"])
def retry_selected(page: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    if "confirmed" not in request.POST:
        return _ask(page, request, _selected(request, queryset), action="retry_selected", asks_reason=False)
    _tell(request, retry_runs(Person(request.user), _selected(request, queryset)))
    return None


def cancel_one(page: Any, request: HttpRequest, object_id: str) -> HttpResponseBase:
    """Cancel the run of a page, and show it again."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    run_id = _seen(page, request, object_id)
    _tell(request, cancel_runs(Person(request.user), [run_id], reason=_reason(request)))
    return HttpResponseRedirect(_page_of(page, run_id))


def retry_one(page: Any, request: HttpRequest, object_id: str) -> HttpResponseBase:
    """Run the run of a page again, and show the new one."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    run_id = _seen(page, request, object_id)
    answers = retry_runs(Person(request.user), [run_id])
    _tell(request, answers)
    return HttpResponseRedirect(_page_of(page, answers.successors.get(run_id, run_id)))


def _seen(page: Any, request: HttpRequest, object_id: str) -> int:
    """The id of a run that the user may see."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    run_id = queries.run_id_in(object_id)
    if run_id is None or run_id >= 2**63 or not page.get_queryset(request).filter(pk=run_id).exists():
        raise Http404
    return run_id


def _selected(request: HttpRequest, queryset: QuerySet[Any]) -> list[int]:
    """The runs that were ticked, as far as they are in the list: never "all", which may be millions."""
    ticked = [queries.run_id_in(text) for text in request.POST.getlist(ACTION_CHECKBOX_NAME)]
    return list(queryset.filter(pk__in=[run_id for run_id in ticked if run_id]).values_list("pk", flat=True))


def _reason(request: HttpRequest) -> str:
    return str(request.POST.get("reason", "")).strip()[:MAX_REASON]


def _page_of(page: Any, run_id: int) -> str:
    return reverse(f"{page.admin_site.name}:catbird_taskrun_change", args=[run_id])


def _ask(page: Any, request: HttpRequest, run_ids: list[int], *, action: str, asks_reason: bool) -> HttpResponse:
    """A page that says what is about to happen, with exact numbers."""
    count = {"count": len(run_ids)}
    if asks_reason:
        question = ngettext("Cancel %(count)d run?", "Cancel %(count)d runs?", len(run_ids)) % count
    else:
        question = ngettext("Run %(count)d run again?", "Run %(count)d runs again?", len(run_ids)) % count
    context = {
        **page.admin_site.each_context(request),
        "title": question,
        "opts": page.opts,
        "media": page.media,
        "runs": page.get_queryset(request).filter(pk__in=run_ids).order_by("-pk"),
        "action": action,
        "asks_reason": asks_reason,
        "max_reason": MAX_REASON,
        "checkbox": ACTION_CHECKBOX_NAME,
    }
    return TemplateResponse(request, "admin/catbird/confirm_action.html", context)


def _tell(request: HttpRequest, answers: Answers) -> None:
    """Say how many there were of each answer; what was refused, as a warning."""
    for verdict, count in answers.counts.items():
        text, level = _WORDS[verdict]
        messages.add_message(request, level, str(text) % {"count": count})
    if not answers.counts:
        messages.warning(request, _now("None of these runs is there any more."))


_WORDS = {
    "canceled": (_("Canceled: %(count)d."), messages.SUCCESS),
    "canceling": (_("Told to stop, and canceled when they have: %(count)d."), messages.SUCCESS),
    "queued": (_("Queued again, as a new run: %(count)d."), messages.SUCCESS),
    "finished": (_("Had ended already, so not canceled: %(count)d."), messages.WARNING),
    "live": (_("Have not ended, so not run again: %(count)d."), messages.WARNING),
    "unknown": (_("No longer there: %(count)d."), messages.WARNING),
}
