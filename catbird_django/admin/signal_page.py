"""The page on which somebody gives a step of a flow run its signal, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from catbird_django.admin.markup import json_block
from catbird_django.errors import SignalRefused
from catbird_django.monitoring import queries
from catbird_django.monitoring.actions import Person, send_signal
from catbird_django.monitoring.permissions import may_signal
from catbird_django.monitoring.step_runs import open_to_signals
from catbird_django.statuses import SignalVerdict

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponse, HttpResponseBase

    from catbird_django.models import FlowRun, StepRun


class SignalForm(forms.Form):
    """A payload, as JSON text. Its type is checked by whoever takes the signal."""

    payload = forms.CharField(
        label=_("Payload"),
        help_text=_("As JSON."),
        strip=True,
        widget=forms.Textarea(attrs={"rows": 8, "cols": 80, "spellcheck": "false", "class": "vLargeTextField"}),
    )

    def clean_payload(self) -> Any:
        try:
            return json.loads(self.cleaned_data["payload"])
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(_now("This is not JSON: %(error)s") % {"error": error}) from None


def signal_page(page: Any, request: HttpRequest, object_id: str) -> HttpResponseBase:
    """Ask for the payload of a signal; give it, and show the run again."""
    run, step_run = _waiting_step(page, request, object_id)
    form = SignalForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _give(request, run, step_run.step.name, form):
        return HttpResponseRedirect(reverse(f"{page.admin_site.name}:catbird_flowrun_change", args=[run.pk]))
    return _ask(page, request, run, step_run, form)


def _waiting_step(page: Any, request: HttpRequest, object_id: str) -> tuple[FlowRun, StepRun]:
    """The run of the address, and its step that a signal would count for."""
    if not page.has_view_permission(request) or not may_signal(request.user):
        raise PermissionDenied
    run_id = queries.run_id_in(object_id)
    run = page.get_queryset(request).filter(pk=run_id).first() if run_id and run_id < 2**63 else None
    if run is None:
        raise Http404
    name = request.GET.get("step", "")
    for step_run in run.step_runs.select_related("step").filter(step__signal__isnull=False):
        if step_run.step.name == name:
            return run, step_run
    raise Http404


def _give(request: HttpRequest, run: FlowRun, step: str, form: SignalForm) -> bool:
    """Give the signal and say so; say on the form what is wrong with the payload, and that it was refused otherwise."""
    try:
        send_signal(Person(request.user), run.pk, step, form.cleaned_data["payload"])
    except SignalRefused as refusal:
        if refusal.verdict is SignalVerdict.MALFORMED:
            form.add_error("payload", str(refusal.__cause__ or refusal))
            return False
        messages.error(request, _now("Refused: %(reason)s.") % {"reason": refusal.verdict.label})
        return True
    messages.success(request, _now("The signal was given to %(step)s.") % {"step": step})
    return True


def _ask(page: Any, request: HttpRequest, run: FlowRun, step_run: StepRun, form: SignalForm) -> HttpResponse:
    schema = step_run.step.signal_schema
    context = {
        **page.admin_site.each_context(request),
        "title": _now("Signal for %(step)s of run %(run)d") % {"step": step_run.step.name, "run": run.pk},
        "opts": page.opts,
        "media": page.media,
        "run": run,
        "form": form,
        "is_open": any(step_run.pk == open_step.pk for open_step in open_to_signals(run)),
        "schema": json_block(None if schema is None else json.dumps(schema, ensure_ascii=False)),
    }
    return TemplateResponse(request, "admin/catbird/signal.html", context)
