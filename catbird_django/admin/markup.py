"""Small pieces of HTML that several pages show. Everything that comes from a row is escaped."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeGuard

from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse
from django.utils.formats import date_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from catbird_django.monitoring.durations import in_words
from catbird_django.monitoring.icons import STATUS_ICONS
from catbird_django.monitoring.json_text import laid_out
from catbird_django.monitoring.payloads import MAX_SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import Model
    from django.db.models.enums import Choices

EMPTY = "-"

ICONS = STATUS_ICONS | {
    "alive": "M2 8h3l2-4l2.5 8l1.5-4h3",
    "silent": "M8 3v6M8 12v1",
    "stopped": "M4 4h8v8h-8z",
}


def badge(choice: Choices) -> SafeString:
    """A status as icon, word and colour: none of them is needed to read it."""
    return format_html(
        '<span class="catbird-badge" data-status="{}">'
        '<svg viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d="{}"/></svg>{}</span>',
        choice.value,
        ICONS[choice.value],
        choice.label,
    )


def moment(value: datetime | None) -> SafeString | str:
    """A point in time to the second, in the reader's time zone; exact for machines."""
    if value is None:
        return EMPTY
    local = localtime(value)
    return format_html('<time datetime="{}" dir="ltr">{}</time>', local.isoformat(), date_format(local, "Y-m-d H:i:s"))


def grouped(count: int) -> str:
    """A large number, its digits in groups as the reader's language has them."""
    return number_format(count, force_grouping=True)


def link(row: Model, text: str) -> SafeString | str:
    """A link to a row's own page, if it has one."""
    try:
        url = reverse(f"admin:catbird_{type(row).__name__.lower()}_change", args=[quote(row.pk)])
    except NoReverseMatch:  # taken out of the admin by the project
        return text
    return format_html('<a href="{}">{}</a>', url, text)


def list_link(model: type[Model], text: str, **filters: str) -> SafeString | str:
    """A link to a model's list with these filters set, if it has one."""
    try:
        url = reverse(f"admin:catbird_{model.__name__.lower()}_changelist")
    except NoReverseMatch:
        return text
    return format_html('<a href="{}?{}">{}</a>', url, urlencode(filters), text)


def items_url(run_id: int, step: str, **filters: str) -> str:
    """The address of the page with the items of a map; raise NoReverseMatch if the project took it out."""
    url = reverse("admin:catbird_flowrun_items", args=[run_id, step])
    return f"{url}?{urlencode(filters)}" if filters else url


def items_link(run_id: int, step: str, text: str, **filters: str) -> SafeString | str:
    """A link to the items of a map."""
    try:
        return format_html('<a href="{}">{}</a>', items_url(run_id, step, **filters), text)
    except NoReverseMatch:
        return text


def names(values: Iterable[object]) -> SafeString:
    """Names, each as a small label."""
    return format_html_join(" ", '<span class="catbird-name">{}</span>', ((value,) for value in values))


def json_block(text: str | None, *, is_open: bool = True) -> SafeString | str:
    """JSON laid out for reading, in a part of the page that folds."""
    if text is None:
        return EMPTY
    shown = laid_out(text, limit=MAX_SHOWN)
    if "\n" not in shown and len(shown) < 80:
        return format_html('<pre class="catbird-code" dir="ltr">{}</pre>', shown)
    return folding(_("%(count)d lines") % {"count": shown.count("\n") + 1}, shown, is_open=is_open)


def folding(summary: str, text: str, *, is_open: bool = False) -> SafeString:
    """A long text as it is, below a line that opens and closes it."""
    return format_html(
        '<details class="catbird-fold"{}><summary>{}</summary>'
        '<pre class="catbird-code" dir="ltr" tabindex="0">{}</pre></details>',
        SafeString(" open") if is_open else "",
        summary,
        text,
    )


def error_block(failed: Any, *, where: str = "") -> SafeString | str:
    """An error as our workers write it; as JSON, when somebody else did."""
    if failed.error_type is None and failed.error_message is None:
        return json_block(failed.error_text)
    return format_html(
        '<div class="catbird-error"><strong>{}</strong><span>{}</span>{}</div>{}',
        failed.error_type or "",
        failed.error_message or "",
        format_html('<span class="quiet">{}</span>', where) if where else "",
        folding(_("Traceback"), failed.error_traceback) if failed.error_traceback else "",
    )


def how_long(since: datetime | None, until: datetime | None, now: datetime) -> str:
    """How long something took, or has taken so far by the database's clock."""
    return EMPTY if since is None else in_words((until or now) - since)


def progress_bar(progress: object, *, with_message: bool) -> SafeString | str:
    """How far a handler says it is; the message only for those who may see payloads."""
    if not isinstance(progress, dict) or not _is_amount(progress.get("done")):
        return EMPTY
    done, total = progress["done"], progress.get("total")
    message = str(progress.get("message") or "") if with_message else ""
    if not _is_amount(total) or total <= 0:
        return format_html(
            '<span class="catbird-progress"><span>{}</span> <span>{}</span></span>', _amount(done), message
        )
    return format_html(
        '<span class="catbird-progress"><progress value="{}" max="{}" aria-label="{}"></progress>'
        ' <span dir="ltr">{}</span> <span>{}</span></span>',
        str(min(done, total)),
        str(total),
        _("progress"),
        f"{_amount(done)} / {_amount(total)}",
        message,
    )


def _is_amount(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _amount(value: float) -> str:
    return grouped(value) if isinstance(value, int) else f"{value:g}"


def table(headings: Iterable[object], rows: Iterable[Iterable[object]], *, row_class: str = "") -> SafeString:
    """Rows below headings; each row begins with its class."""
    return format_html(
        '<div class="catbird-table" tabindex="0"><table class="{}">'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
        row_class,
        format_html_join("", '<th scope="col">{}</th>', ((heading,) for heading in headings)),
        format_html_join("", "{}", ((_row(row),) for row in rows)),
    )


def _row(row: Iterable[object]) -> SafeString:
    level, *cells = row
    return format_html(
        '<tr data-level="{}">{}</tr>', level, format_html_join("", "<td>{}</td>", ((cell,) for cell in cells))
    )
