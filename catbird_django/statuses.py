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


class FlowStatus(TextChoices):
    """The life of a flow run (F9). The three that end in -ing: the outcome is decided, live work is being stopped."""

    STARTED = "started", pgettext_lazy("flow status", "started")
    CANCELING = "canceling", pgettext_lazy("flow status", "canceling")
    FAILING = "failing", pgettext_lazy("flow status", "failing")
    COMPLETING = "completing", pgettext_lazy("flow status", "completing")
    COMPLETED = "completed", pgettext_lazy("flow status", "completed")
    FAILED = "failed", pgettext_lazy("flow status", "failed")
    CANCELED = "canceled", pgettext_lazy("flow status", "canceled")
    EXPIRED = "expired", pgettext_lazy("flow status", "expired")


class StepStatus(TextChoices):
    """The life of a step run (F9)."""

    WAITING_FOR_DEPENDENCIES = "waiting_for_dependencies", pgettext_lazy("step status", "waiting for dependencies")
    WAITING_FOR_SIGNAL = "waiting_for_signal", pgettext_lazy("step status", "waiting for a signal")
    WAITING_FOR_STATE = "waiting_for_state", pgettext_lazy("step status", "waiting for a state")
    WAITING_FOR_ITEMS = "waiting_for_items", pgettext_lazy("step status", "waiting for items")
    QUEUED = "queued", pgettext_lazy("step status", "queued")
    STARTED = "started", pgettext_lazy("step status", "started")
    CANCELING = "canceling", pgettext_lazy("step status", "canceling")
    COMPLETED = "completed", pgettext_lazy("step status", "completed")
    FAILED = "failed", pgettext_lazy("step status", "failed")
    SKIPPED = "skipped", pgettext_lazy("step status", "skipped")
    CANCELED = "canceled", pgettext_lazy("step status", "canceled")


class ItemStatus(TextChoices):
    """The life of an item of a map (F9)."""

    QUEUED = "queued", pgettext_lazy("item status", "queued")
    STARTED = "started", pgettext_lazy("item status", "started")
    CANCELING = "canceling", pgettext_lazy("item status", "canceling")
    COMPLETED = "completed", pgettext_lazy("item status", "completed")
    FAILED = "failed", pgettext_lazy("item status", "failed")
    CANCELED = "canceled", pgettext_lazy("item status", "canceled")


class SkipReason(TextChoices):
    """Why a step was skipped (F9)."""

    CONDITION = "condition", pgettext_lazy("skip reason", "its condition was not met")
    DEPENDENCY = "dependency", pgettext_lazy("skip reason", "a step that it needs was skipped")
    HANDLER = "handler", pgettext_lazy("skip reason", "its handler decided so")
    EXHAUSTED = "exhausted", pgettext_lazy("skip reason", "its last attempt failed")


TERMINAL_STATUSES: Final = frozenset({"completed", "failed", "skipped", "canceled", "expired"})
"""Statuses that are final, of every kind of run; everything else is live (R8)."""


class SignalVerdict(TextChoices):
    """What became of a signal (F12): it counted, or why not."""

    ACCEPTED = "accepted", pgettext_lazy("signal verdict", "accepted")
    DUPLICATE = "duplicate", pgettext_lazy("signal verdict", "the signal was given before")
    LATE = "late", pgettext_lazy("signal verdict", "the step no longer waits for it")
    UNKNOWN_RUN = "unknown_run", pgettext_lazy("signal verdict", "there is no such run")
    UNKNOWN_STEP = "unknown_step", pgettext_lazy("signal verdict", "the flow has no such step")
    NO_SIGNAL = "no_signal", pgettext_lazy("signal verdict", "the step waits for no signal")
    NOT_ALLOWED = "not_allowed", pgettext_lazy("signal verdict", "the actor may not give it")
    MALFORMED = "malformed", pgettext_lazy("signal verdict", "the payload is not of the signal's type")


class RunKind(TextChoices):
    """What kind of run an event, a log line or a tag belongs to."""

    TASK = "task", pgettext_lazy("run kind", "task")
    FLOW = "flow", pgettext_lazy("run kind", "flow")
    STEP = "step", pgettext_lazy("run kind", "step")
    ITEM = "item", pgettext_lazy("run kind", "item")


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


class FlowRunVerdict(StrEnum):
    """What `cb_run_flows` says of each input."""

    STARTED = "started"
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
    LOCKED = "locked"
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
    SKIPPED = "skipped"
    LOCKED = "locked"
    STALE = "stale"
