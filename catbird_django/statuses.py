"""Statuses of runs and verdicts of SQL functions, spelled once."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from django.db.models import TextChoices
from django.utils.translation import pgettext_lazy


class TaskStatus(TextChoices):
    """The life of a task run (T3)."""

    QUEUED = "queued", pgettext_lazy("task status", "queued")
    STARTED = "started", pgettext_lazy("task status", "started")
    CANCELING = "canceling", pgettext_lazy("task status", "canceling")
    COMPLETED = "completed", pgettext_lazy("task status", "completed")
    FAILED = "failed", pgettext_lazy("task status", "failed")
    SKIPPED = "skipped", pgettext_lazy("task status", "skipped")
    CANCELED = "canceled", pgettext_lazy("task status", "canceled")
    EXPIRED = "expired", pgettext_lazy("task status", "expired")


TERMINAL_STATUSES: Final = frozenset({"completed", "failed", "skipped", "canceled", "expired"})
"""Statuses that are final, of every kind of run; everything else is live (R8)."""


class RunKind(TextChoices):
    """What kind of run an event, a log line or a tag belongs to."""

    TASK = "task", pgettext_lazy("run kind", "task")


class RunRole(TextChoices):
    """What a run is to the run it was made from."""

    RETRY = "retry", pgettext_lazy("run role", "retry")
    ON_FAIL = "on_fail", pgettext_lazy("run role", "on fail")


class RunVerdict(StrEnum):
    """What `cb_run_tasks` says of each input."""

    QUEUED = "queued"
    REPLACED = "replaced"
    SKIPPED = "skipped"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class RetryVerdict(StrEnum):
    """What `cb_retry_tasks` says of each run: what became of the new one, or why there is none."""

    QUEUED = "queued"
    SKIPPED = "skipped"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    LIVE = "live"
    UNKNOWN = "unknown"


class CancelVerdict(StrEnum):
    """What `cb_cancel_tasks` says of each run."""

    CANCELED = "canceled"
    CANCELING = "canceling"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class ReportVerdict(StrEnum):
    """What `cb_report_tasks` and `cb_log_tasks` say of each word of a handler."""

    REPORTED = "reported"
    LOGGED = "logged"
    DROPPED = "dropped"
    STALE = "stale"


class SettleVerdict(StrEnum):
    """What a settling function says of each claim: it counted, or the claim was no longer ours."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    RELEASED = "released"
    CANCELED = "canceled"
    CANCELING = "canceling"
    EXTENDED = "extended"
    LOCKED = "locked"
    STALE = "stale"
