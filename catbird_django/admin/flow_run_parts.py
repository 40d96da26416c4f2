"""Parts of the page of a flow run: its steps, what they received and returned, and the signals given to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from catbird_django.admin.markup import (
    EMPTY,
    badge,
    error_block,
    grouped,
    how_long,
    items_link,
    json_block,
    moment,
    progress_bar,
    table,
)
from catbird_django.monitoring.item_pages import first_outputs
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
        _name(step),
        _status(step),
        moment(step.queued_at),
        how_long(step.queued_at, step.started_at or step.finished_at, step.read_at),
        how_long(step.started_at, step.finished_at, step.read_at),
        step.delivery_count,
        step.failure_count,
        str(step.worker) if step.worker is not None else EMPTY,
    ]


def _name(step: Any) -> SafeString | str:
    """The name, and what kind of step it is unless it is a plain one."""
    kinds = {"map": _("map"), "reduce": _("reduce")}
    marks = [kinds[step.step.kind]] if step.step.kind in kinds else []
    marks += [_("inline")] if step.step.is_inline else []
    marks += [_("atomic")] if step.step.is_atomic else []
    return (
        format_html('{} <span class="quiet">{}</span>', step.step.name, ", ".join(marks)) if marks else step.step.name
    )


def _status(step: Any) -> SafeString:
    """The status, how far it is, and why it was skipped."""
    if step.items_spawned is not None:
        return format_html("{} {}", badge(StepStatus(step.status)), _items(step))
    progress = progress_bar(step.progress, with_message=False) if step.status == StepStatus.STARTED else ""
    reason = SkipReason(step.skip_reason).label if step.skip_reason in SkipReason.values else ""
    note = '{} {} <span class="quiet">{}</span>'
    return format_html(note, badge(StepStatus(step.status)), "" if progress == EMPTY else progress, reason)


def _items(step: Any) -> SafeString:
    """How far a map is, with links to its items."""
    name, run_id = step.step.name, step.flow_run_id
    ended = step.items_completed + step.items_failed + step.items_canceled
    counts = [
        ("failed", step.items_failed, _("%(count)s failed")),
        ("canceled", step.items_canceled, _("%(count)s canceled")),
    ]
    links = [items_link(run_id, name, _("%(count)s items") % {"count": grouped(step.items_spawned)})]
    links += [
        items_link(run_id, name, text % {"count": grouped(count)}, status=status)
        for status, count, text in counts
        if count
    ]
    is_over = ended >= step.items_spawned
    progress = "" if is_over else progress_bar({"done": ended, "total": step.items_spawned}, with_message=False)
    return format_html("{} {}", progress, format_html_join(" · ", "{}", ((one,) for one in links)))


def list_output(run_id: int, step_run: Any) -> SafeString:
    """The output of a run that is a list of items: the first of them, and how many there are."""
    shown = first_outputs(step_run.pk, using=step_run._state.db)  # noqa: SLF001 - documented by Django
    count = step_run.items_spawned or 0
    note = _("A list of %(count)s values.") % {"count": grouped(count)}
    if count > len(shown):
        note = _("A list of %(count)s values, of which these are the first.") % {"count": grouped(count)}
    values = (
        (item.index, _json(item.output_text) if item.output_text is not None else _short_error(item)) for item in shown
    )
    return format_html(
        '<p>{} {}</p><div class="catbird-value">{}</div>',
        note,
        items_link(run_id, step_run.step.name, _("Show items")),
        format_html_join("", '<div class="catbird-value"><span class="quiet">{}</span> {}</div>', values),
    )


def _short_error(item: Any) -> str:
    return EMPTY if item.error_type is None else f"{item.error_type}: {item.error_message or ''}"


def where_failed(step: str, item: str | None) -> str:
    """In which step a run has failed, and in which item of it."""
    if item is not None and step:
        return _("in step %(step)s, item %(item)s") % {"step": step, "item": item}
    return _("in step %(step)s") % {"step": step} if step else ""


def step_data(steps: Sequence[Any]) -> SafeString | str:
    """What each step has received, and what it has returned or how it failed; steps without anything are left out."""
    received = received_by(steps)
    shown = [(step.step.name, _data_of(step, received[step.pk])) for step in steps]
    return format_html_join("", "<h3>{}</h3>{}", (one for one in shown if one[1])) or _("None yet.")


def _data_of(step: Any, received: list[Received]) -> SafeString:
    parts = [(_("from %(step)s") % {"step": one.source}, _received(step.flow_run_id, one)) for one in received]
    if step.skip_message:
        parts.append((_("skipped"), step.skip_message))
    if step.error_type is not None or step.error_message is not None:
        where = "" if step.error_item is None else _("in item %(item)s") % {"item": step.error_item}
        parts.append((_("error"), error_block(step, where=where)))
    if step.output_text is not None:
        parts.append((_("output"), _json(step.output_text)))
    elif step.items_spawned is not None:
        count = _("%(count)s items") % {"count": grouped(step.items_spawned)}
        parts.append((_("output"), items_link(step.flow_run_id, step.step.name, count)))
    return format_html_join("", '<div class="catbird-value"><span class="quiet">{}</span> {}</div>', parts)


def _received(run_id: int, one: Received) -> SafeString | str:
    if one.item_count is not None and one.text is None:
        count = _("%(count)s items") % {"count": grouped(one.item_count)}
        return items_link(run_id, one.source, count)
    return _("skipped") if one.text is None else _json(one.text)


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
