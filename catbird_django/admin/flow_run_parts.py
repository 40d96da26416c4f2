"""Parts of the page of a flow run: its steps, what they received and returned, and the signals given to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from catbird_django.admin.markup import EMPTY, badge, error_block, how_long, json_block, moment, progress_bar, table
from catbird_django.monitoring.payloads import MAX_STEP_SHOWN
from catbird_django.monitoring.step_runs import received_by
from catbird_django.statuses import SignalVerdict, SkipReason, StepStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.utils.safestring import SafeString

    from catbird_django.monitoring.step_runs import Received


def step_table(steps: Sequence[Any]) -> SafeString:
    """The steps of a run: how each is, when it was queued, how long it waited and ran, and how often it was tried."""
    headings = [_("step"), _("status"), _("queued"), _("waited"), _("ran"), _("deliveries"), _("failures"), _("worker")]
    return table(headings, (("", *_step_cells(step)) for step in steps), row_class="catbird-wide")


def _step_cells(step: Any) -> list[object]:
    return [
        step.step.name,
        _status(step),
        moment(step.queued_at),
        how_long(step.queued_at, step.started_at or step.finished_at, step.read_at),
        how_long(step.started_at, step.finished_at, step.read_at),
        step.delivery_count,
        step.failure_count,
        str(step.worker) if step.worker is not None else EMPTY,
    ]


def _status(step: Any) -> SafeString:
    """The status, how far it is, and why it was skipped."""
    progress = progress_bar(step.progress, with_message=False) if step.status == StepStatus.STARTED else ""
    reason = SkipReason(step.skip_reason).label if step.skip_reason in SkipReason.values else ""
    note = '{} {} <span class="quiet">{}</span>'
    return format_html(note, badge(StepStatus(step.status)), "" if progress == EMPTY else progress, reason)


def step_data(steps: Sequence[Any]) -> SafeString | str:
    """What each step has received, and what it has returned or how it failed; steps without anything are left out."""
    received = received_by(steps)
    shown = [(step.step.name, _data_of(step, received[step.pk])) for step in steps]
    return format_html_join("", "<h3>{}</h3>{}", (one for one in shown if one[1])) or _("None yet.")


def _data_of(step: Any, received: list[Received]) -> SafeString:
    parts = [
        (_("from %(step)s") % {"step": one.source}, _("skipped") if one.text is None else _json(one.text))
        for one in received
    ]
    if step.skip_message:
        parts.append((_("skipped"), step.skip_message))
    if step.error_type is not None or step.error_message is not None:
        parts.append((_("error"), error_block(step)))
    if step.output_text is not None:
        parts.append((_("output"), _json(step.output_text)))
    return format_html_join("", '<div class="catbird-value"><span class="quiet">{}</span> {}</div>', parts)


def _json(text: str) -> SafeString | str:
    cut = _("cut") if len(text) > MAX_STEP_SHOWN else ""
    return format_html('{}<span class="quiet">{}</span>', json_block(text, is_open=len(text) < 1_000), cut)


def signal_table(signals: Sequence[Any]) -> SafeString:
    """Who gave which signal, when, and whether it counted."""
    headings = [_("at"), _("step"), _("by"), _("verdict"), _("payload")]
    return table(headings, (("", *_signal_cells(one)) for one in signals), row_class="catbird-wide")


def _signal_cells(given: Any) -> list[object]:
    verdict = SignalVerdict(given.verdict).label if given.verdict in SignalVerdict.values else given.verdict
    payload = EMPTY if given.payload_text is None else _json(given.payload_text)
    said = format_html('<span class="quiet">{}</span>{}', given.message, payload)
    return [moment(given.at), given.step, given.actor or EMPTY, verdict, said]
