"""What is on record beside a run, as tables: the lines of its log, and its history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.utils.html import format_html
from django.utils.translation import gettext as _

from catbird_django.admin.markup import moment, table
from catbird_django.monitoring.history import MAX_LINES, history_of, log_of

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from catbird_django.models import Item, TaskRun


def log_table(run: TaskRun | Item) -> SafeString | str:
    """The newest lines of the log."""
    lines = log_of(run)
    if not lines:
        return _("Nothing was written.")
    rows = [(line.level, moment(line.at), line.attempt, line.level, line.message) for line in lines]
    headings = (_("at"), _("attempt"), _("level"), _("message"))
    shown = table(headings, rows[-MAX_LINES:], row_class="catbird-log")
    if len(lines) <= MAX_LINES:
        return shown
    note = _("Only the newest %(count)d lines are shown.") % {"count": MAX_LINES}
    return format_html('<p class="quiet">{}</p>{}', note, shown)


def history_table(run: TaskRun | Item, *, with_details: bool) -> SafeString:
    """What happened to it, oldest first."""
    headings = [_("at"), _("event"), _("from"), _("to"), _("by"), _("details")]
    rows = [
        ("", moment(line.at), line.what, line.from_status, line.to_status, line.actor, compact(line.details))
        for line in history_of(run)
    ]
    # Details, and who asked for a cancel, may name people.
    return table(headings, rows) if with_details else table(headings[:4], (row[:5] for row in rows))


def compact(details: Any) -> str:
    """The details of an event in one line."""
    return "" if details is None else json.dumps(details, ensure_ascii=False)[:2000]
